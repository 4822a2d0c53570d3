"""What a server says of itself to those who see it below a path."""

import httpx

from klaw.gateway.tokens import add_token, tokens_file
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S


async def test_what_the_server_writes_stands_below_the_path(tmp_path):
    """33.6: links, cookies and redirects; a prefix that a proxy tells counts, and one that is none changes nothing."""
    _, token = add_token(tokens_file(tmp_path / "config"), "anna", "2026-01-01T00:00:00Z")
    gateway = {"http": {"prefix": "/klaw"}}
    asked = {"model": "klaw", "messages": [{"role": "user", "content": "Hello"}]}
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url, gateway=gateway)) as server:
        llm.respond = lambda _: text_reply("answer")
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        for path, told, seen in (
            ("/klaw", None, "/klaw"),
            ("", None, ""),
            ("", "/home/klaw", "/home/klaw"),
            ("/klaw", "/klaw", "/klaw"),
            ("", '/"><script>', ""),
        ):
            headers = {} if told is None else {"X-Forwarded-Prefix": told}
            async with httpx.AsyncClient(base_url=base + path, headers=headers, timeout=HANG_S) as client:
                described = (await client.get("/api/openapi.json")).json()
                assert described["servers"] == [{"url": seen or "/"}]
                logged_in = await client.post("/api/v1/login", json={"token": token})
                assert f"Path={seen}/;" in logged_in.headers["set-cookie"]
                assert (await client.get("/static")).headers["location"] == f"{base}{seen}/static/"
                refused = await client.put("/api/v1/me")
                assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
                assert (await client.get("/static/none.js")).status_code == 404
                assert f'"{seen}/static/app.js"' in (await client.get("/sw.js")).text
                client.headers["Authorization"] = f"Bearer {token}"
                answer = await client.post("/v1/chat/completions", json=asked)
                assert answer.headers["x-klaw-receipt"].startswith(f"{seen}/api/v1/receipt?turn=")
                receipt = await client.get(answer.headers["x-klaw-receipt"].removeprefix(seen))
                assert receipt.status_code == 200
                assert (await client.get("/api/tags")).status_code == 200
                called = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
                accept = {"Accept": "application/json, text/event-stream"}
                assert (await client.post("/mcp", json=called, headers=accept)).json()["result"]["tools"]
        async with httpx.AsyncClient(base_url=base) as client:
            assert (await client.get("/klaw")).headers["location"] == f"{base}/klaw/"
            assert (await client.get("/klaws")).status_code == 404
