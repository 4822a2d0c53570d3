"""Invariant users-apart: whatever one user asks, by whatever door, tells nothing of another user, and changes nothing
of theirs. All doors are tried with all that the first may know of the second: ids, names, words."""

import json
from contextlib import suppress

import trio
from trio_websocket import ConnectionClosed

from klaw.api import mcp
from klaw.api.rest import doors
from klaw.domain.knowledge import document_id
from klaw.domain.names import ChatId
from klaw.gateway.tokens import add_token, tokens_file
from klaw.operations.perform import tools
from klaw.wire.codec import _CLIENT_FRAMES
from klaw.wire.frames import CallFrame, Hello
from tests.e2e.test_http import http
from tests.support.inside import inside
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.strangers import Known, other_routes, rows_of
from tests.support.talking import bare_socket
from tests.support.topics import archive
from tests.support.waiting import HANG_S, until

HOOK = "heron"
"""In all that Anna has; Boris knows it."""
SECRET = "quokka"
"""Begins the words that he must never see."""
AT_ONCE = 8


def said(what):
    return f"{HOOK} {SECRET}{what}"


async def topics_of(home):
    """Before the server runs: what Anna said long ago, as topics."""
    async with inside(home) as here:
        for number in (1, 2):
            await here.ask(said(f"past{number}"), "annas-diary", "anna")
        rows = [each.rowid for each in await here.app.chats.after(ChatId("anna:annas-diary"), 0, 10)]
        await archive(here.app.core.store, rows[:2], rows[2:4], user="anna", chat="annas-diary")


async def life_of(client):
    """What Anna has two of: Boris knows the ids of the first."""

    async def post(path, **how):
        answer = await client.post(f"/api/v1/{path}", **how)
        assert answer.status_code < 300, answer.text
        return answer.json()

    ids = []
    for number in (1, 2):
        chat, task = ("annas-diary", "annas-task") if number == 1 else (f"{SECRET}chat", f"{SECRET}-task")
        fact = await post("facts", json={"text": said(f"fact{number}")})
        person = await post("people", json={"name": said(f"person{number}"), "relation": said("relation")})
        file = await post("files", params={"name": said(f"file{number}")}, content=said(f"content{number}").encode())
        files = [{"sha256": file["file"]["sha256"], "name": file["file"]["name"]}]
        sent = await post(f"chats/{chat}/messages", json={"text": said(f"message{number}"), "files": files})
        await post(f"chats/{chat}/rename", json={"title": said(f"title{number}")})
        await post("schedule", json={"name": task, "message": said(f"order{number}"), "cron": "0 0 1 1 *"})
        await post(f"schedule/{task}/run", json={})

        name = "annas-base" if number == 1 else said(f"base{number}")
        base = await post("kb", json={"name": name, "description": said(f"about{number}")})
        text = said(f"text{number}").encode()
        source = await post(f"kb/{base['base']['id']}/files", params={"name": said(f"doc{number}")}, content=text)

        async def is_over(task=task):
            runs = (await client.get(f"/api/v1/schedule/{task}/runs")).json()["runs"]
            return [each for each in runs if each["status"] == "done"]

        (run,) = await until(is_over)
        ids.append({
            "fact": fact["fact"]["id"], "person": person["person"]["id"], "sha256": files[0]["sha256"], "chat": chat,
            "turn": sent["turn"], "message": sent["message"]["id"], "run": run["id"], "name": task,
            "base": base["base"]["id"], "source": source["source"]["id"],
            "document": document_id(source["source"]["id"], source["source"]["name"]),
        })  # fmt: skip
    return ids


def bodies(known):
    """For routes that are no operations."""
    last = {"role": "user", "content": HOOK}
    for chat in (known["chat"], f"anna:{known['chat']}"):
        yield {"messages": [last], "user": chat, "stream": False}
    yield {"text": HOOK, "files": [{"sha256": known["sha256"], "name": "x"}]}
    yield {"text": HOOK, "user": "anna"}
    yield {"messages": [{"role": "user", "content": HOOK}, {"role": "assistant", "content": "ok"}, last]}
    yield {"input": HOOK, "model": "klaw", "texts": [HOOK], "token": known["message"]}


