"""Coming into a chat: its last messages, then everything after them; and the words to leave it."""

from klaw.client.client import Client
from klaw.client.errors import ConnectionLost, RequestRefused
from klaw.client.events import Entry, entry_of
from klaw.domain.message import Kind
from klaw.wire.frames import HISTORY_LIMIT, GetHistory, History

ATTEMPTS = 5
QUIT = frozenset({"/quit", "/exit"})
"""What is typed to leave; never sent."""
_AMPLE = 3
"""So many times the messages wanted are fetched, for those that are not shown."""


async def open_chat(client: Client, chat: str, limit: int) -> list[Entry]:
    """Watch a chat from its end, and return its last messages, oldest first; none for a new chat. Commands and what
    they answered are left out: they were of that moment.

    Args:
        client: connected.
        chat: the chat's name.
        limit: messages to return, at most ``HISTORY_LIMIT``.

    Raises:
        RequestRefused: the server will not show the chat.
        ServerRefused, ServerUnreachable, ConnectionLost: there is no connection (any more).
    """
    for attempt in range(ATTEMPTS):
        try:
            page = await _last(client, chat, min(max(limit, 1) * _AMPLE, HISTORY_LIMIT))
            await client.watch(chat, page[-1].seq if page else 0)
        except ConnectionLost:
            if attempt == ATTEMPTS - 1:
                raise
            await client.reconnected()
        else:
            return [entry for entry in page if entry.kind != Kind.COMMAND][-limit:] if limit > 0 else []
    raise AssertionError


async def _last(client: Client, chat: str, limit: int) -> list[Entry]:
    try:
        page = await client.request(GetHistory(chat=chat, limit=limit))
    except RequestRefused as exc:
        if exc.code == "unknown_chat":
            return []
        raise
    assert isinstance(page, History)  # the answer to its request
    return [entry_of(chat, message, replayed=True) for message in page.messages]
