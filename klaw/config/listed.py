"""Every key of the configuration with what is in effect, what the file says, and what may be said: for forms."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import attrs

from klaw.config.describe import RESTART, json_schema, kinds_of, show
from klaw.config.document import join_path
from klaw.config.schema import EngineConfig

_REFERENCE = re.compile(r"(?<!\$)(\$\$)*\$\{")
_MISSING: Any = object()
HIDDEN = "***"


@attrs.frozen(kw_only=True)
class Setting:
    path: str
    description: str
    type: str
    """``boolean``, ``integer``, ``number``, ``string``, ``array`` (of ``items``), ``object`` (any names with values),
    or ``map``: names that one chooses, each with keys of its own."""
    items: str
    nullable: bool
    choices: tuple[str, ...]
    minimum: float | None
    above: float | None
    maximum: float | None
    default: Any
    value: Any
    """What is in effect, without secrets; of a map, the names."""
    written: Any
    """As it stands in the file, with references; secrets in plain text are hidden."""
    origin: Literal["default", "file", "environment"]
    restart: bool
    """A change takes effect when the server is started again."""
    secret: bool
    entry: "tuple[Setting, ...]" = ()
    """Of a map: the keys of a new entry, with paths below it."""


def settings(config: EngineConfig, written: Mapping[str, Any]) -> list[Setting]:
    """All keys, in the schema's order. ``config``: what is in effect; ``written``: the file's tree."""
    return list(_listed(json_schema(), show(config), written, "", restart=False))


def _listed(
    schema: Mapping[str, Any], values: Mapping[str, Any], written: Any, prefix: str, *, restart: bool
) -> Iterator[Setting]:
    for name, about in schema["properties"].items():
        if about.get("deprecated"):
            continue
        path, later = join_path(prefix, name), restart or RESTART in about
        own = written.get(name, _MISSING) if isinstance(written, Mapping) else _MISSING
        value, inner = values.get(name), about.get("additionalProperties")
        if "properties" in about:
            yield from _listed(about, value or {}, own, path, restart=later)
        elif isinstance(inner, Mapping) and "properties" in inner:
            entry = tuple(_listed(inner, {}, _MISSING, "", restart=later))
            yield attrs.evolve(_setting(path, about, list(value or ()), own, restart=later, kind="map"), entry=entry)
            for each in value or ():
                below = own.get(each) if isinstance(own, Mapping) else None
                yield from _listed(inner, (value or {})[each], below, join_path(path, each), restart=later)
        else:
            yield _setting(path, about, value, own, restart=later)


_LIMITS = {"minimum": "minimum", "above": "exclusiveMinimum", "maximum": "maximum", "default": "default"}
"""Fields of a ``Setting`` and the schema's members that they come from."""


def _setting(
    path: str, about: Mapping[str, Any], value: Any, written: Any, *, restart: bool, kind: str = ""
) -> Setting:
    kinds, (items, *_) = kinds_of(about), kinds_of(about.get("items", {"type": "string"}))
    secret = bool(about.get("writeOnly") or (about.get("additionalProperties") or {}).get("writeOnly"))
    there, says = written is not _MISSING, written is not _MISSING and kind != "map"
    from_environment = says and _REFERENCE.search(json.dumps(written)) is not None
    limits: dict[str, Any] = {field: about.get(member) for field, member in _LIMITS.items()}
    return Setting(
        path=path,
        description=about.get("description", ""),
        type=kind or kinds[0],
        items=items,
        nullable="null" in kinds,
        choices=tuple(about["anyOf"][0]["enum"]) if "anyOf" in about else (),
        value=value,
        written=None if not says else _without_secrets(written) if secret else written,
        origin="environment" if from_environment else "file" if there else "default",
        restart=restart,
        secret=secret,
        **limits,
    )


def _without_secrets(written: Any) -> Any:
    if isinstance(written, Mapping):
        return {name: _without_secrets(each) for name, each in written.items()}
    return written if isinstance(written, str) and _REFERENCE.search(written) else HIDDEN
