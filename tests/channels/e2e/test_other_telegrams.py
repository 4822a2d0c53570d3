"""Klaw's Telegram against two emulators of the Bot API that others have written, as far as each of them goes:
telegram-test-api (npm) has updates to ask for, but neither waiting nor offsets, and no files; telemelya (Python, on
Redis and S3) has files, but brings updates to a webhook only."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from klaw.channels.messenger import Bot, Button, ButtonPress, IncomingMessage, Part, Unreachable
from klaw.channels.telegram import Telegram
from klaw.channels.telegram_updates import events
from tests.support.llm_server import LlmServer, serve_llm
from tests.support.server import free_port
from tests.support.services.imitation import json_reply
from tests.support.waiting import until

FOLDER = Path(os.environ.get("KLAW_TEST_TELEGRAMS", "none"))
INSTALL = (
    "set KLAW_TEST_TELEGRAMS=DIR after `npm i --prefix DIR telegram-test-api@4.2.1`, and for telemelya"
    " `python3 -m venv DIR/venv`, `DIR/venv/bin/pip install telemelya==0.2.2 'moto[server,s3]'`, Debian's redis-server"
)
needs_npm = pytest.mark.skipif(not (FOLDER / "node_modules/telegram-test-api").exists(), reason=INSTALL)
needs_telemelya = pytest.mark.skipif(not (FOLDER / "venv/bin/telemelya-server").exists(), reason=INSTALL)
TOKEN = "42:AAother-emulator"
NODE = "const Server = require('telegram-test-api'); new Server({port: +process.argv[1], host: '127.0.0.1'}).start()"
ANNA = {"id": 77, "is_bot": False, "first_name": "Anna"}
CHAT = {"id": 77, "type": "private", "first_name": "Anna"}


@asynccontextmanager
async def running(*commands: tuple[list[str], Mapping[str, str]], ports: list[int]) -> AsyncIterator[None]:
    """Other people's servers, until the block ends; all listen before it begins."""
    async with trio.open_nursery() as nursery:
        for command, variables in commands:
            silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            start = partial(trio.run_process, command, cwd=FOLDER, env={**os.environ, **variables}, check=False)
            await nursery.start(partial(start, **silent))
        for port in ports:
            await until(lambda port=port: _listens(port), every_s=0.1)
        yield
        nursery.cancel_scope.cancel(reason="the test is over")


async def _listens(port: int) -> bool:
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        return False
    await stream.aclose()
    return True


@needs_npm
async def test_telegram_test_api() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with (
        running((["node", "-e", NODE, str(port)], {}), ports=[port]),
        httpx2.AsyncClient(base_url=url, timeout=60) as people,
    ):
        bot = Telegram(TOKEN, url)
        assert (await bot.open()).name == "@TestNameBot"
        common = {"botToken": TOKEN, "from": ANNA, "chat": CHAT, "date": 1_700_000_000}
        await people.post("/sendMessage", json={**common, "text": "Hello"})
        command = [{"type": "bot_command", "offset": 0, "length": 6}]
        await people.post("/sendCommand", json={**common, "text": "/start AB12", "entities": command})
        batch = await bot.receive(None)
        assert [(event.text, event.sender.name) for event in batch.events if isinstance(event, IncomingMessage)] == [
            ("Hello", "Anna"),
            ("/start AB12", "Anna"),
        ]
        assert (await bot.receive(batch.position)).events == ()

        (part,) = bot.render("Run `ls -l`, **Anna**?")
        sent = await bot.post("77", part, "1", buttons=[Button(label="Yes", data="approve:1")])
        await bot.edit("77", sent, Part(text="Done.", formatted="<b>Done.</b>"), "2")
        shown = (await people.post("/getUpdates", json={"token": TOKEN, "chatId": 77})).json()["result"]
        assert [(each["message"]["text"], each["message"]["parse_mode"]) for each in shown] == [
            ("<b>Done.</b>", "HTML")
        ]

        number = int(sent.partition(":")[2])
        pressed = {**common, "data": "approve:1", "message": {"message_id": number, "chat": CHAT, "from": ANNA}}
        await people.post("/sendCallback", json=pressed)
        (event,) = (await bot.receive(batch.position)).events
        assert isinstance(event, ButtonPress)
        assert (event.data, event.message) == ("approve:1", sent)
        await bot.confirm(event, "Approved")
        with pytest.raises(Unreachable, match="status 500"):  # it has no sendChatAction
            await bot.working("77")
        await bot.close()


