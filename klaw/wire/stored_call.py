"""A tool call as a stored message has it. Pure."""

import attrs

from klaw.domain.message import Message, MessageKind
from klaw.domain.tool_calls import in_words


@attrs.frozen(kw_only=True)
class StoredCall:
    id: str
    name: str
    arguments: str | None = None
    """The arguments as the model wrote them; None in a result."""
    failed: bool | None = None
    title: str | None = None
    """What was done, in words; None in a result, and for tools that are not Klaw's own."""
    about: str | None = None
    """The argument that says most, in one line."""


def calls_of(message: Message) -> list[StoredCall]:
    metadata = message.metadata
    if message.type is MessageKind.TOOL_CALL:
        calls = [(each["id"], each["name"], str(each["arguments"])) for each in metadata.get("calls", ())]
        return [_call(*each) for each in calls]
    if message.type is MessageKind.TOOL_RESULT:
        call, name, failed = (metadata.get(each) for each in ("call", "name", "error"))
        return [StoredCall(id=str(call), name=str(name), failed=bool(failed))]
    return []


def _call(call: str, name: str, arguments: str) -> StoredCall:
    title, about = in_words(name, arguments)
    return StoredCall(id=call, name=name, arguments=arguments, title=title, about=about)
