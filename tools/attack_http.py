"""Send mutated HTTP requests to a real server over many connections, while another client chats.

    python tools/attack_http.py [--requests 100000] [--connections 48] [--seed N]

Wrong heads, lengths, chunks, upgrades (h2c, WebSocket), UTF-8 and JSON, huge and endless ones, pipelined, cut off, and
answers that nobody reads. It fails (exit code 1) when the server ends, answers 500, logs an error or loses a message
that it acknowledged, or when its memory still grows in the second half. Prints one JSON object.
"""

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.api.rest import doors
from klaw.gateway.tokens import add_token, tokens_file
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import UNLIMITED, Server, served, write_home
from tests.support.talking import talking

GROWTH = 1.05
"""So much more than after half of the requests may the memory be in the end."""
ENOUGH = 20_000
"""With fewer requests memory says nothing."""
ALONE_S = 10.0
"""So long the other client chats before the attack: what it waits for then is not due to it."""
ANSWER_S = 1.0
"""So long an attacker waits for what a request brings."""
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
DEEP = b'{"text":' * 5_000 + b"1" + b"}" * 5_000
VALUES = (b"", b"-1", b"0", b"99999999999999999999", b"\xff\xfe", b"a\x00b", b"x" * 5_000, b"x" * 20_000, b"\xd0\xb9")
HEADERS = (
    b"Content-Length", b"Transfer-Encoding", b"Upgrade", b"Connection", b"Expect", b"Host", b"Origin", b"Cookie",
    b"Authorization", b"HTTP2-Settings", b"Range", b"Idempotency-Key", b"X-Klaw-Chat", b"Accept", b"Sec-WebSocket-Key",
    b"X-Forwarded-For", b"Content-Type", b"If-None-Match", b"Accept-Encoding",
)  # fmt: skip
WORDS = (
    b"chunked", b"gzip, chunked", b"h2c", b"websocket", b"Upgrade, HTTP2-Settings", b"100-continue", b"close", b"*",
    b"keep-alive", b"AAMAAABkAAQAoAAAAAIAAAAA", b"bytes=0-", b"klaw_session=x", b"text/event-stream", b"evil.example",
)  # fmt: skip
BODIES = (
    b"{}", b"[]", b"", b'{"text":"hi","wait":false}', b'{"text":"\xff"}', b'{"text":NaN}', b'{"text":"\\ud800"}', DEEP,
    b"\x00" * 100, b'{"messages":[{"role":"user","content":[{"type":"text","text":1}]}]}', b'{"text":1e999}',
    b'{"input":[' + b'"x",' * 2_000 + b'"x"]}', b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
)  # fmt: skip
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATHS = (
    "/", "/ws", "/healthz", "/mcp", "/v1/chat/completions", "/v1/embeddings", "/api/chat", "/api/show", "/api/v1/login",
    "/api/v1/chats/main/messages", "/api/v1/chats/%ff/messages", "/static/../../config/tokens.json", "/static/app.js",
    "/api/v1/files", "/api/openapi.json", "/metrics", "*", "http://evil.example/", "//", "/%00",
)  # fmt: skip


