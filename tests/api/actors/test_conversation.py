"""A message that is sent over HTTP and its answer, in a running Klaw: whatever happens, it ends and nothing is left."""

from contextlib import asynccontextmanager

import pytest
import trio

from klaw.api import conversation
from klaw.api.conversation import ask
from klaw.api.problems import of_error
from klaw.chats import chat as chat_module
from klaw.chats.requests import HTTP, Submit
from klaw.domain.message import TurnStatus
from klaw.domain.names import LOCAL_USER
from klaw.errors import ChatBusy, IdConflict, StorageFull, TooManyChats
from klaw.store.kinds import messages
from tests.support.chats_world import world
from tests.support.llm_server import Cut, Reply, Text, Wait, text_reply
from tests.support.stores import new
from tests.support.waiting import HANG_S, until


@asynccontextmanager
async def klaw(tmp_path, **sections):
    """It tells what happens to its hub, as a server does."""
    async with world(tmp_path, **sections) as w:
        del w.app.hub.emit
        yield w
        assert w.app.hub.watchers(w.chat) == 0


def asking(w, text="Привет", id="m1", chat="main"):  # noqa: A002
    return ask(w.app, LOCAL_USER, chat, Submit(id=id, text=text, channel=HTTP))


async def answered(w, *what, **how):
    with trio.fail_after(HANG_S):
        async with asking(w, *what, **how) as asked:
            return await asked.wait()


async def test_one_who_goes_away_is_forgotten_and_the_chat_goes_on(tmp_path):
    async with klaw(tmp_path) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Text("При"), Wait(gate), Text("вет"))))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answered, w)
            await w.llm.wait_for_requests(1)
            nursery.cancel_scope.cancel(reason="the client has gone")
        assert w.app.hub.watchers(w.chat) == 0
        gate.set()
        again = await answered(w)
        assert (again.status, again.answer.content) == (TurnStatus.DONE, "Привет")
        assert len(w.llm.requests) == 1


async def test_the_same_message_twice_at_the_same_time_is_answered_once_to_both(tmp_path):
    async with klaw(tmp_path) as w:
        outcomes = []

        async def keep():
            outcomes.append(await answered(w))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            nursery.start_soon(keep)
        assert [(each.status, each.answer.content) for each in outcomes] == [(TurnStatus.DONE, "ok")] * 2
        assert len(w.llm.requests) == 1


async def test_a_message_sent_again_later_brings_its_own_answer(tmp_path):
    async with klaw(tmp_path) as w:
        w.llm.replies += [text_reply("first"), text_reply("second")]
        await answered(w, "one", "m1")
        await answered(w, "two", "m2")
        assert [(await answered(w, *each)).answer.content for each in (("one", "m1"), ("two", "m2"))] == [
            "first",
            "second",
        ]
        with pytest.raises(IdConflict) as refused:
            await answered(w, "one", chat="other")
    assert of_error(refused.value).status_code == 409


async def test_what_nothing_answers_ends(tmp_path, monkeypatch):
    """It was stored before a start of the server long after, which leaves it alone."""
    monkeypatch.setattr(conversation, "LOOK_S", 0.05)
    async with klaw(tmp_path) as w:
        await w.app.core.writer.run(messages.append, [new("Привет", id="m1")])
        left = await answered(w)
        assert (left.status, left.code, left.answer) == (TurnStatus.FAILED, "turn_failed", None)
        assert "/retry" in left.text
        gate = trio.Event()
        w.llm.replies.append(Reply(before_head=(Wait(gate),), steps=(Text("ok"),)))
        async with asking(w, "/retry", "m2") as asked:
            await asked.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answered, w)
            await w.llm.wait_for_requests(1)
            await trio.sleep(0.3)  # looked several times: a turn runs
            gate.set()
        assert (await answered(w)).status is TurnStatus.DONE


async def test_an_actor_that_crashes_meanwhile_answers_after_its_restart(tmp_path, monkeypatch):
    async with klaw(tmp_path) as w:
        real, crashes = chat_module.Turn.run, []

        async def crash_once(turn):
            if not crashes:
                crashes.append(turn)
                raise RuntimeError
            return await real(turn)

        monkeypatch.setattr(chat_module.Turn, "run", crash_once)
        outcome = await answered(w)
        assert crashes
        assert (outcome.status, outcome.answer.content) == (TurnStatus.DONE, "ok")


async def test_an_answer_that_is_stopped_and_one_that_breaks_off(tmp_path):
    async with klaw(tmp_path) as w:
        w.llm.replies += [Reply(steps=(Text("half"), Wait(trio.Event()))), Reply(steps=(Text("half"), Cut()))]
        async with trio.open_nursery() as nursery, asking(w) as asked:
            async for news in asked:
                if getattr(news, "text", None) == "half":
                    nursery.start_soon(w.app.chats.stop, LOCAL_USER, "main")
        assert (asked.outcome.status, asked.outcome.answer.content) == (TurnStatus.STOPPED, "half")
        broken = await answered(w, "again", "m2")
        assert (broken.status, broken.answer) == (TurnStatus.FAILED, None)
        assert broken.code.startswith("llm_")
        assert broken.text


async def test_a_reader_that_is_too_slow_is_given_up_and_the_answer_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(conversation, "MAX_EVENTS", 2)
    async with klaw(tmp_path) as w:
        async with asking(w) as asked:
            await until(lambda: w.llm.requests and w.app.chats.chat_status(w.chat)["state"] == "idle")
            with pytest.raises(ChatBusy):
                await asked.wait()
        assert (await answered(w)).answer.content == "ok"


async def test_a_user_with_too_many_chats_and_a_full_disk(tmp_path):
    async with klaw(tmp_path, chats={"maxPerUser": 1}) as w:
        await answered(w)
        with pytest.raises(TooManyChats) as refused:
            await answered(w, chat="other", id="m2")
    assert of_error(refused.value).status_code == 409
    assert of_error(StorageFull("x")).status_code == 507
