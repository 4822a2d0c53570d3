"""A ``result.json`` of Telegram that is no JSON any more: what stands before and behind the damage.

A program that writes JSON by hand now and then forgets a quotation mark or an escape. Where a chat and a message begin
is still seen: within a text the quotation marks of such a place would be escaped.
"""

import re
from collections.abc import Iterator
from typing import IO, Any

import attrs

from klaw.imports.events import Broken
from klaw.imports.json_stream import DECODER, decoded, pieces

_MESSAGE = re.compile(rb'\{\s*"id"\s*:\s*(-?\d{1,20})\s*,\s*"type"\s*:\s*"')
HEAD_CHARS = 8_192
"""In which the head of a chat stands."""
_OWN = re.compile(r'"personal_information"\s*:\s*\{[^{}]{0,2000}?"user_id"\s*:\s*(\d{1,20})')
_HEAD = re.compile(r'\{((?:[^{}"\[\]]|"(?:[^"\\]|\\.)*+"){0,200})"messages"\s*:\s*\[\s*\Z', re.DOTALL)
_MEMBER = re.compile(r'"(name|type|id)"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(-?\d{1,20}))')
_BAD_ESCAPE = re.compile(r'\\(?:(u[0-9a-fA-F]{4}|[bfnrt"\\/])|.?)', re.DOTALL)


@attrs.frozen
class ChatHead:
    """A chat begins: its ``name``, ``type`` and ``id``, as far as they can be read."""

    values: dict[str, Any]


@attrs.frozen
class AccountId:
    """Whose account it is."""

    id: int


@attrs.frozen
class DamagedMessage:
    """A message that cannot be read."""

    id: str


def salvaged(stream: IO[bytes]) -> Iterator[ChatHead | AccountId | DamagedMessage | dict[str, Any]]:
    """What can be read, in order: messages as they are.

    Raises:
        Broken: it is cut off, or reading it raised that.
    """
    for number, (piece, is_last) in enumerate(pieces(stream, _MESSAGE)):
        between = piece.decode(errors="replace")
        is_cut = is_last and not between.rstrip().endswith("}")
        begin = _MESSAGE.match(piece) if number else None
        if begin is not None:
            value, between = decoded(piece)
            if value is not None:
                yield value
            elif not is_cut:
                yield DamagedMessage(begin[1].decode())
        if is_cut:
            raise Broken("is cut off: nothing behind that was read")
        if (own := _OWN.search(between)) is not None:
            yield AccountId(int(own[1]))
        if (head := _HEAD.search(between, max(0, len(between) - HEAD_CHARS))) is not None:
            yield ChatHead({found[1]: _value(found) for found in _MEMBER.finditer(head[1])})


def _value(member: re.Match[str]) -> Any:
    if member[3]:
        return int(member[3])
    return DECODER.decode(_BAD_ESCAPE.sub(lambda found: found[0] if found[1] else "\ufffd", f'"{member[2]}"'))
