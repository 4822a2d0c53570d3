"""26.B3 and 26.D4: who comes in by which header, what pages of allowed origins may do, and how the doors refuse."""

import re

import httpx2
import pytest
import trio

from tests.e2e.test_http import http, token_for, until_served, world
from tests.support.waiting import HANG_S

PAGE = "http://localhost:3000"


@pytest.fixture
async def server(tmp_path):
    async with world(tmp_path, gateway={"allowedOrigins": [PAGE, "app://obsidian.md"]}) as found:
        yield found


async def test_a_cookie_is_no_token_and_a_token_no_cookie(server):
    _, token = token_for(server, "anna")
    async with http(server, token) as client:
        await until_served(client)
    async with http(server) as browser:
        await browser.post("/api/v1/login", json={"token": token})
        await until_served(browser)
        secret = browser.cookies["klaw_session"]
    async with http(server) as client:
        for cookie, bearer, status in (
            (secret, None, 200),
            (token, None, 401),
            (None, secret, 401),
            (None, token, 200),
        ):
            headers = {"Cookie": f"klaw_session={cookie}"} if cookie else {"Authorization": f"Bearer {bearer}"}
            assert (await client.get("/api/v1/me", headers=headers)).status_code == status


async def test_the_password_of_a_proxy_leaves_the_cookie_in_force(server):
    async with http(server) as client:  # while there are no tokens
        assert (await client.get("/api/v1/me", headers={"Authorization": "Basic YTpi"})).status_code == 200
    _, token = token_for(server, "anna")
    async with http(server, token) as client:
        await until_served(client)
    async with http(server) as browser:
        await browser.post("/api/v1/login", json={"token": token})
        await until_served(browser)
        for scheme in ("Basic YTpi", "Negotiate x", "basic"):
            told = await browser.get("/api/v1/me", headers={"Authorization": scheme})
            assert (told.status_code, told.json()["user"]) == (200, "anna")
        wrong = await browser.get("/api/v1/me", headers={"Authorization": "Bearer wrong"})
        assert wrong.status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Origin": PAGE}, 200),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:4000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "127.0.0.1/evil"}, 403),
        ({"Host": "evil@127.0.0.1"}, 403),
        ({}, 200),
    ],
)
async def test_without_tokens_a_page_elsewhere_asks_in_vain(server, headers, status):
    async with http(server) as client:
        for method, path, body in (
            ("POST", "/api/v1/facts", {"text": f"Likes {len(headers)}"}),
            ("GET", "/api/v1/facts", None),
            ("POST", "/v1/embeddings", {"input": "x"}),
        ):
            answer = await client.request(method, path, json=body, headers=headers)
            assert (answer.status_code == 403) is (status == 403), (path, answer.text)
    host, _, port = server.url.removeprefix("ws://").removesuffix("/ws").partition(":")
    lines = {"Host": f"{host}:{port}", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    lines |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers}
    if "Host" not in headers:  # without an origin nobody minds the host of a WebSocket
        assert (await upgraded(host, port, lines))[0] == ("403" if status == 403 else "101")


async def upgraded(host, port, lines):
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await stream.send_all(f"GET /ws HTTP/1.1\r\n{head}\r\n".encode())
        with trio.fail_after(HANG_S):
            answer = (await stream.receive_some(4096)).decode()
    return answer.split(" ")[1], answer


async def test_an_old_websocket_is_told_the_version(server):
    host, _, port = server.url.removeprefix("ws://").removesuffix("/ws").partition(":")
    lines = {"Host": host, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "8"}
    status, answer = await upgraded(host, port, {**lines, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    assert status == "426"
    assert "Sec-WebSocket-Version: 13\r\n" in answer


async def test_pages_of_allowed_origins_may_send_what_sdks_send(server):
    wanted = "authorization,content-type,x-stainless-lang,openai-organization,anthropic-version,x-anything"
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    async with http(server) as client:
        for origin, status in ((PAGE, 200), ("app://obsidian.md", 200), ("http://localhost:3001", 400)):
            for path in ("/v1/chat/completions", "/api/chat", "/mcp", "/api/v1/facts"):
                found = await client.options(path, headers={"Origin": origin, **asked})
                assert found.status_code == status
                assert (found.headers.get("access-control-allow-origin") == origin) is (status == 200)
        assert found.headers.get("access-control-allow-origin") is None
        refused = await client.post("/v1/chat/completions", json={"messages": []}, headers={"Origin": PAGE})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (400, PAGE)


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/me"])
async def test_a_head_that_is_too_long_is_answered_with_a_body(server, path):
    base = server.url.replace("ws://", "http://").removesuffix("/ws")
    async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=HANG_S) as client:
        for _ in range(2):  # also on a connection that was used before
            long = await client.get(path, headers={"X": "a" * 70_000})
            assert (long.status_code, bool(long.content)) == (431, True)
            assert (await client.get(path)).status_code == 200


async def test_a_method_that_is_not_there_is_told_which_are(server):
    async with http(server) as client:
        described = (await client.get("/api/openapi.json")).json()["paths"]
        for path, methods in described.items():
            found = await client.put(re.sub(r"{\w+}", "1", path))
            may = {each.upper() for each in methods} | ({"HEAD"} if "get" in methods else set())
            assert (found.status_code, set(found.headers["allow"].split(", "))) == (405, may), path
        for path in ("/api/v1/kb/check", "/api/v1/runs/cancel", "/api/v1/schedule/preview"):
            assert (await client.delete(path)).status_code == 405, path


async def test_a_body_that_says_that_it_is_too_long_is_not_waited_for(server):
    host, _, port = server.url.removeprefix("ws://").removesuffix("/ws").partition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        lines = f"Host: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {10**12}\r\n\r\n"
        await stream.send_all(f"POST /v1/chat/completions HTTP/1.1\r\n{lines}".encode())
        with trio.fail_after(HANG_S):
            assert (await stream.receive_some(4096)).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("path", "error"), [("/v1/moderations", dict), ("/api/unload", str), ("/api/v1/nothing", type(None))]
)
async def test_an_unknown_path_is_refused_in_the_form_of_its_api(server, path, error):
    async with http(server) as client:
        refused = await client.post(path, json={"model": "klaw"})
        assert (refused.status_code, type(refused.json().get("error"))) == (404, error)
