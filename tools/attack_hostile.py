"""The attackers of ``tools/attack.py``: a process of its own, over raw sockets and the ``websockets`` package.

Reads one JSON line (url, tokens, seed), then lines ``{"do": "frames" | "floods" | "oracles", "seconds": N}``;
answers each with a line of counts and problems. A problem is an answer that nobody should get: another user's text, or
one that depends on it.
"""

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.hostile import hostile_texts
from tools.attack_honest import ANSWER_S, CANARY, GONE, _connection

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
BATCH = 60
"""Frames between two questions whether all of them were dealt with."""
OWN = "chat 0"
"""Of ``VALUES``: an attacker may have made a chat of this name for itself."""
BEFORE_HELLO, AFTER_HELLO = "127.0.0.2", "127.0.0.3"
"""Where attackers come from."""
TYPES = ("hello", "send", "call", "stop", "upload", "status", "watch", "approve", "message", "", None, 7)
FIELDS = ("id", "chat", "text", "operation", "args", "ref", "turn", "seq", "allow", "version", "token", "chats", "data")
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**53, 2**70, 1e308, -0.0, "", "main", "x" * 65, "../x", "a\0b", "\ud800", [], {}, [[]],
    {"a": 1}, "h0-1", OWN, "t1", "/stop", "ё", "\u202e", 51, "m1", "receipt",
    "chats_messages", {"chat": OWN, "limit": 9},
)  # fmt: skip


