"""26.A2: large inputs at every door of a real server, and 26.A6: how much a user may store in a day."""

import json
import sys

import httpx2
import pytest
import trio

from klaw.errors import RequestRefused
from klaw.gateway.tokens import add_token, tokens_file
from tests.support.llm_server import serve_llm, text_reply
from tests.support.repository import REPOSITORY
from tests.support.server import clean_environ, served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S


async def test_large_inputs_of_all_kinds_are_answered_at_every_door():
    with trio.fail_after(HANG_S):
        done = await trio.run_process(
            [sys.executable, "tools/attack_large.py", "--seconds", "6"],
            capture_stdout=True,
            check=False,
            cwd=REPOSITORY,
            env=clean_environ(),
        )
    found = json.loads(done.stdout)
    print(found)
    assert (found["problems"], found["errors"], done.returncode) == ([], {}, 0)
    assert found["outcomes"].keys() <= {f"large {each}" for each in ("answered", "closed", *OUTCOMES)}
    assert found["acked"] > 5


OUTCOMES = (200, 201, 202, 400, 401, 403, 404, 405, 409, 413, 424, 429, 503)


BODIES = [
    ("/api/v1/render", {"texts": [1] * 99_000}, 400, "texts: must have 1 to 100 entries"),
    ("/api/v1/render", {"texts": [1] * 200_000}, 400, "of at most 100000 values"),
    ("/v1/embeddings", {"input": ["x"] * 257}, 400, "input: must have 1 to 256 entries"),
    ("/v1/embeddings", {"input": ["x"] * 90_000}, 400, "input: must have 1 to 256 entries"),
    ("/api/chat", {"messages": [{"role": "user", "images": ["QUJD"] * 11}]}, 400, "at most 10 pictures"),
    ("/api/chat", {"messages": [{"role": "user", "content": "x" * 2_000_000}]}, 413, "1048576 characters together"),
    ("/api/v1/people", {"name": "Ann", "aliases": ["x"] * 90_000}, 400, "aliases: must have at most 1000 entries"),
    ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 70_000}}, 413, "65536 bytes"),
]


async def test_what_is_too_much_is_refused_with_its_bound_and_one_problem(tmp_path):
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        url = f"http://127.0.0.1:{server.config['gateway']['port']}"
        async with httpx2.AsyncClient(base_url=url, timeout=HANG_S) as client:
            for path, body, status, text in BODIES:
                answer = await client.post(path, json=body, headers={"accept": "application/json, text/event-stream"})
                assert (answer.status_code, text in answer.text) == (status, True), (path, answer.text[:300])
                assert len(answer.content) < 1_000
        assert [each for each in server.events() if each["level"] == "error"] == []


async def test_a_user_may_store_so_much_in_a_day_and_is_told_when_more_may_come(tmp_path):
    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply("ok")
        home = write_home(tmp_path, llm=llm.url, chats={"maxUserBytesPerDay": 3_000})
        ann, bob = (add_token(tokens_file(home / "config"), name, "2026-01-01T00:00:00Z")[1] for name in ("ann", "bob"))
        async with served(home) as server:
            url = f"http://127.0.0.1:{server.config['gateway']['port']}"
            path = "/api/v1/chats/main/messages"
            async with httpx2.AsyncClient(base_url=url, timeout=HANG_S) as client:

                async def send(token, message, text="x" * 1_000, path=path):
                    headers = {"authorization": f"Bearer {token}", "idempotency-key": message}
                    return await client.post(path, json={"text": text, "wait": False}, headers=headers)

                assert [(await send(ann, f"m{number}")).status_code for number in (1, 2)] == [202, 202]
                for _start in range(2):
                    refused = await send(ann, "m3")
                    assert (refused.status_code, refused.json()["code"]) == (429, "too_much_today")
                    assert "3,000 bytes" in refused.json()["detail"]
                    assert "after midnight UTC" in refused.json()["detail"]
                    assert 0 < int(refused.headers["retry-after"]) <= 86_400
                    assert (await send(ann, "c1", f"/help {'x' * 1_000}")).status_code == 429
                    assert (await send(ann, "m2")).status_code == 202  # is stored already
                    said = {"messages": [{"role": "user", "content": "x" * 1_000}]}
                    headers = {"authorization": f"Bearer {ann}"}
                    assert (await client.post("/v1/chat/completions", json=said, headers=headers)).status_code == 429
                    async with talking(server.url, token=ann) as talk:
                        with pytest.raises(RequestRefused) as raised:
                            await talk.send("x" * 1_000)
                        assert (raised.value.code, raised.value.retryable) == ("too_much_today", False)
                    await server.kill()
                    await server.start()
                assert (await send(bob, "m3")).status_code == 202
                headers = {"authorization": f"Bearer {ann}"}
                listed = (await client.get(path, headers=headers)).json()["messages"]
                assert [each["id"] for each in listed if each["role"] == "user"] == ["m1", "m2"]