@needs_telemelya
async def test_telemelya(tmp_path: Path) -> None:
    redis, s3, port = free_port(), free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "MOCK_SERVER_HOST": "127.0.0.1",
        "MOCK_SERVER_PORT": str(port),
        "REDIS_URL": f"redis://127.0.0.1:{redis}/0",
        "MINIO_ENDPOINT": f"127.0.0.1:{s3}",
        "STRICT_EDIT": "true",
    }
    stores = [
        (["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)], {}),
        ([str(FOLDER / "venv/bin/moto_server"), "-H", "127.0.0.1", "-p", str(s3)], {}),
    ]
    server = ([str(FOLDER / "venv/bin/telemelya-server")], settings)
    headers = {"authorization": "Bearer any", "x-test-session": "s"}
    async with (
        running(*stores, ports=[redis, s3]),
        running(server, ports=[port]),
        serve_llm(LlmServer()) as webhook,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as people,
    ):
        webhook.respond = lambda _request: json_reply({})
        bot = Telegram(TOKEN, url)
        me = await bot.open()
        assert me.name == "@telemelya_bot"
        await people.post(f"/bot{TOKEN}/setWebhook", json={"url": webhook.url})

        await _delivers(people, {"chat_id": 77, "text": "Hello"})
        await _delivers(people, {"chat_id": 77, "command": "start AB12"})
        assert [event.text for event in _events(webhook, me) if isinstance(event, IncomingMessage)] == [
            "Hello",
            "/start AB12",
        ]

        (part,) = bot.render("Run `ls -l`, **Anna**?")
        sent = await bot.post("77", part, "1", buttons=[Button(label="Yes", data="approve:1")])
        await bot.working("77")
        await bot.edit("77", sent, Part(text="Done.", formatted="<b>Done.</b>"), "2")
        picture = b"\x89PNG\r\n\x1a\n" + bytes(3000)
        await bot.upload("77", "Plan.png", "image/png", picture, "3")
        number = int(sent.partition(":")[2])
        await _delivers(people, {"chat_id": 77, "callback_data": "approve:1", "callback_message_id": number})
        pressed = _events(webhook, me)[-1]
        assert isinstance(pressed, ButtonPress)
        assert (pressed.data, pressed.message) == ("approve:1", sent)
        await bot.confirm(pressed, "Approved")

        answer = (await people.get("/api/v1/test/responses", params={"session_id": "s"})).json()["responses"]
        calls = {each["method"]: each for each in answer}
        assert list(calls) == ["sendMessage", "sendChatAction", "editMessageText", "sendPhoto", "answerCallbackQuery"]
        assert calls["sendMessage"]["text"] == "Run <code>ls -l</code>, <b>Anna</b>?"
        buttons = [[{"text": "Yes", "callback_data": "approve:1"}]]
        assert calls["sendMessage"]["reply_markup"] == {"inline_keyboard": buttons}
        assert (calls["editMessageText"]["text"], calls["sendChatAction"]["action"]) == ("<b>Done.</b>", "typing")
        assert calls["answerCallbackQuery"]["text"] == "Approved"

        photo = {"chat_id": 77, "photo_file_id": calls["sendPhoto"]["file_id"], "photo_caption": "Look"}
        await _delivers(people, photo)
        message = _events(webhook, me)[-1]
        assert isinstance(message, IncomingMessage)
        assert message.text == "Look"
        assert b"".join([chunk async for chunk in bot.download(message.files[0])]) == picture
        await bot.close()


async def _delivers(people: httpx2.AsyncClient, update: dict[str, Any]) -> None:
    answer = await people.post("/api/v1/test/send_update", params={"bot_token": TOKEN}, json=update)
    assert answer.status_code == 200, json.dumps(answer.json())


def _events(webhook: LlmServer, bot: Bot) -> list[Any]:
    return events([request.body for request in webhook.requests], bot)
