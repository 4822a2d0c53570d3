"""What a user keeps of a chat beside its messages: a title, that it is out of the way, what is not recalled, from which
knowledge bases it is answered. Pure."""

from typing import Annotated

import attrs

from klaw.convert import OMIT
from klaw.domain.knowledge import MAX_BASES, BaseId
from klaw.domain.notes import Quotes
from klaw.domain.text import title
from klaw.errors import InvalidValue

MAX_TITLE = 100
"""Characters."""
MAX_UNRECALLED = 20_000
"""Messages of a chat."""


def chat_title(text: str) -> str:
    """A title as it is kept: NFC, in one line. Empty: there is none.

    Raises:
        InvalidValue: it is too long, or has a character that hides something.
    """
    return title(text, MAX_TITLE)


@attrs.frozen(kw_only=True)
class ChatMark:
    """See the module."""

    title: Annotated[str, OMIT, Quotes()] = ""
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
