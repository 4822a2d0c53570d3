"""Edited messages and repeated answers in chats: what the model is given, what is refused, what watchers are told."""

from pathlib import Path

import pytest
import trio

from klaw.chats.requests import Submit
from klaw.domain.events import VariantShown
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import LOCAL_USER
from klaw.errors import AnswerRunning, CannotReplace
from klaw.store.kinds.variants.replace import Wish
from tests.support.chats_world import World, world
from tests.support.llm_server import Reply, Text, Wait, text_reply


async def edit(w: World, which: int | str, text: str) -> None:
    await w.app.chats.vary(LOCAL_USER, "main", Wish(which=which, edits=True), Submit(id=f"edit {text}", text=text))


async def again(w: World, which: int | None = None) -> None:
    await w.app.chats.vary(LOCAL_USER, "main", Wish(which=which), Submit(id="again", text=""))


async def told(w: World, count: int) -> None:
    await w.watcher.until(lambda events: sum(isinstance(each, VariantShown) for each in events) == count)


async def test_the_model_is_given_the_variant_that_is_shown(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies += [text_reply(f"answer {number}") for number in range(1, 7)]
        first = await w.send("первый вопрос")
        await w.turn(1)
        await w.send("second question")
        await w.turn(2)
        await edit(w, first.message.id, "another question")
        await w.turn(3)
        assert w.contents() == ["another question"]
        await again(w)
        await w.turn(4)
        assert w.contents() == ["another question"]
        await w.app.chats.vary(LOCAL_USER, "main", Wish(which=5, number=1), Submit(id="", text=""))
        await told(w, 3)
        await w.send("third question")
        await w.turn(5)
        asked = ["первый вопрос", "answer 1", "second question", "answer 2", "third question"]
        assert w.contents() == asked


async def test_nothing_is_replaced_while_an_answer_is_written(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Text("wait"), Wait(gate), Text(" for it"))))
        await w.send("one")
        await w.llm.wait_for_requests(1)
        with pytest.raises(AnswerRunning):
            await edit(w, 1, "two")
        gate.set()
        await w.turn(1)
        await edit(w, 1, "two")
        await w.turn(2)
        assert w.contents() == ["two"]
        with pytest.raises(CannotReplace):
            await edit(w, 1, "three")


async def test_slash_commands_edit_the_last_message_and_have_it_answered_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies += [text_reply(f"answer {number}") for number in range(1, 4)]
        await w.send("one")
        await w.turn(1)
        assert "kept as a variant" in await w.command("/edit два")
        await w.turn(2)
        assert w.contents() == ["два"]
        assert "kept as a variant" in await w.command("/regenerate stub/other", 2)
        await w.turn(3)
        assert (w.contents(), w.llm.requests[-1].body["model"]) == (["два"], "other")
        assert "Say the new text too" in await w.command("/edit", 3)
        answer = await w.reply(3, kind=MessageKind.TEXT, role=Role.ASSISTANT)
        assert answer.content == "answer 3"


async def test_a_question_without_an_answer_is_answered_without_a_variant(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Wait(gate),)))
        await w.send("one")
        await w.llm.wait_for_requests(1)
        assert await w.app.chats.stop(LOCAL_USER, "main")
        await w.turn(1)
        await again(w, 1)
        await w.turn(2)
        assert w.contents() == ["one"]