@attrs.define
class Attack:
    """One run."""

    server: Server
    token: bytes
    wanted: int
    chance: random.Random
    sent: int = 0
    answers: Counter[str] = attrs.Factory(Counter)
    waits_ms: list[float] = attrs.Factory(list)
    memory_mb: list[float] = attrs.Factory(list)
    """At every hundredth of the requests."""

    def request(self) -> bytes:
        """A request with a few mistakes."""
        pick = self.chance.choice
        door = pick(DOORS)
        method, path = (door.method, door.path) if self.chance.random() < 0.5 else (pick(METHODS), pick(PATHS))
        body = pick(BODIES) if method != "GET" else b""
        headers = [(b"Host", b"127.0.0.1"), (b"Content-Length", str(len(body)).encode())]
        if self.chance.random() < 0.7:
            headers.append((b"Authorization", b"Bearer " + self.token))
        chunked = self.chance.random() < 0.1
        if chunked:
            headers[1] = (b"Transfer-Encoding", b"chunked")
            size = pick((b"%x" % len(body), b"ffffffffffffffff", b"-1", b"zz", b""))
            body = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
        for _ in range(self.chance.randrange(3)):
            headers.append((pick(HEADERS), pick(VALUES + WORDS)))
        if self.chance.random() < 0.02:
            headers += [(b"X-%d" % number, b"v") for number in range(500)]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        query = pick(("", "?limit=many", "?user=other", "?" + "a" * 3_000, "?limit=1&limit=2", "?text=%ff"))
        made = f"{method} {path}{query} HTTP/1.1\r\n".encode() + head + b"\r\n" + body
        roll = self.chance.random()
        if roll < 0.1:  # cut off
            made = made[: self.chance.randrange(1, len(made))]
        elif roll < 0.2:  # bytes turned round
            broken = bytearray(made)
            for _ in range(self.chance.randrange(1, 6)):
                broken[self.chance.randrange(min(len(broken), 400))] = self.chance.randrange(256)
            made = bytes(broken)
        return PREFACE + made if self.chance.random() < 0.02 else made

    async def attack(self) -> None:
        """Connections one after the other, each with some requests at once."""
        port = self.server.config["gateway"]["port"]
        while self.sent < self.wanted:
            burst = [self.request() for _ in range(self.chance.choice((1, 1, 2, 12)))]
            self.sent += len(burst)
            try:
                async with await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.2") as stream:
                    with trio.move_on_after(ANSWER_S):
                        await stream.send_all(b"".join(burst))
                        if self.chance.random() < 0.9:  # the others read nothing
                            await self._read(stream, len(burst))
            except (OSError, trio.BrokenResourceError):
                self.answers["broken off"] += 1

    async def _read(self, stream: trio.SocketStream, answers: int) -> None:
        rest = b""
        while answers > 0 and (data := await stream.receive_some(65_536)):
            found = list(STATUS.finditer(rest + data))
            answers -= len(found)
            self.answers.update(each.group(1).decode() for each in found)
            rest = (rest + data)[found[-1].end() if found else 0 :][-12:]

    async def chat(self, secret: str) -> None:
        """An honest client: how long its messages wait for their acknowledgement."""
        async with talking(self.server.url, token=secret) as talk:
            while True:
                began = time.perf_counter()
                await talk.send("hello")
                self.waits_ms.append((time.perf_counter() - began) * 1000)
                await trio.sleep(0.1)

    def memory_at(self, percent: int) -> float:
        """After so much of the requests: the median of what was seen around then."""
        return statistics.median(self.memory_mb[max(0, percent - 5) : percent + 5])

    async def watch(self) -> None:
        """Look at the memory."""
        assert self.server.process is not None
        status = Path(f"/proc/{self.server.process.pid}/status")
        while True:
            while self.sent >= len(self.memory_mb) * self.wanted / 100:
                line = next(each for each in status.read_text().splitlines() if each.startswith("VmRSS"))  # noqa: ASYNC240
                self.memory_mb.append(int(line.split()[1]) / 1024)
            await trio.sleep(0.05)


def waited(waits_ms: list[float]) -> dict[str, float]:
    """How long acknowledgements were waited for."""
    longest = sorted(waits_ms)
    return {
        "count": len(longest),
        "median": round(statistics.median(longest), 1),
        "p99": round(longest[int(len(longest) * 0.99)], 1),
        "max": round(longest[-1], 1),
    }


DOORS = doors()
METHODS = ("GET", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "PUT", "TRACE", "CONNECT", "BREW")


async def run(options: argparse.Namespace, home: Path) -> int:
    gateway = {
        "connectsPerSecond": 10_000,
        "maxPerAddress": 500,
        "maxPending": 400,
        "maxPerUser": 400,
        "maxConnections": 1000,
        "http": {"requestsPerSecond": 10_000},
    }
    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply("ok")
        write_home(home, llm=llm.url, gateway={**UNLIMITED, **gateway}, logging={"level": "warning"})
        tokens = tokens_file(home / "config")
        honest, hostile = (add_token(tokens, user, "2026-01-01T00:00:00Z")[1] for user in ("honest", "hostile"))
        async with served(home) as server:
            found = Attack(server, hostile.encode(), options.requests, random.Random(options.seed))
            began = time.monotonic()
            async with trio.open_nursery() as around:
                around.start_soon(found.chat, honest)
                await trio.sleep(ALONE_S)
                alone, found.waits_ms = found.waits_ms, []
                around.start_soon(found.watch)
                async with trio.open_nursery() as attackers:
                    for _ in range(options.connections):
                        attackers.start_soon(found.attack)
                await trio.sleep(1)
                around.cancel_scope.cancel(reason="all was sent")
            alive, errors = server.running, [each for each in server.events() if each["level"] == "error"]
    grew = options.requests >= ENOUGH and found.memory_at(100) > found.memory_at(50) * GROWTH
    problems = Counter(" ".join(str(each.get(name, "")) for name in ("event", "error", "where")) for each in errors)
    problems.update({"500": found.answers["500"], "ended": not alive, "grew": grew})
    told = {
        "seed": options.seed,
        "seconds": round(time.monotonic() - began, 1),
        "requests": found.sent,
        "answers": dict(sorted(found.answers.items())),
        "memory_mb": {
            "begin": round(found.memory_mb[0]),
            "quarter": round(found.memory_at(25)),
            "half": round(found.memory_at(50)),
            "end": round(found.memory_at(100)),
        },
        "acks_ms": {"alone": waited(alone), "attacked": waited(found.waits_ms)},
        "problems": {name: count for name, count in problems.items() if count},
    }
    print(json.dumps(told, indent=1))
    return 1 if told["problems"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Send mutated HTTP requests to a real server while others chat.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klaw-attack-") as home:
        return trio.run(run, options, Path(home))


if __name__ == "__main__":
    sys.exit(main())