def requests(known):
    """Of the HTTP API."""
    for door in doors():
        for given in known.calls(door.operation.arguments):
            query = {name: value for name, value in given.items() if name in door.of_query}
            body = given["fields"] if door.takes_fields else {name: given[name] for name in door.of_body & {*given}}
            path = door.path
            if door.of_path is not None:
                path = path.replace(f"{{{door.of_path}}}", str(given[door.of_path]).replace("/", "%2F"))
            yield door.method, path, {"params": query, **({"json": body} if door.of_body else {})}
    ids = dict(known.by_name)
    for method, path in other_routes():
        for word in (ids["chat"], f"anna:{ids['chat']}", ids["sha256"]) if "{" in path else [""]:
            at = "/".join(word if part.startswith("{") else part for part in path.split("/"))
            if method == "GET":
                for query in ({}, {"user": "anna"}, {"turn": ids["turn"]}, {"before": 9}, {"after": 0, "limit": 9}):
                    yield method, at, {"params": query}
            else:
                for body in bodies(ids):
                    yield method, at, {"json": body, "headers": {"X-Klaw-Chat": ids["chat"]}}


async def ask_all(client, asked, answers):
    """All requests, several at the same time."""
    waiting = iter(list(asked))

    async def work():
        for method, path, how in waiting:
            answer = await client.request(method, path, **how)
            answers.append((method, path, how, answer.status_code, answer.text + repr(answer.headers)))

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(work)


async def speak(url, token, frames, answers):
    """All frames over one connection."""
    async with (
        bare_socket(url, [("Authorization", f"Bearer {token}".encode())]) as socket,
        trio.open_nursery() as nursery,
    ):
        over = trio.Event()
        places = trio.Semaphore(AT_ONCE)
        """So many calls wait at the same time: more would be refused as busy."""

        async def listen():
            try:
                while True:
                    text = await socket.get_message()
                    answers.append(("frame", text))
                    ref = json.loads(text).get("ref")
                    if ref == "the end":
                        break
                    if ref == "call":
                        places.release()
            except ConnectionClosed:
                pass
            over.set()

        nursery.start_soon(listen)
        with suppress(ConnectionClosed):  # a hello with a name that no chat can have is refused
            for frame in [*frames, {"type": "call", "operation": "chats_list", "ref": "the end"}]:
                if frame["type"] == "call":
                    await places.acquire()
                await socket.send_message(json.dumps(frame))
        with trio.fail_after(HANG_S):
            await over.wait()


def mcp_requests(known):
    """All tools and resources of the MCP server."""

    def asked(method, **params):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return "POST", mcp.PATH, {"json": body, "headers": {"Accept": "application/json, text/event-stream"}}

    for name, tool in tools().items():
        for given in known.calls(tool.arguments):
            flat = given.get("fields", {}) | {field: value for field, value in given.items() if field != "fields"}
            yield asked("tools/call", name=name, arguments=flat)
    yield asked("resources/list")
    for word in known.words:
        yield from (asked("resources/read", uri=f"klaw://{kind}s/{word}") for kind in ("fact", "topic"))


def frames(known):
    """All frames but hello, and all operations."""
    for name, cls in _CLIENT_FRAMES.items():
        if cls not in (Hello, CallFrame):
            yield from ({**given, "type": name} for given in known.calls(cls))
    for door in doors():
        for args in known.calls(door.operation.arguments):
            yield {"type": "call", "operation": door.operation.name, "args": args, "ref": "call"}


