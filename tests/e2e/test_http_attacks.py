"""What strangers may try at the HTTP door: bodies without an end, requests with two ends, paths, upgrades, other
origins, cookies, and a flood of bad requests that would fill the log. Nothing of it answers 500 or reaches the log."""

from contextlib import asynccontextmanager

import httpx2
import trio

from klaw.actor.log import FLOOD_LINES
from tests.e2e.test_http import http, token_for, until_served, world
from tests.support.waiting import HANG_S

CANARY = "kanarienvogel"


@asynccontextmanager
async def raw(server, *pieces):
    """A connection on which these bytes were sent."""
    async with await trio.open_tcp_stream("127.0.0.1", server.config["gateway"]["port"]) as stream:
        with trio.fail_after(HANG_S):
            await stream.send_all(b"".join(pieces))
            yield stream


def head(server, line, *more):
    lines = [line, f"Host: 127.0.0.1:{server.config['gateway']['port']}", *more, "", ""]
    return "\r\n".join(lines).encode()


async def all_of(stream):
    """What comes until the server closes."""
    got = b""
    while data := await stream.receive_some():
        got += data
    return got


async def answer_of(stream):
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive_some()
    return got


UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
BOTH = ("Content-Length: 5", "Transfer-Encoding: chunked")


async def two_lengths(server):
    """It is refused, and what is behind it is nobody's request."""
    first, second = head(server, "GET /healthz HTTP/1.1", *BOTH) + b"0\r\n\r\n", head(server, "GET /healthz HTTP/1.1")
    async with raw(server, first) as stream:
        assert (await all_of(stream)).startswith(b"HTTP/1.1 400")
    async with raw(server, first, second) as stream:
        got = await all_of(stream)  # hypercorn may close before it has sent the refusal
    assert b"HTTP/1.1 200" not in got


async def upgrades(server):
    """A WebSocket is at /ws, at the beginning of a connection."""
    async with raw(server, head(server, f"GET /{CANARY} HTTP/1.1", *UPGRADE)) as stream:
        assert (await all_of(stream)).startswith(b"HTTP/1.1 404")
    async with raw(server, head(server, "HEAD /healthz HTTP/1.1")) as stream:
        assert (await answer_of(stream)).startswith(b"HTTP/1.1 200")
        await stream.send_all(head(server, "GET /ws HTTP/1.1", *UPGRADE))
        assert (await answer_of(stream)).startswith(b"HTTP/1.1 403")


async def endless_bodies(server):
    chunked = head(server, "POST /api/v1/login HTTP/1.1", "Transfer-Encoding: chunked")
    long = head(server, "POST /api/v1/login HTTP/1.1", "Content-Length: 1000000000000000")
    for begin, piece in ((chunked, b"400\r\n" + b"x" * 1024 + b"\r\n"), (long, b"x" * 1024)):
        async with raw(server, begin, piece * 4) as stream:
            assert (await answer_of(stream)).startswith(b"HTTP/1.1 413")


async def paths(client):
    for path in (
        "..%2f..%2fconfig%2ftokens.json",
        "%2e%2e/%2e%2e/pyproject.toml",
        "..\\..\\app.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "%00",
        "views",
    ):
        assert (await client.get(f"/static/{path}")).status_code == 404, path


async def other_origins(client):
    """A form of another page can send text, and needs no leave to."""
    for origin in ("http://evil.example", "null", "file://", "http://127.0.0.1.evil.example"):
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        for path in ("/api/v1/facts", "/api/v1/chats/main/messages", "/api/v1/login", "/v1/chat/completions", "/mcp"):
            sent = await client.post(path, content=f'{{"text": "{CANARY}"}}', headers=headers)
            assert sent.status_code == 403, (origin, path)


async def flood(server):
    for number in range(2 * FLOOD_LINES):
        async with raw(server, f"GET /{CANARY} {number}\x00\r\n\r\n".encode()) as stream:
            assert (await all_of(stream)).startswith(b"HTTP/1.1 400")


async def test_attacks_of_strangers(tmp_path):
    async with world(tmp_path) as server:
        async with http(server) as client:
            await other_origins(client)  # this machine needs no token yet
        _, secret = token_for(server, "anna")
        async with http(server) as nobody:
            await until_served(nobody, 401)
            await paths(nobody)
            for each in (two_lengths, upgrades, endless_bodies, flood):
                await each(server)
            entered = await nobody.post("/api/v1/login", json={"token": secret})
            assert entered.status_code == 200
            await until_served(nobody)
            await other_origins(nobody)  # with the cookie that a browser would send
            assert (await nobody.get("/api/v1/facts")).json()["facts"] == []
            fixed = httpx2.Cookies({"klaw_session": "klaw_of-an-attacker"})
        async with http(server, cookies=fixed) as browser:
            assert (await browser.get("/api/v1/me")).status_code == 401
            entered = await browser.post("/api/v1/login", json={"token": secret})
            assert "klaw_of-an-attacker" not in entered.headers["set-cookie"]
        assert len(server.events("request_refused")) <= FLOOD_LINES
        assert [each for each in server.events() if each["level"] == "error"] == []
        assert CANARY not in server.stderr
