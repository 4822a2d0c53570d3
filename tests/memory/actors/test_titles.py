"""Titles that a model makes of chats whose names Klaw made."""

import json
from pathlib import Path
from typing import Any

import pytest

from klaw.domain.events import ChatChanged
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.memory.titles import read_title
from klaw.store.kinds import chats
from klaw.store.kinds.chats import StoredChat
from tests.support.chats_world import World, world
from tests.support.forgetting import holding
from tests.support.llm_server import error_reply, text_reply
from tests.support.waiting import until

NAME, CHAT = "chat-1aaaaaaa", chat_id(LOCAL_USER, "chat-1aaaaaaa")


async def titled(w: World, number: int = 1) -> str:
    """The n-th title that the model made."""

    def made(events: list[Any]) -> Any:
        found = [each for each in events if isinstance(each, ChatChanged)]
        return found[number - 1].title if len(found) >= number else None

    return await w.watcher.until(made)


async def about(w: World) -> StoredChat:
    found = await w.app.core.readers.run(chats.get, LOCAL_USER, CHAT)
    assert found is not None
    return found


async def test_a_new_chat_is_called_by_its_first_message_and_then_by_a_model(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies += [text_reply("Вот **план**: Казань, три дня."), text_reply("«Поездка в Казань»\n")]
        await w.send("Помоги спланировать поездку на выходные в Казань с двумя детьми и собакой", chat=NAME)
        await w.turn(1)
        assert await titled(w) == "Поездка в Казань"
        found = await about(w)
        assert (found.title, found.named, found.preview) == ("Поездка в Казань", True, "Вот план: Казань, три дня.")
        asked = json.dumps(w.llm.requests[-1].body, ensure_ascii=False)
        assert "[user] Помоги спланировать" in asked
        await w.send("И обратно", chat=NAME)
        await w.turn(2)
        w.app.memory.titler.nudge()
        await w.app.memory.titler.wait_idle()
        assert len(w.llm.requests) == 3  # once

        # What it was made of is forgotten: it goes, too.
        forgetter = w.app.memory.forgetter
        await forgetter.forget(await forgetter.find(f"{NAME}#1", LOCAL_USER))
        assert (await about(w)).title == "И обратно"
        assert holding(tmp_path / "data" / "memory", "Поездка в Казань") == {}


async def test_no_model_is_asked_for_a_chat_that_has_a_name_a_title_or_is_temporary(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        run = w.app.core.writer.run
        await w.send("Hello there, this is a long first message", chat="garden")
        await w.turn(1)
        await run(chats.begin_temporary, LOCAL_USER, CHAT, "2026-11-22T10:00:00.000Z")
        await w.send("Hello there, this is a long first message", chat=NAME)
        await w.turn(2)
        await w.app.memory.titler.wait_idle()
        assert len(w.llm.requests) == 2
        await run(chats.rename, LOCAL_USER, CHAT, "🌱 Сад", "2026-11-22T10:00:00.000Z")
        await run(chats.keep, LOCAL_USER, CHAT, "2026-11-22T10:00:00.000Z")
        w.app.memory.titler.nudge()
        await w.app.memory.titler.wait_idle()
        assert ((await about(w)).title, len(w.llm.requests)) == ("🌱 Сад", 2)


async def test_a_bad_answer_or_a_failure_leaves_the_title_of_the_first_message(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies += [
            text_reply("Hi!"),
            text_reply("I am sorry, but I cannot give a title to anything of this kind"),
        ]
        await w.send("How do I prune an old apple tree?", chat=NAME)
        await w.turn(1)
        await w.app.memory.titler.wait_idle()
        assert ((await about(w)).title, len(w.llm.requests)) == ("How do I prune an old apple tree?", 2)
        w.llm.replies += [text_reply("Hi!"), error_reply(400, "no")]
        await w.send("How do I prune a pear tree?", chat="chat-2aaaaaaa")
        await w.turn(2)
        await until(lambda: len(w.llm.requests) == 4)
        assert await w.app.core.readers.run(chats.untitled) == (LOCAL_USER, chat_id(LOCAL_USER, "chat-2aaaaaaa"))


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Pruning an apple tree.", "Pruning an apple tree"),
        ("**План поездки**\n\nвот так", "План поездки"),
        ("\n# “Roses” \n", "Roses"),
        ("…", ""),
        ("", ""),
        ("word " * 11, ""),
        ("x" * 300, ""),
        ("evil\u202etitle", "eviltitle"),
        ("<b>bold</b> & co", "<b>bold</b> & co"),
    ],
)
def test_reading_a_title(answer: str, title: str) -> None:
    assert read_title(answer) == title
