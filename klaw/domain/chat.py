"""What a user keeps of a chat beside its messages: title, archived, what is not recalled, knowledge bases. Pure."""

from typing import Annotated

import attrs

from klaw.convert import OMIT
from klaw.domain.knowledge import MAX_BASES, BaseId
from klaw.domain.notes import Quotes
from klaw.domain.text import title
from klaw.errors import InvalidValue

MAX_TITLE = 100
MAX_UNRECALLED = 20_000
"""Messages of one chat."""


def chat_title(text: str) -> str:
    """A title as it is kept: NFC, one line; empty for none. Raises InvalidValue."""
    return title(text, MAX_TITLE)


@attrs.frozen(kw_only=True)
class ChatMark:
    """What a user keeps of a chat beside its messages."""

    title: Annotated[str, OMIT, Quotes()] = ""
    """Shown beside the chat's name, which is in paths and frames and never changes."""
    archived: Annotated[int, OMIT] = 0
    """The chat's last ``seq`` when it was archived; a later message brings it back. 0: it was not."""
    unrecalled: Annotated[tuple[int, ...], OMIT] = ()
    """Numbers of messages that recall never brings back by itself."""
    bases: Annotated[tuple[BaseId, ...], OMIT] = ()


def check(mark: ChatMark) -> None:
    if len(mark.title) > MAX_TITLE:
        raise InvalidValue(f"title: has at most {MAX_TITLE} characters")
    if mark.archived < 0:
        raise InvalidValue("archived: is the number of a message, or 0")
    if len(mark.unrecalled) > MAX_UNRECALLED:
        raise InvalidValue(f"unrecalled: holds at most {MAX_UNRECALLED} messages of a chat")
    if len(mark.bases) > MAX_BASES:
        raise InvalidValue(f"bases: a chat is answered from at most {MAX_BASES} of them")
