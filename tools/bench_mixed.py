"""Does HTTP beside the WebSocket slow acknowledgements, and does memory stay flat, with many connections?

    python tools/bench_mixed.py [--minutes 10] [--idle 500] [--chatting 50] [--phase-s 60] [--off-s 20]

Two servers, one with ``gateway.http`` and one without, each with its own idle connections from begin to end; a stub
model in a process of its own. Phases of load alternate between them, ``--minutes`` of it on the one with HTTP:

* with HTTP, half of the idle connections are WebSockets and half are pages (kept alive; they ask for a file or a list
  now and then). Of those that chat 2 of 5 use the WebSocket, the rest POST …/messages (whole or as events) and
  /v1/chat/completions (streamed).
* without, all are WebSockets.

Everybody who chats waits for the answer and then some seconds. What is timed is the acknowledgement of a message that
was sent over a WebSocket.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import h11
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.repository import REPOSITORY
from tests.support.server import UNLIMITED, Server, served, write_home
from tests.support.waiting import HANG_S
from tools.lean_client import LeanClient

ANSWER = " ".join(f"word{number}" for number in range(40))
DELAY_MS = 10
PAUSE_S = (3.0, 6.0)
"""Of somebody who chats, after each answer."""
ASK_S = (15.0, 45.0)
"""Between two requests of an idle page; the server closes what is silent for 60 s."""
PAGE = (
    "/",
    "/static/app.js",
    "/static/style.css",
    "/static/views/chats.js",
    "/api/v1/chats",
    "/api/v1/facts",
    "/api/v1/me",
)
MANY = {**UNLIMITED, "maxConnections": 5_000, "maxPending": 2_000, "maxPerUser": 5_000, "maxPerAddress": 5_000}


class Http:
    """An HTTP connection that is kept alive."""

    def __init__(self, stream: trio.SocketStream, host: str) -> None:
        self._stream, self._host = stream, host
        self._http = h11.Connection(h11.CLIENT)

    @classmethod
    async def connect(cls, url: str) -> "Http":
        parts = urlsplit(url)
        return cls(await trio.open_tcp_stream(parts.hostname or "", parts.port or 0), parts.netloc)

    async def ask(self, method: str, path: str, body: object = None) -> bytes:
        """The whole answer. Raises RuntimeError: it is an error."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = [("Host", self._host), ("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
        events = (h11.Request(method=method, target=path, headers=headers), h11.Data(data=data), h11.EndOfMessage())
        await self._stream.send_all(b"".join(self._http.send(each) or b"" for each in events))
        status, answer = 0, b""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                answer += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._http.start_next_cycle()
                if status != 200:
                    raise RuntimeError(status, answer)
                return answer
            else:
                raise ConnectionError(f"the server closed the connection: {event}")

    async def aclose(self) -> None:
        await self._stream.aclose()


Talk = Callable[[str, str], Awaitable[None]]
"""Sends a text to a chat, and waits for the answer."""


