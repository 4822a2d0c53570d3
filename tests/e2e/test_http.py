"""The HTTP API on the gateway's port: real servers, real connections."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager

import attrs
import httpx2
import pytest
import trio

from klaw.gateway.tokens import add_token, revoke_tokens, tokens_file
from tests.support.llm_server import Cut, Text, Wait, error_reply, serve_llm, text_reply
from tests.support.repository import REPOSITORY
from tests.support.server import clean_environ, klaw_command, served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S, until


@asynccontextmanager
async def http(server, token=None, **how):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base = server.url.replace("ws://", "http://").removesuffix("/ws")
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=HANG_S, trust_env=False, **how) as client:
        yield client


@asynccontextmanager
async def world(tmp_path, respond=None, **sections):
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url, **sections)) as server:
        llm.respond = respond or llm.respond
        yield server


def tokens_of(server):
    return tokens_file(server.home / "config")


def token_for(server, user, *, operator=False):
    return add_token(tokens_of(server), user, "2026-01-01T00:00:00Z", operator=operator)


async def test_a_fact_through_its_life(tmp_path):
    async with world(tmp_path) as server, http(server) as client:
        added = (await client.post("/api/v1/facts", json={"text": "Любит зелёный чай"})).json()
        fact = added["fact"]["id"]
        changed = await client.patch(f"/api/v1/facts/{fact[:8]}", json={"text": "Пьёт только чёрный чай"})
        assert changed.status_code == 200
        listed = (await client.get("/api/v1/facts", params={"limit": 5})).json()
        assert [each["text"] for each in listed["facts"]] == ["Пьёт только чёрный чай"]
        last = listed["facts"][0]["id"]
        history = (await client.get(f"/api/v1/facts/{last}/history")).json()
        assert "Любит зелёный чай" in json.dumps(history, ensure_ascii=False)
        assert (await client.delete(f"/api/v1/facts/{last}")).status_code == 200
        assert (await client.get("/api/v1/facts")).json()["facts"] == []


WRONG = (
    ("POST", "/api/v1/facts", {"txt": "x"}, 400, "bad_fact", "text"),
    ("POST", "/api/v1/facts", {"text": 5}, 400, "bad_fact", "text"),
    ("GET", "/api/v1/facts?limit=many", None, 400, "bad_args", "limit"),
    ("GET", "/api/v1/facts?limits=1", None, 400, "bad_args", "limits"),
    ("DELETE", "/api/v1/facts/123456", None, 404, "unknown_fact", None),
    ("GET", "/api/v1/nothing", None, 404, "not_found", None),
    ("PUT", "/api/v1/facts", None, 405, "method_not_allowed", None),
    ("POST", "/api/v1/chats/main/messages", {"text": " "}, 400, "empty_text", None),
    ("POST", "/api/v1/chats/a..b/messages", {"text": "x"}, 400, "bad_chat", None),
    ("GET", "/api/v1/chats/nobody/messages", None, 404, "unknown_chat", None),
)


async def test_a_wrong_request_is_a_problem_that_names_the_field(server):
    async with http(server) as client:
        for method, path, body, status, code, field in WRONG:
            answer = await client.request(method, path, json=body)
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code), problem
            assert field is None or field in [each["field"] for each in problem["errors"]]
            assert status != 405 or answer.headers["allow"] == "GET, HEAD, POST"
        # While there are no tokens this machine runs the server; what came by a proxy or a foreign name does not.
        for headers, status in (({}, 200), ({"X-Forwarded-For": "127.0.0.1"}, 401), ({"Host": "evil.example"}, 403)):
            assert (await client.get("/api/v1/status", headers=headers)).status_code == status, headers


@pytest.fixture
async def server(tmp_path):
    async with world(tmp_path) as found:
        yield found


async def test_a_body_that_is_no_json_and_one_that_is_too_long(tmp_path):
    async with world(tmp_path, gateway={"http": {"maxBodyBytes": 2048}}) as server, http(server) as client:
        broken = await client.post("/api/v1/facts", content=b'{"text": "\xff"}')
        assert (broken.status_code, broken.json()["code"]) == (400, "bad_request")
        assert (await client.post("/api/v1/facts", content=b"[1]")).status_code == 400
        assert (await client.post("/api/v1/facts", content=b" " * 5000)).status_code == 413


async def test_a_message_is_answered_once_however_often_it_is_sent(tmp_path):
    async with world(tmp_path, lambda _: text_reply("Hello")) as server, http(server) as client:
        for _ in range(2):
            headers = {"Idempotency-Key": "once"}
            answer = await client.post("/api/v1/chats/main/messages", json={"text": "Hi"}, headers=headers)
            told = answer.json()
            assert (told["status"], told["message"]["id"], told["answer"]["content"]) == ("done", "once", "Hello")
        history = (await client.get("/api/v1/chats/main/messages")).json()
        assert [each["content"] for each in history["messages"]] == ["Hi", "Hello"]
        receipt = (await client.get("/api/v1/receipt?chat=main")).json()
        assert receipt["id"] == told["turn"]


async def test_a_message_that_need_not_be_waited_for(tmp_path):
    async with world(tmp_path) as server, http(server) as client:
        answer = await client.post("/api/v1/chats/main/messages", json={"text": "Hi", "wait": False})
        assert (answer.status_code, answer.json()["message"]["seq"]) == (202, 1)
        headers = {"Idempotency-Key": answer.json()["message"]["id"]}
        again = await client.post("/api/v1/chats/main/messages", json={"text": "Hi"}, headers=headers)
        assert again.json()["answer"]["role"] == "assistant"


async def test_a_command_and_a_model_that_fails(tmp_path):
    async with world(tmp_path, lambda _: error_reply(400)) as server, http(server) as client:
        helped = (await client.post("/api/v1/chats/main/messages", json={"text": "/help"})).json()
        assert "/stop" in helped["answer"]["content"]
        failed = await client.post("/api/v1/chats/main/messages", json={"text": "Привет"})
        assert (failed.status_code, failed.json()["status"]) == (424, "failed")
        assert failed.json()["error"]["message"]


async def test_an_answer_as_server_sent_events(tmp_path):
    async with world(tmp_path, lambda _: text_reply("При", "вет")) as server, http(server) as client:
        events = []
        async with client.stream(
            "POST", "/api/v1/chats/main/messages", json={"text": "Hi", "stream": True}
        ) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            name = ""
            async for line in response.aiter_lines():
                key, _, value = line.partition(": ")
                name = value if key == "event" else name
                if key == "data":
                    events.append((name, json.loads(value)))
    assert "".join(data["text"] for name, data in events if name == "delta") == "Привет"
    name, done = events[-1]
    assert (name, done["answer"]["content"]) == ("done", "Привет")


async def test_what_is_said_over_http_is_heard_on_the_websocket(tmp_path):
    async with world(tmp_path) as server, talking(server.url) as talk, http(server) as client:
        await talk.ask("first")
        await client.post("/api/v1/chats/main/messages", json={"text": "second"})
        await talk.until(lambda: [each for each in talk.entries if each.content == "second"])


async def test_users_see_only_their_own_and_operators_all(tmp_path):
    async with world(tmp_path) as server:
        _, hers = token_for(server, "anna")
        _, his = token_for(server, "boris")
        _, root = token_for(server, "root", operator=True)
        async with http(server) as nobody:
            await until_served(nobody, 401)
        async with http(server, hers) as anna, http(server, his) as boris, http(server, root) as operator:
            fact = (await anna.post("/api/v1/facts", json={"text": "secret"})).json()["fact"]["id"]
            await anna.post("/api/v1/chats/diary/messages", json={"text": "secret"})
            for method, path in (
                ("GET", f"/api/v1/facts/{fact}/history"),
                ("DELETE", f"/api/v1/facts/{fact}"),
                ("GET", "/api/v1/chats/diary/messages"),
                ("GET", "/api/v1/receipt?chat=diary"),
            ):
                assert (await boris.request(method, path)).status_code == 404, path
            assert (await boris.get("/api/v1/facts", params={"user": "anna"})).status_code == 403
            assert (await boris.get("/api/v1/actors")).status_code == 403
            assert (await boris.get("/api/v1/facts")).json()["facts"] == []
            listed = (await operator.get("/api/v1/facts", params={"user": "anna"})).json()
            assert [each["id"] for each in listed["facts"]] == [fact]
            assert (await operator.get("/api/v1/actors")).status_code == 200
        async with http(server) as nobody:
            refused = await nobody.get("/api/v1/facts")
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert (await nobody.get("/healthz")).json() == {"status": "ok"}


async def klaw(*words, home):
    done = await trio.run_process(
        klaw_command(*words), env={**clean_environ(), "KLAW_HOME": str(home)}, capture_stdout=True
    )
    return done.stdout.decode()


async def until_served(client, status=200):
    """The server looks at the tokens file once a second; before the first token everybody here is ``local``."""

    async def is_served():
        answer = await client.get("/api/v1/me")
        return answer.status_code == status and answer.json().get("user") != "local"

    await until(is_served)


async def test_a_browser_logs_in_and_out(tmp_path):
    async with world(tmp_path) as server:
        token, secret = token_for(server, "anna")
        async with http(server, secret) as client:
            await until_served(client)
        async with http(server) as browser:
            assert (await browser.post("/api/v1/login", json={"token": "klaw_wrong"})).status_code == 401
            entered = await browser.post("/api/v1/login", json={"token": secret})
            cookie = entered.headers["set-cookie"]
            assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Max-Age=2592000"))
            await until_served(browser)
            assert (await browser.get("/api/v1/me")).json()["user"] == "anna"
            foreign = {"Origin": "http://evil.example"}
            assert (await browser.post("/api/v1/facts", json={"text": "x"}, headers=foreign)).status_code == 403
            again = await browser.post("/api/v1/login", json={"token": browser.cookies["klaw_session"]})
            assert again.status_code == 401
            listed = await klaw("token", "list", home=server.home)
            assert f"login with {token.id}" in listed
            assert (await browser.post("/api/v1/logout")).status_code == 204
            assert (await browser.get("/api/v1/me")).status_code == 401
            await browser.post("/api/v1/login", json={"token": secret})
            await until_served(browser)
            revoke_tokens(tokens_of(server), token.id)
            await until_served(browser, 401)


async def test_neither_a_name_bound_to_this_machine_nor_what_a_proxy_passes_on_is_from_here(server):
    async with http(server) as client:
        for host in ("evil.example", "evil.example:8181", ""):
            assert (await client.get("/api/v1/facts", headers={"Host": host})).status_code in (400, 403)
        assert (await client.get("/api/v1/facts", headers={"X-Forwarded-For": "203.0.113.1"})).status_code == 401
        for path in ("/healthz", "/api/v1/facts", "/nothing"):
            headers = (await client.get(path)).headers
            assert "default-src 'self'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


async def test_one_connection_asks_only_so_often(tmp_path):
    async with world(tmp_path, gateway={"http": {"requestsPerSecond": 0.5}}) as server, http(server) as client:
        answers = [await client.get("/healthz") for _ in range(6)]
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1


async def test_without_http_only_the_websocket_is_there(tmp_path):
    async with world(tmp_path, gateway={"http": {"enabled": False}}) as server, http(server) as client:
        assert (await client.get("/")).status_code == 426
        assert (await client.get("/api/v1/facts")).status_code == 404


async def until_logged(server, event, many=1):
    await until(lambda: len(server.events(event)) >= many)


async def test_a_client_that_breaks_off_leaves_nothing_and_the_chat_goes_on(tmp_path):
    """In the middle of a body, while it waits for the answer, and while it follows it."""
    gate = trio.Event()
    slow = text_reply("При", "вет", before_head=(Wait(gate),))
    async with (
        serve_llm() as llm,
        served(write_home(tmp_path, llm=llm.url, processing={"maxConcurrentLlm": 8})) as server,
        http(server) as client,
    ):
        llm.respond = lambda _: slow
        assert (await client.get("/healthz")).status_code == 200
        port = server.config["gateway"]["port"]
        head = f"POST %s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: %d\r\n\r\n"
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all((head % ("/api/v1/facts", 5000)).encode() + b'{"text": "')
        await stream.aclose()
        await until_logged(server, "client_gone")
        asked = '{"messages": [{"role": "user", "content": "Hi"}], "user": "v1"}'
        for number, (path, body) in enumerate(
            (
                ("/api/v1/chats/whole/messages", '{"text": "Hi"}'),
                ("/v1/chat/completions", asked),
                ("/api/chat", asked.replace('"user": "v1"', '"stream": false')),
                ("/api/v1/chats/events/messages", '{"text": "Hi", "stream": true}'),
            ),
            1,
        ):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all((head % (path, len(body)) + body).encode())
            await llm.wait_for_requests(number)
            await stream.aclose()
        await until_logged(server, "client_gone", 4)
        gate.set()
        for chat in ("whole", "events"):
            await until(lambda chat=chat: is_answered(client, chat, "Привет"))
        receipt = (await client.get("/api/v1/receipt?chat=v1")).json()
        assert receipt["status"] == "stopped"  # programs of other protocols do not come back for an answer
        assert server.events("request_failed") == []
        assert [each for each in server.events() if each["level"] == "error"] == []


async def is_answered(client, chat, text):
    history = (await client.get(f"/api/v1/chats/{chat}/messages")).json()
    return history["messages"][-1]["content"] == text


async def test_a_chat_that_is_stopped_or_deleted_while_its_answer_is_followed(tmp_path):
    reply = text_reply("half")
    reply = attrs.evolve(reply, steps=(*reply.steps, Wait(trio.Event())))
    async with world(tmp_path, lambda _: reply, chats={"maxPerUser": 1}) as server, http(server) as client:

        async def end(method, path, **how):
            events = []
            async with client.stream(
                "POST", "/api/v1/chats/main/messages", json={"text": "Hi", "stream": True}
            ) as said:
                async for line in said.aiter_lines():
                    if line == "event: delta":
                        answer = await client.request(method, path, **how)
                        assert answer.status_code == 200, answer.text
                    events += [json.loads(line.removeprefix("data: "))] if line.startswith("data: ") else []
            return events[-1]

        assert (await end("POST", "/api/v1/chats/main/stop"))["status"] == "stopped"
        other = await client.post("/api/v1/chats/other/messages", json={"text": "Hi"})
        assert (other.status_code, other.json()["code"]) == (409, "too_many_chats")
        assert (await end("DELETE", "/api/v1/chats/main", params={"dry_run": "false"}))["status"] == "stopped"
        left = (await client.get("/api/v1/chats/main/messages")).json()["messages"]
        assert {each["content"] for each in left} == {""}


async def test_a_provider_that_breaks_off_in_a_streamed_answer(tmp_path):
    reply = attrs.evolve(text_reply("half"), steps=(Text("half"), Cut()))
    async with world(tmp_path, lambda _: reply) as server, http(server) as client:
        sent = await client.post("/api/v1/chats/main/messages", json={"text": "Hi", "stream": True})
        done = json.loads(sent.text.strip().rsplit("data: ", 1)[1])
        assert (sent.status_code, done["status"]) == (200, "failed")
        assert done["error"]["code"].startswith("llm_")
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        lines = (await client.post("/v1/chat/completions", json=body)).text.strip().split("\n\n")
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"].startswith("llm_")


async def test_a_server_stops_in_time_with_idle_clients_and_one_that_does_not_read(tmp_path):
    async with world(tmp_path, gateway={"http": {"requestsPerSecond": 100_000}}) as server, http(server) as client:
        await client.get("/healthz")  # an idle connection
        port = server.config["gateway"]["port"]
        deaf = await trio.open_tcp_stream("127.0.0.1", port)
        with trio.move_on_after(3):  # until its answers fill what lies between
            while True:
                await deaf.send_all(f"GET /static/app.js HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode() * 100)
        with trio.fail_after(20):  # before, 30 s from when it stopped to read
            assert await server.terminate() == 0
        await deaf.aclose()


async def test_metrics_are_what_prometheus_expects_and_name_nobody(tmp_path):
    async with world(tmp_path) as server, http(server) as client:
        await client.post("/api/v1/chats/secret-name/messages", json={"text": "Hi"})
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        told = answer.text
        assert "klaw_messages 2.0" in told
        assert "secret-name" not in told
        assert "local" not in told
        names = {line.split()[2] for line in told.splitlines() if line.startswith("# TYPE")}
        asked = json.dumps(json.loads((REPOSITORY / "conf" / "grafana.json").read_text()))
        for name in set(re.findall(r"klaw_[a-z_]+", asked)):
            assert name.removesuffix("_bucket") in names, name
        if shutil.which("promtool"):
            checked = await trio.run_process(["promtool", "check", "metrics"], stdin=told.encode(), capture_stdout=True)
            assert checked.stdout == b""


def test_nothing_of_it_is_loaded_before_the_first_request_nor_what_only_some_need():
    http = {"starlette", "hypercorn", "h2", "markdown_it", "nh3", "prometheus_client"}
    not_needed = {"onnxruntime", "sentencepiece", "sqlite3", "sqlite_vec", "pyoxigraph", "rdflib", "lxml", "pypdfium2"}
    program = f"import sys, klaw.app.serve; print(sorted({http | not_needed} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
