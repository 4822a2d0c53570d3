"""What a user keeps of a chat beside its messages: a title, that it is out of the way, what is not recalled, from which
knowledge bases it is answered. Pure."""

import unicodedata
from typing import Annotated

import attrs

from klaw.convert import OMIT
from klaw.domain.knowledge import MAX_BASES, BaseId
from klaw.domain.text import has_forbidden, normalized
from klaw.errors import InvalidValue

MAX_TITLE = 100
"""Characters."""
MAX_UNRECALLED = 20_000
"""Messages of a chat."""
_JOINERS = frozenset("\u200c\u200d")
"""Persian and emoji are written with them; of all that does not print they alone may stand there."""


def chat_title(text: str) -> str:
    """A title as it is kept: NFC, in one line. Empty: there is none.

    Raises:
        InvalidValue: it is too long, or has a character that hides something.
    """
    if len(text) > 8 * MAX_TITLE:  # before anything is done with it: it comes from anybody
        raise InvalidValue(f"has at most {MAX_TITLE} characters")
    kept = normalized("NFC", " ".join(text.split()))
    if len(kept) > MAX_TITLE:
        raise InvalidValue(f"has at most {MAX_TITLE} characters")
    if has_forbidden(kept) or any(not each.isprintable() and each not in _JOINERS for each in kept):
        raise InvalidValue("has no control characters and nothing else that does not print")
    if kept and all(unicodedata.category(each)[0] in "MCZ" for each in kept):
        raise InvalidValue("has something to read in it")
    return kept


@attrs.frozen(kw_only=True)
class ChatMark:
    """See the module."""

    title: Annotated[str, OMIT] = ""
    """Beside the chat's name, which is in paths and frames and never changes; empty: there is none."""
    archived: Annotated[int, OMIT] = 0
    """The chat's last ``seq`` when it was put away; what is said after that brings it back. 0: it was not."""
    unrecalled: Annotated[tuple[int, ...], OMIT] = ()
    """Numbers of messages that recall never brings back by itself."""
    bases: Annotated[tuple[BaseId, ...], OMIT] = ()
    """Knowledge bases that it is answered from."""


def check(mark: ChatMark) -> None:
    """Raises InvalidValue when a value breaks its rule."""
    if len(mark.title) > MAX_TITLE:
        raise InvalidValue(f"title: has at most {MAX_TITLE} characters")
    if mark.archived < 0:
        raise InvalidValue("archived: is the number of a message, or 0")
    if len(mark.unrecalled) > MAX_UNRECALLED:
        raise InvalidValue(f"unrecalled: holds at most {MAX_UNRECALLED} messages of a chat")
    if len(mark.bases) > MAX_BASES:
        raise InvalidValue(f"bases: a chat is answered from at most {MAX_BASES} of them")
