"""The text of a configuration file -> a plain tree of mappings, lists, scalars and references.

Reads JSON and YAML alike. Of YAML it takes the part that holds no surprises: a plain scalar is ``null``, ``true``,
``false``, a decimal number or else text (``yes``, ``on``, ``2026-01-01`` and ``010`` are text); no tags, no aliases, no
duplicate keys. Knows nothing of the keys' meaning.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs
import yaml
from yaml.composer import ComposerError

from klaw.config.environment import check_text, read_references
from klaw.errors import ConfigError, Problem

MAX_DEPTH = 64
"""Levels of nesting: the parser recurses."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAX_DIGITS = 300
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TAG_HANDLE = re.compile(r"handle '.*'", re.DOTALL)
_SIMPLE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


INVALID: Final = object()
"""Stands in the tree for a value whose problem has been reported, so that the rest can still be checked."""


def read_document(text: str, environ: Mapping[str, str] | None) -> tuple[dict[str, Any], list[Problem]]:
    """Read a configuration text; an empty one is an empty mapping. Returns the tree, whose values are dict, list,
    ``str``, ``Reference`` (not without ``environ``: then a text with references stays as it is written), ``int``,
    finite ``float``, ``bool``, ``None`` and ``INVALID``; and duplicate keys, numbers that cannot be held, and malformed
    references. Raises ConfigError: the text is not YAML, or holds no mapping at the top."""
    reader, node = _TreeReader(environ), compose(text)
    tree = reader.value(node, "") if node is not None else None
    if not isinstance(tree, dict | None):
        top = Problem(path="", message=f"the file must hold a mapping of sections, got {kind_of(tree)}")
        raise ConfigError([*reader.problems, top])
    return tree or {}, reader.problems


def read_written(text: str) -> dict[str, Any]:
    """The tree as it is written, with references as texts. Raises ConfigError."""
    tree, problems = read_document(text, None)
    if problems:
        raise ConfigError(problems)
    return tree


def plain_scalar(text: str) -> str | int | float | bool | None:
    """Read one unquoted scalar. Raises ValueError: it is a number that cannot be held."""
    if text in _NULLS:
        return None
    if text in {"true", "false"}:
        return text == "true"
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("must be a finite number")
    if _INT.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise ValueError(f"is a number of more than {_MAX_DIGITS} digits")
        return int(text)
    if _FLOAT.fullmatch(text) and not re.match(r"[-+]?0[0-9]", text):
        number = float(text)
        if number in {float("inf"), float("-inf")}:
            raise ValueError("must be a finite number")
        return number
    return text


def join_path(path: str, name: str) -> str:
    """Append a key to a key path: ``a.b``, or ``a["x/y"]`` where the key is no plain word."""
    if _SIMPLE_KEY.fullmatch(name):
        return f"{path}.{name}" if path else name
    quoted = name.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'{path}["{quoted}"]'


_STEP = re.compile(r'(?:^|\.)(?P<plain>[^.\[\]"]+)|\["(?P<quoted>(?:[^"\\]|\\.)+)"\]')


def split_path(path: str) -> tuple[str, ...]:
    """The keys of a key path as ``join_path`` writes it. Raises ConfigError: it has another form."""
    steps, at = [], 0
    for found in _STEP.finditer(path):
        if found.start() != at:
            break
        quoted = found["quoted"]
        steps.append(found["plain"] or quoted.encode("latin-1", "backslashreplace").decode("unicode_escape"))
        at = found.end()
    if not path or at != len(path):
        form = 'must be a key path such as autoRag.topK or providers.openai.models["gpt-4.1"].tools'
        raise ConfigError.of(form, path)
    return tuple(steps)


def kind_of(value: object) -> str:
    """Name the type of a value of the tree in words for people."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", dict: "a section", list: "a list"}
    return words.get(type(value), "a text")


class _Loader(yaml.BaseLoader):
    """PyYAML's composer without aliases, tags and bottomless nesting, and with JSON's tabs between tokens."""

    _depth = 0

    def scan_to_next_token(self) -> None:
        super().scan_to_next_token()
        while self.flow_level and self.peek() == "\t":
            self.forward()
            super().scan_to_next_token()

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # untyped in the stubs
        refusal = None
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            refusal = "anchors and aliases (&name, *name) are not supported"
        elif event.tag is not None:
            refusal = "tags (!name) are not supported"
        elif self._depth >= MAX_DEPTH:
            refusal = f"more than {MAX_DEPTH} levels of nesting"
        if refusal:
            raise ComposerError(None, None, refusal, event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def compose(text: str) -> yaml.Node | None:
    """The nodes of a text with their places in it; None: it holds nothing. Raises ConfigError: it is not YAML."""
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as exc:
        lines = text[: exc.position].split("\n") if isinstance(exc.position, int) else [""]
        where = f"line {len(lines)}, column {len(lines[-1]) + 1}"
        raise ConfigError.of(f"not YAML or JSON: a character that is not allowed at {where}") from None
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        # A mark's own text quotes the line, which may hold a key, and so may PyYAML's phrase on an unknown tag.
        what = _TAG_HANDLE.sub("handle", ", ".join(filter(None, (exc.context, exc.problem))))
        raise ConfigError.of(f"not YAML or JSON: {what}{where}") from None


@attrs.frozen
class _TreeReader:
    _environ: Mapping[str, str] | None
    """None: references are not read."""
    problems: list[Problem] = attrs.field(factory=list, init=False)

    def report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message))

    def value(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{path}[{number}]") for number, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        lines: dict[str, int] = {}
        tree: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.report(path, f"a key must be a text (line {line})")
                continue
            name = _whole_characters(key_node.value)
            here = join_path(path, name)
            if name in lines:
                self.report(here, f"the key is given twice, in line {lines[name]} and in line {line}")
                continue
            lines[name] = line
            tree[name] = self.value(value_node, here)
        return tree

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        text = _whole_characters(node.value)
        line = node.start_mark.line + 1
        try:
            check_text(text)
            if "$" in text and self._environ is not None:
                return read_references(text, line, self._environ)
            # Quoted or in a block it is text, whatever it looks like.
            return text if getattr(node, "style", None) is not None else plain_scalar(text)
        except ValueError as exc:
            self.report(path, f"{exc} (line {line})")
            return INVALID


def _whole_characters(text: str) -> str:
    r"""Join the two halves that JSON writes for one character (``\ud83d\ude00``)."""
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
