"""Files of messages against a real server: uploaded, sent and fetched over kill -9 and restarts; nobody else's."""

import base64
import tempfile
from pathlib import Path

import pytest

from klaw.client.client import messages_of
from klaw.client.connection import connect
from klaw.errors import RequestRefused
from klaw.gateway.tokens import add_token, tokens_file
from tests.client.actors.test_chat_command import desk
from tests.e2e.test_http import http
from tests.support.llm_server import serve_llm
from tests.support.server import served, write_home
from tests.support.waiting import until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 700
TEXT = "Договор аренды: 40 000 рублей. Rent: 40,000 roubles.".encode()
SEES = {"echo": {"images": True, "contextTokens": 100_000}}


async def test_an_acknowledged_message_has_its_files_after_kill_9(tmp_path):
    async with serve_llm() as llm:
        config = {"baseUrl": llm.url, "maxRetries": 0, "timeoutSeconds": 20, "models": SEES}
        home = write_home(tmp_path, llm=llm.url, providers={"stub": config})
        async with served(home) as server:
            async with connect(server.url) as client:
                files = [await client.upload("дача.png", PNG), await client.upload("../договор.txt", TEXT)]
                assert [(each.name, each.type) for each in files] == [
                    ("дача.png", "image/png"),
                    ("договор.txt", "text/plain"),
                ]
            await server.kill()
            await server.start()
            async with connect(server.url) as client:
                await client.send("main", "Что это?", "m1", files)
                await server.kill()
            await server.start()
            async with connect(server.url) as client:
                page = messages_of(await client.call("chats_messages", chat="main"))
                assert page.messages[0].files == files
                got = b""
                while len(got) < len(PNG):
                    piece = await client.call("file_piece", sha256=files[0].sha256, offset=len(got))
                    got += base64.b64decode(piece["data"])
                assert got == PNG
                await until(lambda: llm.requests)
                (asked,) = [each for each in llm.requests[-1].body["messages"] if each["role"] == "user"]
                assert base64.b64encode(PNG).decode() in asked["content"][1]["image_url"]["url"]
                assert "> Договор аренды" in asked["content"][0]["text"]
            assert "договор" not in server.stderr.lower()
            assert "дача" not in server.stderr.lower()


async def test_a_file_that_is_gone_is_said_clearly(tmp_path):
    async with served(write_home(tmp_path)) as server, connect(server.url) as client:
        file = await client.upload("a.txt", TEXT)
        for path in (server.data / "attachments").iterdir():
            path.unlink()
        with pytest.raises(RequestRefused, match="upload it again") as refused:
            await client.send("main", "look", "m1", [file])
        assert refused.value.code == "unknown_file"
        await client.send("main", "look", "m1")  # the same id may be used: nothing was stored


async def test_a_file_is_attached_at_the_terminal(tmp_path):
    with tempfile.TemporaryDirectory() as short:  # lines are wrapped
        (Path(short) / "фото дачи.png").write_bytes(PNG)
        await at_the_terminal(tmp_path, short)


async def at_the_terminal(tmp_path, short):
    async with serve_llm() as llm, served(write_home(tmp_path / "home", llm=llm.url)) as server, desk(server) as person:
        await person.see("> ")
        person.type(f"/attach {short}/нет.txt\r")
        await person.see("cannot be read: No such file or directory")
        person.type(f"/attach {short}/фото дачи.png\r")
        await person.see("фото дачи.png goes with your next message")
        person.type("что это?\r")
        await person.see("ok")
        (asked,) = [each for each in llm.requests[-1].body["messages"] if each["role"] == "user"]
        assert asked["content"] == "что это?\n[picture фото дачи.png, which this model cannot see]"
        person.type("/quit\r")
        assert await person.leave() == 0
    async with served(tmp_path / "home") as server, desk(server) as person:
        await person.see("[picture фото дачи.png]")
        person.type("\x04")
        assert await person.leave() == 0


async def test_a_file_over_http(tmp_path):
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url)
        tokens = tokens_file(home / "config")
        (_, anna), (_, bob) = (add_token(tokens, user, "2026-01-01T00:00:00Z") for user in ("anna", "bob"))
        async with served(home) as server:
            await over_http(server, anna, bob)


async def over_http(server, anna, bob):
    async with http(server, anna) as a, http(server, bob) as b, http(server) as nobody:
        put = await a.post("/api/v1/files", params={"name": "../дача.png"}, content=PNG)
        assert (put.status_code, put.json()["file"]["name"], put.json()["file"]["type"]) == (
            201,
            "дача.png",
            "image/png",
        )
        contract = (await a.post("/api/v1/files?name=%D0%B0.html", content=TEXT)).json()["file"]
        named = [{"sha256": each["sha256"], "name": each["name"]} for each in (put.json()["file"], contract)]
        body = {"text": "", "files": named}
        sent = await a.post("/api/v1/chats/main/messages", json=body, headers={"Idempotency-Key": "m1"})
        assert [each["name"] for each in sent.json()["message"]["files"]] == ["дача.png", "а.html"]
        assert sent.json()["answer"]["content"] == "ok"
        page = (await a.get("/api/v1/chats/main/messages")).json()
        assert page["messages"][0]["files"] == sent.json()["message"]["files"]
        got = await a.get(f"/api/v1/files/{named[0]['sha256']}", params={"name": "дача.png"})
        assert (got.content, got.headers["content-type"]) == (PNG, "image/png")
        assert got.headers["x-content-type-options"] == "nosniff"
        text = await a.get(f"/api/v1/files/{named[1]['sha256']}")
        assert (text.content, text.headers["content-type"]) == (TEXT, "application/octet-stream")
        assert text.headers["content-disposition"].startswith("attachment; ")
        theirs = await b.get(f"/api/v1/files/{named[0]['sha256']}")
        none = await b.get(f"/api/v1/files/{'0' * 64}")
        assert (theirs.status_code, theirs.json()) == (404, none.json())
        stolen = await b.post("/api/v1/chats/main/messages", json={"text": "hi", "files": named[:1]})
        assert (stolen.status_code, stolen.json()["code"]) == (404, "unknown_file")
        for odd in ("..%2F..%2Fklaw.db", "x", "A" * 64):
            assert (await a.get(f"/api/v1/files/{odd}")).status_code == 404
        assert (await nobody.get(f"/api/v1/files/{named[0]['sha256']}")).status_code == 401
        assert (await nobody.post("/api/v1/files", content=PNG)).status_code == 401
        empty = await a.post("/api/v1/chats/main/messages", json={"text": " "})
        assert (empty.status_code, empty.json()["code"]) == (400, "empty_text")
        many = await a.post("/api/v1/chats/main/messages", json={"text": "hi", "files": named * 6})
        assert (many.status_code, many.json()["errors"][0]["field"]) == (400, "files")


async def test_a_file_over_http_that_is_too_large(tmp_path):
    home = write_home(tmp_path, attachments={"maxFileBytes": 100_000})
    async with served(home) as server, http(server) as client:
        refused = await client.post("/api/v1/files", content=bytes(100_001))
        assert (refused.status_code, refused.json()["code"]) == (413, "file_too_large")
        assert "attachments.maxFileBytes" in refused.json()["detail"]
        assert list((server.data / "attachments").iterdir()) == []
        assert (await client.post("/api/v1/files", content=b"")).json()["code"] == "empty_file"
        assert (await client.get("/healthz")).status_code == 200