async def test_users_apart_whatever_one_asks_by_whatever_door(tmp_path):
    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply(said("answer"))
        home = write_home(tmp_path, llm=llm.url, gateway={"http": {"requestsPerSecond": 100_000}})
        core = home / "data" / "users" / "anna" / "core_memory.json"
        core.parent.mkdir(parents=True)
        core.write_text(json.dumps({"people": {"boss": said("core")}}))
        tokens = tokens_file(home / "config")
        hers, his = (add_token(tokens, user, "2026-01-01T00:00:00Z")[1] for user in ("anna", "boris"))
        await topics_of(home)
        async with served(home) as server:
            async with http(server, hers) as anna:
                first, second = await life_of(anna)
                assert f"{SECRET}core" in (await anna.get("/api/v1/memory")).text
            secrets = [SECRET, *(each for name, each in second.items())]
            before = rows_of(server.database, "anna")
            assert {"facts", "people", "topics", "runs", "turns", "messages", "tasks"} <= {
                table for table, rows in before.items() if rows
            }
            asked_before = len(llm.requests)
            llm.respond = lambda _: text_reply("ok")
            known = Known({**first, "into": first["person"], "task": first["name"], "text": HOOK, "query": HOOK,
                "what": f"fact:{first['fact']}", "user": "anna", "before": first["run"]})  # fmt: skip
            answers = []
            async with http(server, his) as boris:
                await ask_all(boris, requests(known), answers)
                await ask_all(boris, mcp_requests(known), answers)
            await speak(server.url, his, [{"type": "hello", "version": 2}, *frames(known)], answers)
            assert json.loads(answers[-1][-1])["ref"] == "the end"
            for word in known.words:
                await speak(server.url, his, [{"type": "hello", "version": 2, "chats": {word: 0}}], answers)
            told = [each for each in answers if any(secret in str(each[-1]) for secret in secrets)]
            assert not told, told[:5]
            failed = [each for each in answers if len(each) == 5 and each[3] == 500]
            assert not failed, failed[:5]
            assert not [each for each in llm.requests[asked_before:] if SECRET in str(each.body)]
            assert rows_of(server.database, "anna") == before
            assert len(answers) > 2_000
            done = [each for each in answers if each[1] == mcp.PATH and '"isError":false' in each[-1]]
            assert {each[2]["json"]["params"]["name"] for each in done} >= {"list", "save", "search"}  # not all refused


async def test_a_viewer_changes_nothing_and_one_who_is_none_any_more_sees_nothing(tmp_path):
    home = write_home(tmp_path, gateway={"http": {"requestsPerSecond": 100_000}})
    tokens = tokens_file(home / "config")
    hers, his = (add_token(tokens, user, "2026-01-01T00:00:00Z")[1] for user in ("anna", "boris"))
    async with served(home) as server, http(server, hers) as anna, http(server, his) as boris:
        base = (await anna.post("/api/v1/kb", json={"name": said("base")})).json()["base"]["id"]
        files = [
            (await anna.post(f"/api/v1/kb/{base}/files", params={"name": name}, content=said(name).encode())).json()
            for name in ("one.txt", "two.txt")
        ]
        source = files[0]["source"]["id"]
        known = Known({"base": base, "source": source, "document": document_id(source, "one.txt"), "what": HOOK,
            "chat": "main", "fact": base, "person": base, "member": "boris", "query": HOOK, "name": HOOK,
            "sha256": files[0]["source"]["sha256"], "turn": base, "message": base})  # fmt: skip

        async def read():
            listed = (await anna.get(f"/api/v1/kb/{base}/documents")).json()["documents"]
            return len(listed) == 2 and all(each["state"] == "read" for each in listed)

        await until(read)
        own = ("kb_leave", "kb_list", "kb_create", "kb_upload")
        kb = {(each.method, each.path) for each in doors() if each.operation.noun.word == "kb"}
        paths = {path for method, path in kb} | {"/api/v1/kb/{base}/files"}
        kept = {each.operation.name: each.path for each in doors()}
        left = paths - {kept[name] for name in own}

        def asked():
            for method, path, how in requests(known):
                if any(_fits(path, each) for each in left) and not path.endswith("/leave"):
                    yield method, path, how

        await anna.post(f"/api/v1/kb/{base}/share", json={"member": "boris", "role": "viewer"})
        before, answers = rows_of(server.database, "anna"), []
        await ask_all(boris, asked(), answers)
        assert rows_of(server.database, "anna") == before
        assert len(answers) > 300
        seen = {each[1] for each in answers if each[3] == 200 and SECRET in each[4]}
        assert {f"/api/v1/kb/{base}", f"/api/v1/kb/{base}/documents"} <= seen
        failed = [each for each in answers if each[3] >= 500]
        assert not failed, failed[:3]
        await anna.post(f"/api/v1/kb/{base}/share", json={"member": "boris", "role": "none"})
        answers = []
        await ask_all(boris, asked(), answers)
        told = [each for each in answers if SECRET in each[4]]
        assert not told, told[:3]
        assert (await anna.get(f"/api/v1/kb/{base}")).json()["base"]["members"] == {}


def _fits(path, template):
    parts, wanted = path.split("/"), template.split("/")
    return len(parts) == len(wanted) and all(
        each == part or part.startswith("{") for each, part in zip(parts, wanted, strict=True)
    )
