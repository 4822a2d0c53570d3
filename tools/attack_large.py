"""Large inputs for every door, at most 1 MB each: lists, objects and texts that no reader should look through before it
has looked at their size.

    python tools/attack_large.py [--seconds 60] [--seed N] [--each [WORD]]

Sends them for some seconds while other clients chat, and prints how long those waited; or ``--each`` of them (whose
name has the word) alone, and prints for the worst how long another user's question waited meanwhile, and the server's
CPU. ``large`` is for the other attacks.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.api.rest import doors
from klaw.convert import wire_names
from klaw.gateway.tokens import add_token, tokens_file
from klaw.wire.frames import ClientFrame
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import UNLIMITED, Server, served, write_home
from tools.attack_hostile import PING, TEXT, framed

SIZE, FRAME_SIZE = 1_000_000, 65_000
ANSWER_S = 30.0
TOLD = 25
"""Of the worst inputs."""
GATEWAY = {**UNLIMITED, "maxPerAddress": 500, "maxConnections": 500, "http": {"requestsPerSecond": 10_000}}


def _repeated(unit: str, size: int) -> str:
    return "[" + unit + f",{unit}" * (size // (len(unit) + 1)) + "]"


SHAPES: dict[str, Callable[[int], str]] = {
    "numbers": lambda size: _repeated("1", size),
    "objects": lambda size: _repeated("{}", size),
    "texts": lambda size: _repeated('""', size),
    "words": lambda size: _repeated('"word"', size),
    "lists": lambda size: _repeated("[]", size),
    "nested": lambda size: _repeated("[" * 400 + "]" * 400, size),
    "deep": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "parts": lambda size: _repeated('{"type":"text","text":"x"}', size),
    "pictures": lambda size: _repeated('{"type":"image_url","image_url":""}', size),
    "members": lambda size: "{" + ",".join(f'"{at:x}":{at}' for at in range(size // 16)) + "}",
    "names": lambda size: "{" + ",".join(f'"{"n" * 60}{at}":0' for at in range(size // 70)) + "}",
    "digits": lambda size: "9" * min(size, 4_000),
    "blanks": lambda size: json.dumps(" " * size),
    "lines": lambda size: json.dumps("\n" * (size // 2)),
    "letters": lambda size: json.dumps("x" * size),
    "sentence": lambda size: json.dumps("Слово и word, " * (size // 90)),
    "quoted": lambda size: json.dumps(_repeated("1", size)),
    "slash": lambda size: json.dumps("/forget " + "a " * (size // 2)),
    "command": lambda size: json.dumps("/" + "a" * (size - 100) + " please"),
}
"""By name: what makes JSON of about so many bytes."""


@attrs.frozen(kw_only=True)
class Large:
    """One input."""

    name: str
    path: str
    """Of HTTP, or ``/ws``."""
    method: str = "POST"
    token: bool = True
    made: Callable[[], str]
    """The body, or a frame."""


def _object(names: list[str], shape: str, size: int, **fixed: Any) -> str:
    values = {name: json.dumps(value) for name, value in fixed.items()}
    left = [name for name in names if name not in fixed] or ["x"]
    values |= {name: SHAPES[shape](size // len(left)) for name in left}
    return "{" + ",".join(f'"{name}":{value}' for name, value in values.items()) + "}"


@cache
def inputs() -> tuple[Large, ...]:
    """All of them."""
    return tuple(_frames()) + tuple(_rest()) + tuple(_faces())


def _frames() -> Iterator[Large]:
    for cls in get_args(ClientFrame):
        kind: str = cls.type
        fixed = {"type": kind, **({"version": 2} if kind == "hello" else {})}
        for shape in SHAPES:
            for token in (False, True):
                for all_of in ([each] for each in (*wire_names(cls), "x")):
                    known = {"send": {"id": "m1", "chat": "large", "text": "hi"}, "call": {"operation": "search"}}.get(
                        kind, {}
                    )
                    known = {name: value for name, value in known.items() if name not in all_of}
                    yield Large(
                        name=f"{'frame' if token else 'first frame'} {kind} {all_of[0]} {shape}",
                        path="/ws",
                        token=token,
                        made=lambda names=all_of, shape=shape, more={**fixed, **known}: _object(
                            names, shape, FRAME_SIZE, **more
                        ),
                    )


def _rest() -> Iterator[Large]:
    for door in doors():
        if not door.of_body:
            continue
        fields = attrs.fields_dict(attrs.resolve_types(door.operation.arguments))
        names = sorted(door.of_body)
        if door.takes_fields:
            kind = fields["fields"].type
            names = [each.name for each in attrs.fields(kind)] if attrs.has(kind) else ["x"]
        path = door.path.replace("{", "").replace("}", "")
        for shape in SHAPES:
            for all_of in [names, ["x"]] if len(names) < 2 else [names, ["x"], *([each] for each in names)]:
                yield Large(
                    name=f"rest {door.operation.name} {'all' if len(all_of) > 1 else all_of[0]} {shape}",
                    path=path,
                    method=door.method,
                    made=lambda names=all_of, shape=shape: _object(names, shape, SIZE),
                )


def _call(tool: str, arguments: str) -> str:
    told = f'{{"name":"{tool}","arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{told}}}'


_USER = '{"role":"user","content":"x"}'
_CHAT = "/api/v1/chats/large/messages"
_TEMPLATES = (
    ("/api/v1/login", '{"token":%s}'),
    ("/api/v1/render", '{"texts":%s}'),
    (_CHAT, '{"text":%s,"wait":false}'),
    (_CHAT, '{"text":"x","wait":false,"files":%s}'),
    (_CHAT, '{"text":"x","wait":false,"unknown":%s}'),
    ("/rags/1/chat", '{"question":%s}'),
    ("/v1/chat/completions", '{"messages":%s}'),
    ("/v1/chat/completions", '{"messages":[{"role":"user","content":%s}]}'),
    ("/v1/chat/completions", '{"messages":[{"role":"system","content":%s},' + _USER + "]}"),
    ("/v1/chat/completions", '{"user":%s,"messages":[' + _USER + "]}"),
    ("/v1/embeddings", '{"input":%s}'),
    ("/api/show", '{"model":%s}'),
    ("/api/chat", '{"stream":false,"messages":%s}'),
    ("/api/chat", '{"stream":false,"messages":[{"role":"user","content":"x","images":%s}]}'),
    ("/mcp", "%s"),
    ("/mcp", _call("list", "%s")),
    ("/mcp", _call("search", '{"query":%s}')),
    ("/mcp", '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%s}'),
    ("/mcp", '{"jsonrpc":"2.0","id":%s,"method":"ping"}'),
    ("/mcp", '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":%s}}'),
)  # fmt: skip
"""Path, and a body with the place of what is large. A login needs no token, but nobody can be kept from sending one."""


def _faces() -> Iterator[Large]:
    for path, template in _TEMPLATES:
        for shape, made in SHAPES.items():
            yield Large(
                name=f"{path} {template[:60].replace('%s', '…')} {shape}",
                path=path,
                made=lambda template=template, made=made: template.replace("%s", made(SIZE)),
            )
    turns = '{"stream":false,"messages":%s}'
    for path in ("/v1/chat/completions", "/api/chat"):
        yield Large(name=f"{path} turns", path=path, made=lambda: turns % _repeated(_USER, SIZE))
        said = turns % '[{"role":"user","content":"x","images":%s}]'
        yield Large(name=f"{path} no pictures", path=path, made=lambda said=said: said % _repeated('""', 27_000_000))


# -- sending -----------------------------------------------------------------------------------------------------------


async def send(server: Server, token: str, each: Large, payload: bytes | None = None) -> str:
    """Send one and read what comes of it: a status of HTTP, or what ended or answered the frame."""
    data = each.made().encode() if payload is None else payload
    port = server.config["gateway"]["port"]
    bearer = f"Authorization: Bearer {token}\r\n" if each.token else ""
    try:
        with trio.move_on_after(ANSWER_S):
            async with await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.3") as stream:
                if each.path == "/ws":
                    return await _say(stream, bearer, data, greet=each.token)
                head = f"{each.method} {each.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{bearer}"
                head += "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
                await stream.send_all(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
                answer = b""
                while part := await stream.receive_some(65_536):
                    answer = (answer + part)[:32]
                return answer[9:12].decode() or "closed"
    except (OSError, trio.BrokenResourceError):
        return "closed"
    return "no answer"


async def _say(stream: trio.SocketStream, bearer: str, data: bytes, *, greet: bool) -> str:
    await stream.send_all(
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13"
        f"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{bearer}\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        if not (part := await stream.receive_some(4_096)):
            return "closed"
        answer += part
    if greet:
        await stream.send_all(framed(TEXT, b'{"type":"hello","version":2}'))
    await stream.send_all(framed(TEXT, data) + framed(PING, b"answered"))
    while part := await stream.receive_some(65_536):
        answer += part
        if b"answered" in answer or (not greet and b'"error"' in answer):
            return "answered"
    return "closed"


async def large(server: Server, tokens: list[str], chance: random.Random, until: float) -> Counter[str]:
    """Send them in any order, on three connections with a token and as many without, until then.

    Args:
        server: that is attacked.
        tokens: of the users that attack.
        chance: which ones.
        until: of Trio's clock.

    Returns:
        What came of them: ``large 400`` …; one that ends with 500 or ``no answer`` is a mistake of the server.
    """
    counts: Counter[str] = Counter()

    async def again_and_again(chosen: list[Large]) -> None:
        while trio.current_time() < until:
            each = chance.choice(chosen)
            data = (await trio.to_thread.run_sync(each.made)).encode()
            counts[f"large {await send(server, chance.choice(tokens), each, data)}"] += 1

    async with trio.open_nursery() as nursery:
        for token in (True, True, True, False, False, False):
            nursery.start_soon(again_and_again, [each for each in inputs() if each.token is token])
    return counts


# -- measuring ---------------------------------------------------------------------------------------------------------


class _Prober:
    """Another user, who asks for the state of the server all the time."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.asked_at: float | None = None

    async def run(self, server: Server, token: str) -> None:
        port = server.config["gateway"]["port"]
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await _say(
                stream, f"Authorization: Bearer {token}\r\n", b'{"type":"call","operation":"health"}', greet=True
            )
            while True:
                self.asked_at = trio.current_time()
                await stream.send_all(framed(TEXT, b'{"type":"call","operation":"health","ref":"probe"}'))
                answer = b""
                while b"probe" not in answer:
                    answer = answer[-8:] + await stream.receive_some(65_536)
                self.longest_s, self.asked_at = self.longest(), None
                await trio.sleep(0.002)

    def longest(self) -> float:
        """The longest wait, with one that is not over."""
        return max(self.longest_s, trio.current_time() - self.asked_at if self.asked_at is not None else 0.0)


