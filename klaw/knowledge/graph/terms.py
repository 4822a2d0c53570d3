"""The terms of SPARQL answers, how answers are read, and how texts and IRIs are written into a query. Pure.

An endpoint is not trusted: every value is checked before use, and goes into a query only through ``quoted`` and
``reference``.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from klaw.domain.text import clean
from klaw.errors import GraphError

MAX_IRI = 2_000
"""Characters; a longer one is not asked for."""
MAX_COLUMNS = 100

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f-\x9f<>\"{}|^`\\\ud800-\udfff]*")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r"[\x00-\x1f\"\\\x7f]")


@attrs.frozen
class Iri:
    """Names a thing."""

    value: str


@attrs.frozen
class Blank:
    """A thing without a name; ``name`` means something in its own answer only."""

    name: str


@attrs.frozen
class Literal:
    """A text, a number, a date …"""

    value: str
    language: str = ""
    """In lower case, such as ``en`` or ``pt-br``."""
    datatype: str = ""
    """IRI; empty for plain texts."""


Term: TypeAlias = Iri | Blank | Literal
Row: TypeAlias = Mapping[str, Term]


def is_iri(text: str) -> bool:
    """Whether a text is an absolute IRI that may stand in a query."""
    return len(text) <= MAX_IRI and _IRI.fullmatch(text) is not None


def reference(iri: str) -> str:
    """An IRI as it stands in a query. Raises ValueError when it is not valid."""
    if not is_iri(iri):
        raise ValueError("not a valid IRI")
    return f"<{iri}>"


def quoted(text: str, language: str = "") -> str:
    """A text as it stands in a query; nothing in it can end it. Raises ValueError: this is no language tag."""
    escaped = _ESCAPED.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04X}", clean(text))
    if language and not _LANGUAGE.fullmatch(language):
        raise ValueError("not a valid language tag")
    return f'"{escaped}"{"@" + language if language else ""}'


def read_answer(body: bytes, most: int) -> list[Row]:
    """The first rows of ``application/sparql-results+json``. Raises GraphError: it has another form."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    results = value.get("results") if isinstance(value, dict) else None
    found = results.get("bindings") if isinstance(results, dict) else None
    if not isinstance(found, list):
        raise _malformed("results.bindings is not a list")
    return list(map(_row, found[:most]))


def _row(found: Any) -> Row:
    if not isinstance(found, dict) or len(found) > MAX_COLUMNS:
        raise _malformed("a row is not an object")
    return {name: _term(value) for name, value in found.items()}


def _term(found: Any) -> Term:
    value, kind = (found.get("value"), found.get("type")) if isinstance(found, dict) else (None, None)
    if not isinstance(value, str):
        raise _malformed("a value is not a text")
    if kind == "uri":
        return Iri(value)
    if kind == "bnode":
        return Blank(value)
    if kind not in ("literal", "typed-literal"):
        raise _malformed("a value has no known type")
    language, datatype = found.get("xml:lang", ""), found.get("datatype", "")
    if not isinstance(language, str) or not isinstance(datatype, str):
        raise _malformed("a language or datatype is not a text")
    return Literal(clean(value), language.lower() if _LANGUAGE.fullmatch(language) else "", datatype)


def _malformed(why: str) -> GraphError:
    return GraphError("malformed", f"the answer is not a SPARQL result: {why}")
