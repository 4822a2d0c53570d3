"""Files of messages in turns: what both kinds of providers are sent, and what a model without eyes is told."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from klaw.domain.attachment import NamedFile
from klaw.domain.names import LOCAL_USER
from klaw.errors import AttachmentRefused
from tests.support.chats_world import World, world
from tests.support.llm_server import error_reply, text_reply
from tests.support.programs.anthropic_server import serve_anthropic

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
ENCODED = base64.b64encode(PNG).decode()
CONTRACT = "Договор: сдача квартиры на Лесной.\nThe rent is 40,000 a month."
SEES = {"model": {"images": True, "contextTokens": 100_000}}


async def kept(w: World, name: str, data: bytes) -> NamedFile:
    async def pieces() -> AsyncIterator[bytes]:
        yield data

    file = await w.app.core.attachments.keep(LOCAL_USER, name, pieces())
    return NamedFile(sha256=file.sha256, name=file.name)


async def say(w: World, number: int, text: str, *files: NamedFile) -> str:
    """Send a message; returns the n-th answer."""
    await w.app.chats.send(LOCAL_USER, "main", f"m{number}", text, files)
    return (await w.reply(number)).content


async def test_a_model_with_eyes_is_given_pictures_and_text_by_openais_api(tmp_path: Path) -> None:
    async with world(tmp_path, models=SEES) as w:
        w.llm.replies += [text_reply("Дача и договор."), text_reply("Всё ещё дача.")]
        files = await kept(w, "дача.png", PNG), await kept(w, "договор.txt", CONTRACT.encode())
        assert await say(w, 1, "Что это?", *files) == "Дача и договор."
        text = (
            "Что это?\n[picture дача.png]\n"
            f"[file договор.txt, {len(CONTRACT.encode())} bytes: its text]\n"
            "> Договор: сдача квартиры на Лесной.\n> The rent is 40,000 a month."
        )
        shown: list[dict[str, Any]] = [
            {"type": "text", "text": text},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
        ]
        assert w.contents() == [shown]
        await say(w, 2, "Точно?")
        assert w.contents() == [shown, "Дача и договор.", "Точно?"]
        record = await w.receipt()
        assert record.receipt["budget"]["used_tokens"] > 1_600


async def test_a_model_with_eyes_is_given_pictures_by_anthropics_api(tmp_path: Path) -> None:
    async with serve_anthropic() as claude:
        models = {"m": {"images": True, "contextTokens": 100_000}}
        providers = {"claude": {"type": "anthropic", "baseUrl": claude.url, "apiKey": "k", "models": models}}
        async with world(tmp_path, providers=providers, routing={"default": "claude/m"}) as w:
            claude.replies.append(text_reply("A summer house."))
            assert await say(w, 1, "", await kept(w, "house.png", PNG)) == "A summer house."
            (message,) = claude.requests[0].body["messages"]
            assert [block["type"] for block in message["content"]] == ["image", "text"]
            assert message["content"][0]["source"] == {"type": "base64", "media_type": "image/png", "data": ENCODED}
            assert message["content"][1]["text"] == "[picture house.png]"


async def test_a_model_without_eyes_is_told_of_the_picture(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await say(w, 1, "What is this?", await kept(w, "house.png", PNG))
        assert w.contents() == ["What is this?\n[picture house.png, which this model cannot see]"]


async def test_a_fallback_without_eyes_is_told_too(tmp_path: Path) -> None:
    providers = {"down": {"baseUrl": "http://127.0.0.1:1/v1", "maxRetries": 0, "models": {"x": {"images": True}}}}
    routing = {"default": "down/x", "fallback": ["stub/model"]}
    async with world(tmp_path, providers=providers, routing=routing) as w:
        await say(w, 1, "What is this?", await kept(w, "house.png", PNG))
        assert w.contents() == ["What is this?\n[picture house.png]\n[an image that this model cannot see]"]


async def test_a_picture_that_is_gone_is_said_to_be_missing_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path, models=SEES) as w:
        await say(w, 1, "What is this?", await kept(w, "house.png", PNG))
        for path in tmp_path.glob("data/attachments/*"):  # noqa: ASYNC240
            path.unlink()
        await say(w, 2, "And now?")
        assert w.contents()[0] == "What is this?\n[picture house.png, which is not shown here]"


async def test_a_message_with_files_is_no_command(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await say(w, 1, "/new", await kept(w, "a.txt", b"hello"))
        assert w.contents() == ["/new\n[file a.txt, 5 bytes: its text]\n> hello"]


async def test_a_file_that_is_not_there_refuses_its_message_only(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        with pytest.raises(AttachmentRefused, match="no such file"):
            await say(w, 1, "see", NamedFile(sha256="0" * 64))
        assert await say(w, 1, "hello") == "ok"
        assert w.contents() == ["hello"]


async def test_the_learned_length_of_tokens_is_not_spoiled_by_pictures(tmp_path: Path) -> None:
    async with world(tmp_path, models=SEES) as w:
        unknown = w.app.llm.correction.of("stub/model")
        await say(w, 1, "hello")
        learned = w.app.llm.correction.of("stub/model")
        assert learned != unknown
        await say(w, 2, "What is this?", await kept(w, "house.png", PNG))
        assert w.app.llm.correction.of("stub/model") == learned


async def test_a_picture_that_the_provider_cannot_read_does_not_end_the_chat(tmp_path: Path) -> None:
    async with world(tmp_path, models=SEES) as w:
        w.llm.replies += [error_reply(400), text_reply("I cannot see it.")]
        assert await say(w, 1, "What is this?", await kept(w, "broken.png", PNG)) == "I cannot see it."
        assert w.contents() == ["What is this?\n[picture broken.png]\n[an image that this model cannot see]"]
        assert [type(request.body["messages"][-1]["content"]) for request in w.llm.requests] == [list, str]
        w.llm.replies += [error_reply(401)]
        await w.app.chats.send(LOCAL_USER, "main", "m2", "And now?")
        assert (await w.turn(2)).code == "llm_refused"
        assert len(w.llm.requests) == 3