@attrs.define
class Side:
    """A server and what was measured at it."""

    server: Server
    http: bool
    acks_s: list[float] = attrs.Factory(list)
    answers: int = 0
    pages: int = 0
    minutes_mb: list[float] = attrs.Factory(list)

    @property
    def rss_mb(self) -> float:
        assert self.server.process is not None
        text = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    async def hold_idle(self, many: int, nursery: trio.Nursery) -> None:
        pages = many // 2 if self.http else 0
        for _ in range(many - pages):
            nursery.start_soon(self._listen, await LeanClient.connect(self.server.url))
        for _ in range(pages):
            nursery.start_soon(self._look, await Http.connect(self.server.url))

    async def load(self, many: int, seconds: float) -> None:
        """Everybody chats for so long."""
        end = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            for number in range(many):
                kind = (self._socket, self._socket, self._whole, self._events, self._completion)[number % 5]
                nursery.start_soon(self._chat, kind if self.http else self._socket, number, end)

    async def _listen(self, client: LeanClient) -> None:
        while True:
            await client.receive("nothing")

    async def _look(self, page: Http) -> None:
        while True:
            await page.ask("GET", random.choice(PAGE))
            self.pages += 1
            await trio.sleep(random.uniform(*ASK_S))

    async def _chat(
        self, connect: Callable[[], Awaitable[tuple[Talk, LeanClient | Http]]], number: int, end: float
    ) -> None:
        talk, connection = await connect()
        await trio.sleep(random.uniform(0, PAUSE_S[1]))
        while trio.current_time() < end:
            with trio.fail_after(HANG_S):
                await talk(f"chat{number}", f"What did I say about the number {random.random()}?")
            self.answers += 1
            await trio.sleep(random.uniform(*PAUSE_S))
        await connection.aclose()

    async def _socket(self) -> tuple[Talk, LeanClient]:
        client, ids = await LeanClient.connect(self.server.url), count()
        prefix = f"{random.getrandbits(64):x}"

        async def talk(chat: str, text: str) -> None:
            begin = trio.current_time()
            await client.send({"type": "send", "id": f"{prefix}-{next(ids)}", "chat": chat, "text": text})
            await client.receive("ack")
            self.acks_s.append(trio.current_time() - begin)
            while (await client.receive("message"))["role"] != "assistant":
                pass

        return talk, client

    async def _whole(self) -> tuple[Talk, Http]:
        return await self._messages(stream=False)

    async def _events(self) -> tuple[Talk, Http]:
        return await self._messages(stream=True)

    async def _messages(self, *, stream: bool) -> tuple[Talk, Http]:
        http = await Http.connect(self.server.url)

        async def talk(chat: str, text: str) -> None:
            answer = await http.ask("POST", f"/api/v1/chats/{chat}/messages", {"text": text, "stream": stream})
            assert b'"done"' in answer, answer

        return talk, http

    async def _completion(self) -> tuple[Talk, Http]:
        http = await Http.connect(self.server.url)

        async def talk(chat: str, text: str) -> None:
            body = {"messages": [{"role": "user", "content": text}], "stream": True, "user": chat}
            answer = await http.ask("POST", "/v1/chat/completions", body)
            assert answer.endswith(b"data: [DONE]\n\n"), answer

        return talk, http

    def told(self) -> str:
        cuts = statistics.quantiles(self.acks_s, n=100)
        name = "with HTTP" if self.http else "without"
        times = "  ".join(f"p{cut} {cuts[cut - 1] * 1000:.1f} ms" for cut in (50, 95, 99))
        memory = " ".join(f"{size:.0f}" for size in self.minutes_mb)
        return f"{name:10} {len(self.acks_s)} acks: {times}; {self.answers} answers, {self.pages} pages; MB: {memory}"


async def run(options: argparse.Namespace, folder: Path, llm: str) -> None:
    async with AsyncExitStack() as stack:
        sides = [
            Side(await stack.enter_async_context(served(_home(folder / str(http), llm, http))), http)
            for http in (True, False)
        ]
        await _measure(sides, options)
    on, off = (statistics.quantiles(side.acks_s, n=100)[94] for side in sides)
    flat = statistics.median(sides[0].minutes_mb[-3:]) - statistics.median(sides[0].minutes_mb[:3])
    for side in sides:
        print(side.told())
    print(f"p95 with HTTP by p95 without: {on / off:.2f}; last 3 minutes by the first 3: {flat:+.1f} MB")


async def _measure(sides: list[Side], options: argparse.Namespace) -> None:
    on, off = sides
    async with trio.open_nursery() as idle:
        for side in sides:
            await side.hold_idle(options.idle, idle)
        for minute in range(1, round(options.minutes * 60 / options.phase_s) + 1):
            for side, seconds in ((off, options.off_s), (on, options.phase_s)):
                await side.load(options.chatting, seconds)
                side.minutes_mb.append(side.rss_mb)
            print(f"{minute}: {on.rss_mb:.1f} MB with HTTP, {off.rss_mb:.1f} without", flush=True)
        idle.cancel_scope.cancel(reason="it is over")


def _home(home: Path, llm: str, http: bool) -> Path:
    return write_home(home, llm=llm, gateway={**MANY, "http": {"enabled": http, "requestsPerSecond": 1000}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of load with HTTP")
    parser.add_argument("--idle", type=int, default=500)
    parser.add_argument("--chatting", type=int, default=50)
    parser.add_argument("--phase-s", type=float, default=60.0, help="of load with HTTP, in turns with …")
    parser.add_argument("--off-s", type=float, default=20.0, help="… so much without")
    options = parser.parse_args()
    stub = ["-m", "tests.support.llm_server", "--reply", ANSWER, "--delay-ms", str(DELAY_MS)]
    with (
        tempfile.TemporaryDirectory(prefix="klaw-mixed-") as folder,
        subprocess.Popen([sys.executable, *stub], stdout=subprocess.PIPE, cwd=REPOSITORY) as model,
    ):
        try:
            assert model.stdout is not None
            trio.run(run, options, Path(folder), f"http://127.0.0.1:{json.loads(model.stdout.readline())['port']}/v1")
        finally:
            model.kill()


if __name__ == "__main__":
    main()
