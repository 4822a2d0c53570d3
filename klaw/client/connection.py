"""A client of Klaw that outlives connections. What a program may rely on:

- ``send`` returns when the message is durable. If the connection breaks before, it is sent again with the same id.
- ``next_event`` gives each message of the watched chats once, in the order of ``seq``, over any number of reconnects.
- Only a server that refuses the client, or that cannot be reached for longer than allowed, ends it.
"""

import math
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.clock import NewId, new_id
from klaw.client.client import Client
from klaw.client.link import CLOSE_S, run_link
from klaw.client.streams import MESSAGES, messages_of
from klaw.domain.message import MOST_ON_PAGE, MessageKind
from klaw.errors import ClientClosed, ConnectionLost, RequestRefused, ServerRefused, ServerUnreachable
from klaw.wire.frames import MessageFrame

BACKOFF = Backoff(0.2, 15.0)

log = structlog.get_logger("klaw.client")


@asynccontextmanager
async def connect(
    url: str,
    *,
    token: str | None = None,
    chats: Mapping[str, int] | None = None,
    name: str = "klaw-client",
    first_s: float = 0.0,
    again_s: float = math.inf,
    backoff: Backoff = BACKOFF,
    ids: NewId = new_id,
) -> AsyncIterator[Client]:
    """Connect to a server, and stay connected until the block is left.

    Args:
        url: ``ws://`` or ``wss://``.
        chats: chats to watch, with the seq of the last message seen (0: from the beginning).
        name: this program and its version, for the server's log.
        first_s: how long to try for the first connection; 0: one attempt.
        again_s: how long to try to get a lost connection back.
        backoff: the waits between attempts, each taken between half of itself and all of it.

    Raises:
        InvalidName: of a chat.
        ValueError: the URL is not one of a WebSocket.
        ServerUnreachable, ServerRefused: there was no first connection.

    Cancellation: cuts the connection. Leaving the block closes it politely, within ``CLOSE_S`` seconds.
    """
    check_url(url)
    client = Client(chats or {}, ids)
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stay_connected, client, url, token, name, (first_s, again_s), backoff)
        try:
            await client.ready.wait()
            yield client
        except Exception as exc:  # noqa: BLE001  raised again below: the nursery would wrap it in a group
            raised = exc
        client.close()
        with trio.move_on_after(CLOSE_S * 1.5):
            await client.ended.wait()
        nursery.cancel_scope.cancel(reason="the client was closed")
    if raised is not None:
        raise raised


async def _stay_connected(
    client: Client, url: str, token: str | None, name: str, patience_s: tuple[float, float], backoff: Backoff
) -> None:
    """Connect again and again, until the owner closes the client, or trying has become pointless."""
    error: Exception = ClientClosed("the client was closed")
    down_since, attempt = trio.current_time(), 0
    try:
        while True:
            loss = await run_link(url, client.hello(name, token), client)
            was_up = client.lost(loss)
            if client.is_closing:
                return
            if loss.fatal:
                error = ServerRefused(loss.code, loss.text)
                return
            if was_up:
                down_since, attempt = trio.current_time(), 0
            patience = patience_s[1] if client.welcome else patience_s[0]
            if trio.current_time() - down_since >= patience:
                error = ServerUnreachable(loss.text)
                return
            log.info("connection_lost", code=loss.code, attempt=attempt)
            jitter = 0.5 + random.random() / 2  # noqa: S311  no secret
            with trio.move_on_after(backoff.pause_s(attempt + 1) * jitter):
                await client.wait_closing()
                return
            attempt += 1
    finally:
        client.end(error)


def check_url(url: str) -> None:
    """Raises ValueError unless it looks like the address of a server."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.port == 0:
        raise ValueError("the address of a server looks like ws://host:port/ws")


ATTEMPTS = 5
QUIT = frozenset({"/quit", "/exit"})
"""Typed to leave; never sent."""
_AMPLE = 3
"""Messages fetched for each one wanted, since some are not shown."""


async def open_chat(client: Client, chat: str, limit: int) -> list[MessageFrame]:
    """Watch a chat from its end, and return its last messages, oldest first; none for a new chat. Commands and their
    answers are left out: they were of that moment.

    Raises:
        RequestRefused: the server will not show the chat.
        ServerRefused, ServerUnreachable, ConnectionLost: there is no connection (any more).
    """
    for attempt in range(ATTEMPTS):
        try:
            page = await _last(client, chat, min(max(limit, 1) * _AMPLE, MOST_ON_PAGE))
            await client.watch(chat, page[-1].seq if page else 0)
        except ConnectionLost:
            if attempt == ATTEMPTS - 1:
                raise
            await client.reconnected()
        else:
            return [entry for entry in page if entry.kind != MessageKind.COMMAND][-limit:] if limit > 0 else []
    raise AssertionError


async def _last(client: Client, chat: str, limit: int) -> list[MessageFrame]:
    try:
        page = messages_of(await client.call(MESSAGES, chat=chat, limit=limit))
    except RequestRefused as exc:
        if exc.code == "unknown_chat":
            return []
        raise
    return [MessageFrame.on_page(chat, message) for message in page.messages]
