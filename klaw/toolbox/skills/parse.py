"""SKILL.md: a head in YAML between two lines of three dashes, then Markdown. Pure.

The format is the one of Agent Skills and OpenClaw. Skills in the wild often have a description with a colon in it,
which is no YAML; their ``name: …`` and ``description: …`` lines are read as plain text then.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import attrs
import yaml

from klaw.domain.text import normalized
from klaw.errors import KlawError

MAX_HEAD_CHARS = 16_000
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024

_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_LINE = re.compile(r"^([A-Za-z][A-Za-z_-]*):[ \t]*(.*)$")


class SkillBroken(KlawError):
    """A SKILL.md cannot be used. The text says why, for the person who wrote it and for the model."""


@attrs.frozen(kw_only=True)
class Head:
    """What a SKILL.md says about itself."""

    name: str
    description: str
    for_model: bool
    """False when the skill asks not to be offered to the model (``disable-model-invocation``)."""
    body: str


def parse(text: str, folder: str) -> Head:
    """Read a SKILL.md.

    Args:
        text: of the file.
        folder: name of its folder, which is the skill's name when it gives none.

    Raises:
        SkillBroken: no head, no description, or a name that is none.
    """
    head, body = _split(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    values = _values(head)
    description = " ".join(_text(values, "description").split())
    if not description:
        raise SkillBroken("the head has no description")
    if len(description) > MAX_DESCRIPTION_CHARS:
        description = description[: MAX_DESCRIPTION_CHARS - 1].rstrip() + "…"
    return Head(
        name=_name(_text(values, "name") or folder),
        description=description,
        for_model=str(values.get("disable-model-invocation", "")).lower() not in ("true", "yes", "on"),
        body=body.strip("\n"),
    )


def _split(text: str) -> tuple[str, str]:
    opening = _FENCE.match(text)
    closing = _FENCE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        raise SkillBroken("it does not begin with a head between two lines of ---")
    if closing.start() - opening.end() > MAX_HEAD_CHARS:
        raise SkillBroken(f"its head is longer than {MAX_HEAD_CHARS} characters")
    return text[opening.end() : closing.start()], text[closing.end() :]


def _values(head: str) -> Mapping[Any, Any]:
    try:
        values = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = {found[1]: found[2].strip().strip("\"'") for line in head.splitlines() if (found := _LINE.match(line))}
    if not isinstance(values, dict):
        raise SkillBroken("its head is not a list of names and values")
    return values


def _text(values: Mapping[Any, Any], key: str) -> str:
    value = values.get(key)
    if value is None or isinstance(value, (dict, list)):
        return ""
    return str(value).strip()


def _name(text: str) -> str:
    name = normalized("NFC", text)
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise SkillBroken(f"its name has {len(name)} characters, 1 to {MAX_NAME_CHARS} are possible")
    if not name[0].isalnum() or not all(
        character in "_-. " or unicodedata.category(character)[0] in "LNM" for character in name
    ):
        raise SkillBroken("its name has other characters than letters, digits, '_', '-', '.' and spaces")
    return name
