"""The other clients of ``tools/attack.py``: a process of its own with the ``websockets`` package, so that neither
Klaw's client nor the attackers' work is in what it measures.

Each of them writes messages, one after the other, and logs in on a second connection now and then. A message whose
fate is unknown is sent again with its id. Reads one JSON line: url, tokens, seed, acked (a file to append what was
acknowledged to); then lines with a phase's name, and ``end``. Prints a JSON object in the end.
"""

import asyncio
import json
import random
import sys
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any, TextIO

import attrs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

CANARY = "klaw-attack-canary"
"""In every message: whoever else receives it has been told what is not theirs."""
BETWEEN_S = 0.15
LOG_IN_EVERY = 8
ANSWER_S = 30.0
GONE = (OSError, WebSocketException, asyncio.TimeoutError, EOFError)


@attrs.define
class Honest:
    """All honest clients."""

    url: str
    tokens: list[str]
    seed: int
    acked: TextIO
    phase: str = "start"
    ending: bool = False
    waits: dict[str, list[float]] = attrs.Factory(lambda: defaultdict(list))
    """Seconds by phase and kind of wait."""
    problems: list[str] = attrs.Factory(list)
    written: int = 0

    async def person(self, number: int) -> None:
        chance = random.Random(f"{self.seed} honest {number}")
        chat, sent, unacked = f"chat {number}", 0, None
        while not (self.ending and unacked is None):
            try:
                async with _connection(self.url, self.tokens[number]) as ws:
                    while not self.ending or unacked is not None:
                        if unacked is None:
                            sent += 1
                            words = " ".join(chance.choices(("river", "кофе", "窗户", "🙂", "bridge", "завтра"), k=9))
                            unacked = (f"h{number}-{sent}", f"{CANARY} {number} {sent}: my PIN is 4815, {words}")
                        seq = await self._send(ws, chat, *unacked)
                        self.acked.write(json.dumps([unacked[0], chat, seq, unacked[1]]) + "\n")
                        self.acked.flush()
                        self.written += 1
                        unacked = None
                        if sent % LOG_IN_EVERY == 0:
                            await self._log_in(number)
                        await asyncio.sleep(chance.uniform(0, 2 * BETWEEN_S))
            except GONE:
                await asyncio.sleep(0.05)

    async def _send(self, ws: ClientConnection, chat: str, message: str, text: str) -> int:
        phase, begin = self.phase, time.monotonic()
        await ws.send(json.dumps({"type": "send", "id": message, "chat": chat, "text": text}))
        async with asyncio.timeout(ANSWER_S):
            while True:
                frame = json.loads(await ws.recv())
                if frame["type"] == "ack" and frame["id"] == message:
                    break
                if frame["type"] == "error" and frame.get("id") == message:
                    self.problems.append(f"{message} was refused: {frame['code']}")
                    raise EOFError
        self._waited(phase, "ack", begin)
        return int(frame["seq"])

    async def _log_in(self, number: int) -> None:
        phase, begin = self.phase, time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S), _connection(self.url, self.tokens[number]):
                self._waited(phase, "login", begin)
        except GONE as error:
            if phase == self.phase and phase != "kills" and not self.ending:
                self.problems.append(f"{phase}: could not log in: {type(error).__name__}")

    def _waited(self, phase: str, kind: str, begin: float) -> None:
        if phase == self.phase:
            self.waits[f"{phase} {kind}"].append(time.monotonic() - begin)

    def report(self) -> dict[str, Any]:
        return {
            "acked": self.written,
            "problems": self.problems,
            "waits_ms": {name: _shares(times) for name, times in sorted(self.waits.items())},
        }


def _connection(url: str, token: str) -> Any:
    return _LoggedIn(url, token)


class _LoggedIn:
    """A connection that has been welcomed."""

    def __init__(self, url: str, token: str) -> None:
        self._connect = connect(
            url, additional_headers={"Authorization": f"Bearer {token}"}, open_timeout=ANSWER_S, close_timeout=1,
            ping_interval=None, compression=None, proxy=None,
        )  # fmt: skip

    async def __aenter__(self) -> ClientConnection:
        ws = await self._connect.__aenter__()
        try:
            await ws.send(json.dumps({"type": "hello", "version": 2, "client": "honest"}))
            async with asyncio.timeout(ANSWER_S):
                welcomed = json.loads(await ws.recv())["type"] == "welcome"
        except BaseException:
            await self._connect.__aexit__(None, None, None)
            raise
        if not welcomed:
            await self._connect.__aexit__(None, None, None)
            raise EOFError
        return ws

    async def __aexit__(self, *error: object) -> None:
        await self._connect.__aexit__(*error)


def _shares(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    last = len(ordered) - 1
    at = {"p50": len(ordered) // 2, "p99": min(last, len(ordered) * 99 // 100), "max": last}
    return {"count": len(ordered)} | {name: round(1000 * ordered[place], 1) for name, place in at.items()}


async def main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    given = json.loads(await reader.readline())
    with open(given["acked"], "a") as acked:  # noqa: ASYNC230, PTH123 - before anything is measured
        honest = Honest(given["url"], given["tokens"], given["seed"], acked)
        async with asyncio.TaskGroup() as tasks:
            for number in range(len(given["tokens"])):
                tasks.create_task(honest.person(number))
            while (line := (await reader.readline()).decode().strip()) not in ("end", ""):
                honest.phase = line
            honest.phase, honest.ending = "end", True
    with suppress(BrokenPipeError):
        print(json.dumps(honest.report()), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
