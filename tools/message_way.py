"""List the modules that a message passes from its WebSocket frame to the first request to the model.

    python tools/message_way.py [--json]

A server runs in this process, with a scripted model behind HTTP, and a client sends a message over a real WebSocket.
Looked at is what runs, in any thread, from the decoding of the frame until the request has reached the model; actors in
the background are left out. A module is passed when a coroutine of it runs, or the function that is carried out in a
thread of the store: there the message is handed on or waited for. What they only call (values, formats, SQL, rules) is
listed after them. Embeddings and summaries are off, and so is the search
that needs them.
"""

import argparse
import inspect
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from klaw.app.app import running  # noqa: E402
from klaw.app.serve import _Server  # noqa: E402
from klaw.config.load import parse  # noqa: E402
from klaw.config.paths import Paths  # noqa: E402
from klaw.gateway.tokens import Authenticator, tokens_file  # noqa: E402
from tests.support.llm_server import serve_llm, text_reply  # noqa: E402

LIMIT_S = 120.0
MESSAGES = 3
"""The last one's way is told: by then what is read or made once is there."""
_PREFIX = str(ROOT / "klaw") + "/"
_BACKGROUND = frozenset({"memory/coverage.py", "store/search/coverage.py", "health.py", "memory/embed/embedder.py"})


class Way:
    """The modules in the order in which they were entered, from the frame to the request."""

    def __init__(self) -> None:
        self.passed: dict[str, None] = {}
        self.called: dict[str, None] = {}
        self._here = False
        self._names: dict[CodeType, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """For ``sys.setprofile``."""
        if event != "call":
            return
        module = self._module(frame.f_code)
        if module is None:
            return
        if frame.f_code.co_name == "decode_client":
            self.passed, self.called, self._here = dict.fromkeys(reversed([*self._above(frame)])), {}, True
        if not self._here or module in self.passed:
            return
        above = list(self._above(frame))
        if _BACKGROUND.isdisjoint((module, *above)):
            passes = frame.f_code.co_flags & inspect.CO_COROUTINE or not above
            (self.passed if passes else self.called)[module] = None

    def end(self) -> None:
        """The request is there."""
        self._here = False

    def _above(self, frame: FrameType) -> Iterator[str]:
        """The modules of those that called it."""
        caller = frame.f_back
        while caller is not None:
            if (module := self._module(caller.f_code)) is not None:
                yield module
            caller = caller.f_back

    def _module(self, code: CodeType) -> str | None:
        if code not in self._names:
            inside = code.co_filename.startswith(_PREFIX)
            self._names[code] = code.co_filename.removeprefix(_PREFIX) if inside else None
        return self._names[code]


async def _send(ws: WebSocketConnection, number: int) -> None:
    frame = {"type": "send", "chat": "main", "id": f"m{number}", "text": f"How are you, the {number}th time?"}
    await ws.send_message(json.dumps(frame))


async def _answer(ws: WebSocketConnection) -> None:
    """Wait for the model's answer."""
    while True:
        frame: dict[str, Any] = json.loads(await ws.get_message())
        if frame["type"] == "error":
            raise SystemExit(f"the server refused: {frame}")
        if frame["type"] == "message" and frame["role"] == "assistant":
            return


async def measure(home: Path, way: Way) -> None:
    """Send the messages; ``way`` holds that of the last one."""
    async with serve_llm() as llm:
        settings = {
            "providers": {"stub": {"baseUrl": llm.url, "models": {"model": {"tools": True}}}},
            "routing": {"default": "stub/model"},
            "embedding": {"enabled": False},
            "summaries": {"enabled": False},
            "gateway": {"port": 0},
        }
        config, _ = parse(json.dumps(settings), {})
        paths = Paths.resolve(home, {})
        async with running(config, paths) as app:
            server = _Server(app, Authenticator(tokens_file(paths.config_dir)))
            await app.core.supervisor.start(server.gateway.spec())
            async with open_websocket_url(server.url) as ws:
                await ws.send_message(json.dumps({"type": "hello", "version": 2, "client": "way"}))
                for number in range(MESSAGES):
                    llm.replies.append(text_reply("Well."))
                    await _send(ws, number)
                    while len(llm.requests) <= number:  # noqa: ASYNC110 - the scripted server has no event
                        await trio.sleep(0.001)
                    way.end()
                    await _answer(ws)
            await app.core.supervisor.stop(server.gateway.mailbox.name, "the end")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="as JSON")
    as_json = parser.parse_args().json
    way = Way()
    threading.setprofile(way)  # before there is any thread
    sys.setprofile(way)

    async def limited(home: Path) -> None:
        with trio.fail_after(LIMIT_S):
            await measure(home, way)

    with tempfile.TemporaryDirectory(prefix="klaw") as folder:
        trio.run(limited, Path(folder))
    sys.setprofile(None)
    passed, called = list(way.passed), [module for module in way.called if module not in way.passed]
    if as_json:
        print(json.dumps({"passed": passed, "called": called}))
    else:
        print("\n".join([*passed, f"{len(passed)} modules passed; they call {len(called)} others:", *called]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
