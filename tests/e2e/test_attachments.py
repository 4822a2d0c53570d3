"""Files of messages against a real server: uploaded, sent and fetched over kill -9 and restarts; nobody else's."""

import base64
import tempfile
from pathlib import Path

import pytest

from klaw.client.connection import connect
from klaw.errors import RequestRefused
from klaw.wire.files import Fetch, Fetched
from klaw.wire.frames import GetHistory, History
from tests.actors.client.test_chat_command import desk
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
                page = await client.request(GetHistory(chat="main"))
                assert isinstance(page, History)
                assert page.messages[0].files == files
                got = b""
                while len(got) < len(PNG):
                    piece = await client.request(Fetch(sha256=files[0].sha256, offset=len(got)))
                    assert isinstance(piece, Fetched)
                    got += piece.data
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
