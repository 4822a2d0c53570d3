"""What ``tools/attack.py`` does over HTTP: short connections, HTTP/2, texts that are slow to render, sheets that are
slow to read. All of it with tokens of users of their own; others should notice nothing.
"""

import io
import json
import random
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import openpyxl
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.server import Server
from tools.attack_large import large

ANSWER_S = 20.0
SOURCE = "127.0.0.4"
"""Where these attackers come from."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING = bytes.fromhex("000000040000000000"), bytes.fromhex("000008060000000000") + bytes(8)
SLOW_CODE = {
    "autoit": " " * 8_000,
    "csharp": "@" * 3_000,
    "basemake": "$" * 3_000,
    "ng2": "<" * 3_000,
    "c": "(" * 3_000,
}
SLOW_TEXTS = (
    *(f"```{language}\n{code}\n```" for language, code in SLOW_CODE.items()),
    "[" * 40_000, "*a **a " * 6_000, "> " * 20_000, "![" * 20_000, "|" * 40_000 + "\n" + "|-" * 20_000,
    "".join("`" * n + " " for n in range(280)),
)  # fmt: skip


async def doors(server: Server, tokens: list[str], chance: random.Random, until: float) -> Counter[str]:
    """Do all of it at once.

    Args:
        server: that is attacked.
        tokens: of the users that attack.
        chance: what, and by whom.
        until: of Trio's clock.

    Returns:
        How often what was done; what begins with ``wrong`` is a mistake of the server.
    """
    counts: Counter[str] = Counter()

    async def closed() -> None:
        while trio.current_time() < until:
            answer = await _ask(server, chance.choice(tokens), "GET", "/api/v1/facts?limit=1")
            counts["short connections" if answer == "200" else f"wrong: short connection {answer}"] += 1
            await trio.sleep(0.01)

    async def http2() -> None:
        while trio.current_time() < until:
            answer = await _exchange(server, PREFACE + SETTINGS + PING * 2_000)
            counts["HTTP/2" if answer in ("505", "closed") else f"wrong: HTTP/2 {answer}"] += 1

    async def renders() -> None:
        while trio.current_time() < until:
            body = json.dumps({"texts": [chance.choice(SLOW_TEXTS) for _ in range(3)]}).encode()
            answer = await _ask(server, chance.choice(tokens), "POST", "/api/v1/render", body)
            counts["slow texts"] += 1
            if answer not in ("200", "429", "503", "closed", "no answer"):
                counts[f"wrong: render {answer}"] += 1

    async def documents() -> None:
        name = f"sheets {chance.randrange(10**9)}"
        await _ask(server, tokens[0], "POST", "/api/v1/kb", json.dumps({"name": name}).encode())
        path = f"/api/v1/kb/{name.replace(' ', '%20')}/files"
        while trio.current_time() < until:
            answer = await _ask(server, tokens[0], "POST", f"{path}?name={chance.randrange(10**9)}.xlsx", slow_sheet())
            counts[f"sheets {answer}"] += 1
            await trio.sleep(3)

    async def lists() -> None:
        counts.update(await large(server, tokens, chance, until))

    async with trio.open_nursery() as nursery:
        for kind in (closed, closed, http2, renders, documents, lists):
            nursery.start_soon(kind)
    counts.update({f"wrong: {name}": count for name, count in counts.items() if name == "large 500"})
    return counts


@cache
def slow_sheet() -> bytes:
    """An xlsx whose rows each have one cell, in the last column that there is."""
    book, made = openpyxl.Workbook(), io.BytesIO()
    for row in range(1, 20_001):
        book.active.cell(row, 16_384, 1)
    book.save(made)
    return made.getvalue()


async def _ask(server: Server, token: str, method: str, path: str, body: bytes = b"") -> str:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    return await _exchange(server, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def _exchange(server: Server, data: bytes) -> str:
    """Send this on a connection of its own, and close it after the first answer; its status."""
    port = server.config["gateway"]["port"]
    try:
        with trio.move_on_after(ANSWER_S):
            async with await trio.open_tcp_stream("127.0.0.1", port, local_address=SOURCE) as stream:
                await stream.send_all(data)
                return (await stream.receive_some(4_096))[9:12].decode() or "closed"
    except (OSError, trio.BrokenResourceError):
        return "closed"
    return "no answer"