def _cpu_s(server: Server) -> float:
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(server: Server, name: str = "VmRSS") -> float:
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(each for each in lines if each.startswith(name)).split()[1]) / 1024


async def each_alone(server: Server, tokens: list[str], word: str) -> dict[str, Any]:
    """How long each of them holds another user."""
    found: list[tuple[float, float, str, str]] = []
    prober = _Prober()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(prober.run, server, tokens[0])
        for each in inputs():
            if word not in each.name:
                continue
            data = each.made().encode()
            await trio.sleep(0.02)  # what the one before left to do
            prober.longest_s, before = 0.0, _cpu_s(server)
            if prober.asked_at is not None:
                prober.asked_at = trio.current_time()
            outcome = await send(server, tokens[1], each, data)
            await trio.sleep(0.05)
            found.append((prober.longest(), _cpu_s(server) - before, each.name, outcome))
        nursery.cancel_scope.cancel(reason="all was sent")
    worst = sorted(found, reverse=True)
    return {
        "inputs": len(found),
        "over_100_ms": sum(wait > 0.1 for wait, *_ in found),
        "outcomes": dict(Counter(outcome for *_, outcome in found)),
        "worst": [
            f"{wait * 1000:7.0f} ms {cpu:6.2f} s CPU {outcome:9} {name}" for wait, cpu, name, outcome in worst[:TOLD]
        ],
    }


