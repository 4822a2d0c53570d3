"""A WebSocket client for load: wsproto over one trio stream, without tasks of its own, so that it costs little.

What a benchmark measures should be the server, and both share the machine's cores.
"""

import json
from collections import deque
from typing import Any
from urllib.parse import urlsplit

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Ping, Request, TextMessage


class LeanClient:
    """One connection. Made by ``connect``."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._frames: deque[dict[str, Any]] = deque()
        self._partial = ""

    @classmethod
    async def open(cls, url: str) -> "LeanClient":
        """Connect to any WebSocket server, and say nothing."""
        parts = urlsplit(url)
        client = cls(await trio.open_tcp_stream(parts.hostname or "", parts.port or 0))
        await client._stream.send_all(client._ws.send(Request(host=parts.netloc, target=parts.path or "/")))
        while not any(isinstance(event, AcceptConnection) for event in await client._events()):
            pass
        return client

    @classmethod
    async def connect(cls, url: str, chats: dict[str, int] | None = None) -> "LeanClient":
        """Connect to Klaw and say hello."""
        client = await cls.open(url)
        await client.send({"type": "hello", "version": 2, "client": "bench", "chats": chats or {}})
        await client.receive("welcome")
        return client

    async def send(self, frame: dict[str, Any]) -> None:
        await self._stream.send_all(self._ws.send(TextMessage(data=json.dumps(frame))))

    async def receive(self, *types: str) -> dict[str, Any]:
        """The next frame of one of these types; others are skipped. Raises RuntimeError for an error frame."""
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame["type"] in types:
                    return frame
                if frame["type"] == "error":
                    raise RuntimeError(frame)
            for event in await self._events():
                if isinstance(event, TextMessage):
                    self._partial += event.data
                    if event.message_finished:
                        self._frames.append(json.loads(self._partial))
                        self._partial = ""

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _events(self) -> list[Any]:
        data = await self._stream.receive_some(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._ws.receive_data(bytes(data))
        events = list(self._ws.events())
        for event in events:
            if isinstance(event, Ping):
                await self._stream.send_all(self._ws.send(event.response()))
        return events
