"""Forms that MCP servers have users fill in (elicitation): shown as one text, answered with another. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from klaw.domain.text import cut, printable
from klaw.errors import InvalidValue
from klaw.toolbox.mcp.listing import parameters_of
from klaw.toolbox.mcp.results import first_misfit

MAX_FIELD = 200
MAX_QUOTED = 40
_KINDS = {"integer": "whole number", "number": "number", "boolean": "yes or no", "array": "several, with commas"}
_WORDS = {**dict.fromkeys(("yes", "y", "true", "да"), True), **dict.fromkeys(("no", "n", "false", "нет"), False)}
_PAIR = re.compile(r"\s*([\w.-]+)\s*[:=]\s*(.*)", re.DOTALL)


class ElicitationForm:
    """``schema``: ``requestedSchema`` as the server wrote it."""

    def __init__(self, schema: Any) -> None:
        found = parameters_of(schema)
        self._schema, self._original = found.schema, found.original
        given = schema.get("properties") if isinstance(schema, dict) else None
        for name, field in self.fields.items():
            original = given.get(self._original.get(name, name)) if isinstance(given, dict) else None
            if isinstance(original, dict) and original.get("format") in ("email", "date"):
                field["format"] = original["format"]
            for each in (field, field.get("items", {})):  # choices with titles
                if choices := [one["enum"][0] for one in each.get("anyOf", ()) if "enum" in one]:
                    each["enum"] = choices

    @property
    def fields(self) -> Mapping[str, Any]:
        fields: Mapping[str, Any] = self._schema["properties"]
        return fields

    def shown(self) -> str:
        """All fields: what each takes, and whether it must be given."""
        return "; ".join(map(self._shown, self.fields))

    def _shown(self, name: str) -> str:
        field = self.fields[name]
        choices = field.get("enum") or field.get("items", {}).get("enum")
        takes = field.get("format") or _KINDS.get(field.get("type"), "text")
        takes = " or ".join(map(str, choices)) if choices else takes
        if "default" in field:
            takes += f"; default {json.dumps(field['default'], ensure_ascii=False)}"
        elif name not in self._schema.get("required", ()):
            takes += "; optional"
        about = field.get("description", "")
        return cut(printable(f"{name} ({takes}){': ' if about else ''}{about}"), MAX_FIELD)

    def read(self, text: str) -> dict[str, Any]:
        """What a person answered, with the defaults of what they left out: ``name: value``, on lines or with ``;``
        between, or the value alone where only one is asked for. Raises InvalidValue."""
        given: dict[str, Any] = {}
        for line in filter(str.strip, [text] if len(self.fields) == 1 else re.split(r"[;\n]", text)):
            pair = _PAIR.fullmatch(line)
            name, value = (pair[1], pair[2]) if pair and pair[1] in self.fields else ("", line)
            if not name and len(self.fields) != 1:
                raise InvalidValue(f"{cut(printable(line.strip()), MAX_QUOTED)} is no field with a value")
            given[name or next(iter(self.fields))] = value.strip()
        values = {name: field["default"] for name, field in self.fields.items() if "default" in field}
        values |= {name: _value(value, self.fields[name]) for name, value in given.items()}
        if missing := [name for name in self._schema.get("required", ()) if name not in values]:
            raise InvalidValue(f"{', '.join(missing)} must be given")
        if wrong := first_misfit(values, self._schema):
            raise InvalidValue(wrong.removeprefix("$."))
        return {self._original.get(name, name): value for name, value in values.items()}


def _value(text: str, field: Mapping[str, Any]) -> Any:
    """A text as the JSON value of a field; what is none stays a text, and does not fit then."""
    match field.get("type"):
        case "boolean":
            return _WORDS.get(text.lower(), text)
        case "integer" | "number" if re.fullmatch(r"[+-]?\d{1,15}", text):
            return int(text)
        case "number" if re.fullmatch(r"[+-]?\d{0,15}[.,]\d{1,15}", text):
            return float(text.replace(",", "."))
        case "array":
            return [each.strip() for each in text.split(",") if each.strip()]
    return text