async def run(options: argparse.Namespace, home: Path) -> int:
    from tools.attack import child

    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply("ok")
        write_home(home, llm=llm.url, gateway=GATEWAY, logging={"level": "warning"})
        tokens = [
            add_token(tokens_file(home / "config"), user, "2026-01-01T00:00:00Z")[1]
            for user in ("honest-0", "honest-1", "hostile-0", "hostile-1")
        ]
        async with served(home) as server:
            if options.each is not None:
                told = await each_alone(server, tokens[1:], options.each)
            else:
                acked = home / "acked.jsonl"
                async with child(
                    "attack_honest", url=server.url, tokens=tokens[:2], seed=options.seed, acked=str(acked)
                ) as honest:
                    await honest.say("alone")
                    await trio.sleep(5)
                    await honest.say("large")
                    until = trio.current_time() + options.seconds
                    counts = await large(server, tokens[2:], random.Random(options.seed), until)
                    await honest.say("end")
                    told = {"outcomes": dict(sorted(counts.items())), **await honest.hear()}
            told["memory_mb"] = {"now": round(_memory_mb(server)), "most": round(_memory_mb(server, "VmHWM"))}
            errors = [each for each in server.events() if each["level"] == "error"]
            told["errors"] = dict(Counter(f"{each['event']} {each.get('where')}" for each in errors))
    print(json.dumps(told, indent=1, ensure_ascii=False))
    with suppress(KeyError):
        return int(bool(told["errors"] or told["outcomes"].get("large 500")))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Send large inputs to every door of a real server.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", nargs="?", const="", metavar="WORD", help="each alone; only those with this word")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klaw-attack-") as home:
        return trio.run(run, options, Path(home))


if __name__ == "__main__":
    sys.exit(main())