def framed(opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    """A frame of a client; its mask is zero, so that the payload stands as it is."""
    head = bytes([(fin << 7) | (rsv << 4) | opcode])
    mask = 0x80 if masked else 0
    if len(payload) < 126:
        head += bytes([mask | len(payload)])
    elif len(payload) < 65_536:
        head += bytes([mask | 126]) + len(payload).to_bytes(2, "big")
    else:
        head += bytes([mask | 127]) + len(payload).to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + payload


class Wire:
    """A WebSocket over a raw socket, as far as an attacker needs it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._marks = 0

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def texts(self) -> AsyncIterator[str]:
        """What the server says, until it closes."""
        while True:
            head = await self._reader.readexactly(2)
            length = head[1] & 127
            if length >= 126:
                length = int.from_bytes(await self._reader.readexactly(2 if length == 126 else 8), "big")
            payload = await self._reader.readexactly(length)
            if head[0] & 15 == TEXT:
                yield payload.decode()
            elif head[0] & 15 == CLOSE:
                raise EOFError

    async def dealt_with(self, leaked: Callable[[str], None]) -> None:
        """Return when the server has dealt with all that was said before. Raises EOFError when it closes instead."""
        self._marks += 1
        mark = f"mark {self._marks}"
        nothing = {"type": "approve", "id": "no such question", "allow": False, "ref": mark}  # answered at once
        await self.say(framed(TEXT, json.dumps(nothing).encode()))
        async with asyncio.timeout(ANSWER_S):
            async for text in self.texts():
                leaked(text)
                if mark in text:
                    return


@attrs.define
class Hostile:
    """All attackers."""

    url: str
    tokens: list[str]
    chance: random.Random
    counts: Counter[str] = attrs.Factory(Counter)
    problems: list[str] = attrs.Factory(list)
    texts: list[str] = attrs.Factory(lambda: [text for _, text in hostile_texts(20_000, ends=("", "龍"))])

    def leaked(self, text: str) -> None:
        if CANARY in text:
            self.problems.append("an attacker was told another user's message")

    # -- frames ----------------------------------------------------------------------------------------------------

    async def frames(self, until: float) -> None:
        await asyncio.gather(*(self._frames_of(token, until) for token in self.tokens))

    async def _frames_of(self, token: str, until: float) -> None:
        while time.monotonic() < until:
            with suppress(*GONE):
                async with self.wire(token) as wire:
                    while time.monotonic() < until and self.chance.random() > 0.01:
                        await wire.say(b"".join(framed(TEXT, self._frame()) for _ in range(BATCH)))
                        await wire.dealt_with(self.leaked)
                        self.counts["frames"] += BATCH
                    self.counts["frames"] += 1
                    await wire.say(self._violation())
                    await wire.dealt_with(self.leaked)
            await asyncio.sleep(0.01)

    def _frame(self) -> bytes:
        """One frame of text: well-formed now and then, and broken in every way that JSON and the protocol know."""
        chance = self.chance
        tree: dict[Any, Any] = {"type": chance.choice(TYPES)}
        for name in chance.sample(FIELDS, chance.randint(0, 5)):
            tree[name] = chance.choice(VALUES)
        kind = chance.random()
        if kind < 0.01:
            tree = {
                "type": "send",
                "id": f"m{chance.getrandbits(40)}",
                "chat": "own",
                "text": "x " * chance.randint(1, 40),
            }
        elif kind < 0.02:
            tree[chance.choice(FIELDS)] = chance.choice(self.texts)
        elif kind < 0.03:
            tree[chance.choice(self.texts)[:5_000]] = 1
        text = json.dumps(tree)
        if kind > 0.98:
            return chance.choice(
                ("[" * 30_000, '{"a":' * 10_000, "[" + "1," * 20_000, '"' * 9_999, "1" * 60_000)
            ).encode()
        if kind > 0.9:
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(("", text, "\\", '"', "{", "\\u12", "NaN", "\x07")) + text[at + 1 :]
        elif kind > 0.85:
            text = text[: chance.randrange(len(text))]
        return text.encode()[:60_000]

    def _violation(self) -> bytes:
        """Bytes that no client may send; the connection is lost by them."""
        chance, bomb = self.chance, b"\x78\x9c" + b"\xec\xc1\x01\x01" * 500
        half = framed(TEXT, b'{"type":"send","text":"\xd0', fin=False)
        return chance.choice(
            (
                lambda: framed(TEXT, b"\xff\xfe\xfd"),
                lambda: framed(TEXT, b'{"type":"call","operation":"health","ref":"\xed\xa0\x80"}'),
                lambda: framed(BINARY, b"x" * 100),
                lambda: framed(chance.randint(3, 7), b"x"),
                lambda: framed(chance.randint(11, 15), b"x"),
                lambda: framed(TEXT, bomb, rsv=4),
                lambda: framed(TEXT, b"{}", rsv=chance.randint(1, 7)),
                lambda: framed(TEXT, b"{}", masked=False),
                lambda: framed(PING, b"x" * 126),
                lambda: framed(PING, b"x", fin=False),
                lambda: framed(CLOSE, b"\x00"),
                lambda: framed(CLOSE, (5).to_bytes(2, "big")),
                lambda: framed(0, b"x"),
                lambda: half + framed(TEXT, b"{}"),
                lambda: half + framed(0, b"\x90" * 70_000),
                lambda: bytes([0x81, 0xFF]) + (2**63 - 1).to_bytes(8, "big") + bytes(4),
                lambda: framed(TEXT, b"x" * 200_000),
                lambda: chance.randbytes(chance.randint(1, 5_000)),
            )
        )()

    # -- floods ----------------------------------------------------------------------------------------------------

    async def floods(self, until: float) -> None:
        kinds: list[Callable[[float], Awaitable[None]]] = [
            self._silent, self._connections, self._slow_senders, self._slow_readers, self._unread, self._pings,
            self._pieces,
        ]  # fmt: skip
        for left, kind in zip(range(len(kinds), 0, -1), kinds, strict=True):
            now = time.monotonic()
            await kind(now + max(0.0, until - now) / left)

    async def _silent(self, until: float) -> None:
        """Sockets that say nothing, or only a head, or only a handshake."""
        streams: list[asyncio.StreamWriter] = []
        try:
            while time.monotonic() < until:
                with suppress(*GONE):
                    _, writer = await self._dial(BEFORE_HELLO)
                    streams.append(writer)
                    writer.write(self.chance.choice((b"", b"GET /ws HT", self._upgrade(None))))
                    self.counts["silent sockets"] += 1
                if len(streams) > 300:
                    streams.pop(0).close()
                await asyncio.sleep(0.002)
        finally:
            for writer in streams:
                writer.close()

    async def _connections(self, until: float) -> None:
        async def again_and_again() -> None:
            while time.monotonic() < until:
                with suppress(*GONE):
                    _, writer = await self._dial(BEFORE_HELLO)
                    writer.write(self._upgrade("wrong") if self.chance.random() < 0.5 else self._upgrade(None))
                    writer.close()
                    self.counts["connections"] += 1
                await asyncio.sleep(0.001)

        await asyncio.gather(*(again_and_again() for _ in range(10)))

    async def _slow_senders(self, until: float) -> None:
        async def slow(data: bytes) -> None:
            with suppress(*GONE):
                _, writer = await self._dial(BEFORE_HELLO)
                for at in range(len(data)):
                    if time.monotonic() > until:
                        break
                    writer.write(data[at : at + 1])
                    await writer.drain()
                    await asyncio.sleep(0.05)
                writer.close()

        hello = framed(TEXT, json.dumps({"type": "hello", "version": 2, "token": "klaw_x" * 100}).encode())
        await asyncio.gather(*(slow(self._upgrade(None) + hello) for _ in range(60)))

    async def _slow_readers(self, until: float) -> None:
        """Ask for much and read nothing."""
        history = framed(TEXT, b'{"type":"call","operation":"chats_messages","args":{"chat":"own","limit":200}}')
        await self._logged_in_flood(history, until, pause_s=0.01, count=4)

    async def _unread(self, until: float) -> None:
        await self._logged_in_flood(
            framed(TEXT, b'{"type":"call","operation":"health"}') * 20, until, pause_s=0.0, count=2
        )

    async def _pings(self, until: float) -> None:
        await self._logged_in_flood(framed(PING, b"") * 300, until, pause_s=0.0, count=2)

    async def _pieces(self, until: float) -> None:
        """Messages of endless empty pieces."""
        await self._logged_in_flood(
            framed(0, b"", fin=False) * 300, until, pause_s=0.0, count=2, first=framed(TEXT, b"", fin=False)
        )

    async def _logged_in_flood(
        self, data: bytes, until: float, *, pause_s: float, count: int, first: bytes = b""
    ) -> None:
        async def flood(token: str) -> None:
            while time.monotonic() < until:
                with suppress(*GONE):
                    async with self.wire(token) as wire:
                        wire.writer.write(first)
                        while time.monotonic() < until and not wire.writer.is_closing():
                            async with asyncio.timeout(1):
                                await wire.say(data)
                            self.counts["flood bytes"] += len(data)
                            await asyncio.sleep(pause_s)
                await asyncio.sleep(0.02)

        await asyncio.gather(*(flood(token) for token in self.tokens[:count]))

    # -- oracles ---------------------------------------------------------------------------------------------------

    async def oracles(self, until: float) -> None:
        """Ask for what others said, and compare answers that may depend on it."""
        del until
        async with asyncio.timeout(4 * ANSWER_S), _connection(self.url, self.tokens[0]) as ws:

            async def ask(frame: dict[str, Any], *kinds: str) -> dict[str, Any]:
                await ws.send(json.dumps(frame))
                self.counts["questions"] += 1
                while True:
                    text = await ws.recv()
                    self.leaked(str(text))
                    found: dict[str, Any] = json.loads(text)
                    if found["type"] in kinds:
                        return found

            for name in ("chats_messages", "receipt", "chats_stop", "chats_status", "chats_export"):
                question = {"type": "call", "operation": name, "args": {"chat": "chat 1"}}
                asked = await ask(question, "error", "result")
                if asked["type"] != "error" or not asked["code"].startswith("unknown_"):
                    self.problems.append(f"{name} of another user's chat: {asked['type']}")
            listed = await ask({"type": "call", "operation": "chats_list"}, "result")
            if any(each["name"].startswith("chat ") and each["name"] != OWN for each in listed["result"]["chats"]):
                self.problems.append("the list of chats has another user's")
            heard = [await self._forgets(ask, number) for number in ("4815", "7263")]
            if heard[0] != heard[1]:
                self.problems.append(f"/forget answers otherwise for a number that another user has said: {heard}")

    async def _forgets(self, ask: Callable[..., Awaitable[dict[str, Any]]], number: str) -> list[str]:
        """What is answered when a number is said and forgotten."""
        said = []
        for text in (f"my PIN is {number}", f"/forget {number}", "/forget last 1", "/forget yes"):
            mine = f"o{self.chance.getrandbits(40)}"
            acked = await ask({"type": "send", "id": mine, "chat": "guess", "text": text}, "ack", "error")
            if acked["type"] == "ack":
                role = "system" if text.startswith("/") else "assistant"
                reply = await ask({"type": "call", "operation": "chats_list"}, "message", "result")
                while not _answers(reply, acked, role):
                    reply = await ask({"type": "call", "operation": "chats_list"}, "message", "result")
                    await asyncio.sleep(0.02)
            if acked["type"] == "ack" and text.startswith("/"):
                said.append(re.sub(r"\d+", "N", reply["content"]))
        return said

    # -- connections -----------------------------------------------------------------------------------------------

    def _upgrade(self, token: str | None) -> bytes:
        parts = urlsplit(self.url)
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        return (
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{authorization}\r\n"
        ).encode()

    async def _dial(self, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.url)
        async with asyncio.timeout(ANSWER_S):
            return await asyncio.open_connection(parts.hostname, parts.port, local_addr=(source, 0))

    @asynccontextmanager
    async def wire(self, token: str) -> AsyncIterator[Wire]:
        """A connection that has been welcomed. Raises EOFError when it is not."""
        reader, writer = await self._dial(AFTER_HELLO)
        try:
            writer.write(self._upgrade(token))
            async with asyncio.timeout(ANSWER_S):
                if b" 101 " not in await reader.readuntil(b"\r\n\r\n"):
                    raise EOFError
            wire = Wire(reader, writer)
            await wire.say(framed(TEXT, b'{"type":"hello","version":2,"client":"hostile"}'))
            yield wire
        finally:
            writer.transport.abort()


def _answers(frame: dict[str, Any], acked: dict[str, Any], role: str) -> bool:
    """Whether a frame is the answer to what was sent: Klaw's to a command, the model's to anything else."""
    return frame["type"] == "message" and frame["role"] == role and frame["seq"] > acked["seq"]


async def main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    given = json.loads(await reader.readline())
    hostile = Hostile(given["url"], given["tokens"], random.Random(f"{given['seed']} hostile"))
    while line := await reader.readline():
        order = json.loads(line)
        hostile.counts.clear()
        hostile.problems.clear()
        try:
            await getattr(hostile, order["do"])(time.monotonic() + order["seconds"])
        except GONE as error:
            hostile.problems.append(f"{order['do']}: {type(error).__name__}")
        print(json.dumps({"counts": hostile.counts, "problems": hostile.problems}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
