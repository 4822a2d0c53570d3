"""Answers that come piece by piece."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
import trio
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from klaw.actor.failure import error_class, where

KEEP_ALIVE_S = 15.0
"""After so long without an event a stream sends a comment, so that no proxy takes it for dead."""
EVENTS = "text/event-stream; charset=utf-8"

T = TypeVar("T")

log = structlog.get_logger("klaw.api")


class Stream:
    """A response whose body ``play`` writes with ``put``. What it raises before the first piece becomes an ordinary
    answer."""

    def __init__(self, play: "Callable[[Stream], Awaitable[None]]", media_type: str = EVENTS) -> None:
        self.headers = {"content-type": media_type, "x-accel-buffering": "no"}
        """May be added to before the first piece."""
        self.begun = False
        self._play = play
        self._send: Send | None = None
        self._sending = trio.Lock()
        self._sent_at = 0.0

    async def put(self, piece: str | bytes) -> None:
        assert self._send is not None
        data = piece.encode() if isinstance(piece, str) else piece
        async with self._sending:
            self._sent_at = trio.current_time()
            if not self.begun:
                self.begun = True
                raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
                await self._send({"type": "http.response.start", "status": 200, "headers": raw})
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self._send, self._sent_at = send, trio.current_time()
        failure = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_for_disconnect, receive, nursery.cancel_scope)
            if self.headers["content-type"] == EVENTS:
                nursery.start_soon(self._stay_alive)
            try:
                await self._play(self)
            except Exception as error:  # noqa: BLE001  a nursery would wrap it in a group
                failure = error
            nursery.cancel_scope.cancel(reason="all was sent")
        if failure is not None:
            if not self.begun:
                raise failure
            log.error("stream_broken_off", error=error_class(failure), where=where(failure))
        if self.begun:
            await send({"type": "http.response.body", "body": b""})

    async def _stay_alive(self) -> None:
        while True:
            await trio.sleep_until(self._sent_at + KEEP_ALIVE_S)
            if trio.current_time() >= self._sent_at + KEEP_ALIVE_S:
                await self.put(": \n\n")


async def while_connected(receive: Receive, ask: Callable[[], Awaitable[T]]) -> T:
    """What ``ask`` gives; it is cancelled when the client goes away. The request's body must have been read. Raises
    ClientDisconnect, and what ``ask`` raised."""
    found: list[T] = []
    failure = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_wait_for_disconnect, receive, nursery.cancel_scope)
        try:
            found.append(await ask())
        except Exception as error:  # noqa: BLE001  a nursery would wrap it in a group
            failure = error
        nursery.cancel_scope.cancel(reason="it was answered")
    if failure is not None:
        raise failure
    if not found:
        raise ClientDisconnect
    return found[0]


async def _wait_for_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel(reason="the client has gone")
