"""The chat actor with its real parts: debounce, one turn at a time, commands, failures, restarts."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from klaw.actor.supervisor import ActorState
from klaw.app.app import recover_chats
from klaw.chats import chat as chat_module
from klaw.domain.events import StepChanged, TextStreamed
from klaw.domain.message import MessageKind, Role, TurnStatus
from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.errors import ActorStopped, IdConflict, InvalidName, TooManyChats
from klaw.store.kinds import messages
from tests.support.chats_world import world
from tests.support.llm_server import Reply, Text, Wait, error_reply, text_reply
from tests.support.stores import new, running_store
from tests.support.waiting import HANG_S, until
from tests.support.writing import Real, instead


async def test_messages_within_the_debounce_are_answered_together(tmp_path: Path) -> None:
    async with world(tmp_path, processing={"debounceMs": 300}) as w:
        for text in ("one", "two", "три"):
            await w.send(text)
        await w.turn(1)
        assert len(w.llm.requests) == 1
        assert w.contents() == ["one\ntwo\nтри"]


async def test_a_message_stored_in_the_moment_in_which_the_turn_is_due_is_answered(tmp_path: Path, monkeypatch) -> None:
    real, due = chat_module._ChatActor._turn_is_due, []

    def stored_just_before(actor: Any) -> bool:
        if not due and real(actor):
            due.append(actor.debounce.due)
            actor.debounce.add(trio.current_time())
        return real(actor)

    monkeypatch.setattr(chat_module._ChatActor, "_turn_is_due", stored_just_before)
    async with world(tmp_path) as w:
        await w.send("the end")
        await w.turn(1)
        assert due


async def test_instructions_of_a_program_are_for_the_answer_to_its_message_only(tmp_path: Path) -> None:
    """Not for the next one either when the message was sent twice, and stored once."""
    async with world(tmp_path) as w:
        for turn in (1, 1):
            await w.app.chats.send(LOCAL_USER, "main", "a", "one", channel="http", instructions="Отвечай как пират")
            await w.turn(turn)
        await w.send("two")
        await w.turn(2)
        asked = [json.dumps(request.messages, ensure_ascii=False) for request in w.llm.requests]
        assert ["пират" in each for each in asked] == [True, False]


async def test_each_step_before_the_answer_is_told(tmp_path: Path) -> None:
    """Waiting for more, for a slot, recalling, thinking; and that nothing is waited for any more after a stop."""
    async with world(tmp_path, processing={"debounceMs": 100, "maxConcurrentLlm": 1}) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Text("busy"), Wait(gate))))
        await w.send("holds the only slot", chat="other")
        await w.llm.wait_for_requests(1)
        await w.send("Когда?")

        def told(events: list[Any]) -> list[str]:
            return [event.step.value for event in events if isinstance(event, StepChanged) and event.chat == w.chat]

        await w.watcher.until(lambda events: "queued" in told(events))
        assert w.app.chats.chat_status(w.chat)["doing"] == "queued"
        gate.set()
        await w.turn(2)
        assert told(w.watcher.events) == ["waiting", "queued", "recalling", "thinking"]
        await w.send("never mind")
        assert await w.app.chats.stop(LOCAL_USER, "main")
        await w.watcher.until(lambda events: told(events)[4:] == ["waiting", "nothing"])


async def test_the_answer_is_streamed_then_stored_with_its_turn(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(text_reply("Hel", "lo"))
        await w.send("hi")
        reply = await w.reply()
        assert reply.content == "Hello"
        ended = await w.turn(1)
        assert reply.metadata == {"turn": ended.turn}
        pieces = [event for event in w.watcher.events if isinstance(event, TextStreamed)]
        assert [(piece.offset, piece.text) for piece in pieces] == [(0, "Hel"), (3, "lo")]
        record = await w.receipt()
        assert (record.status, record.first_seq, record.last_seq) == (TurnStatus.DONE, 1, 1)


async def test_messages_during_a_turn_form_the_next_one(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Text("first"), Wait(gate))))
        await w.send("a")
        await w.llm.wait_for_requests(1)
        await w.send("b")
        await w.send("c")
        assert len(w.llm.requests) == 1
        gate.set()
        await w.turn(2)
        assert len(w.llm.requests) == 2
        assert w.contents() == ["a", "first", "b\nc"]


async def test_a_repeated_id_is_answered_once(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        first = await w.send("hi", id="x")
        again = await w.send("hi", id="x")
        assert (again.repeated, again.message) == (True, first.message)
        await w.turn(1)
        await w.send("bye")
        await w.turn(2)
        assert [request.last_user for request in w.llm.requests] == ["hi", "bye"]


async def test_an_id_of_another_chat_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.send("hi", id="x")
        with pytest.raises(IdConflict):
            await w.send("hi", id="x", chat="other")


async def test_stop_keeps_what_was_streamed_and_does_not_ask_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(Reply(steps=(Text("half of"), Wait(trio.Event()))))
        await w.send("tell me a story")
        await w.watcher.until(lambda events: [e for e in events if isinstance(e, TextStreamed)])
        assert await w.app.chats.stop(LOCAL_USER, "main")
        reply = await w.reply()
        assert (reply.content, reply.metadata["stopped"]) == ("half of", True)
        assert (await w.receipt()).status is TurnStatus.STOPPED
        with trio.fail_after(HANG_S):
            await w.llm.requests[0].gone.wait()
        await recover_chats(w.app)
        await w.send("next")
        await w.turn(2)
        assert w.contents() == ["tell me a story", "half of", "next"]


async def test_stop_while_the_answer_is_stored_does_not_store_it_twice(tmp_path: Path) -> None:
    """The answer is committed, its requester not yet told: a stop at that moment must change nothing."""
    async with world(tmp_path) as w:
        committed, go_on = trio.Event(), trio.Event()

        async def append(real: Real, new_messages: Any, turn: Any = None) -> Any:
            stored = await real(new_messages, turn)
            if turn is not None:
                committed.set()
                await go_on.wait()
            return stored

        instead(w.app.core.writer, messages.append, append)
        w.llm.replies.append(text_reply("the answer"))
        await w.send("question")
        with trio.fail_after(HANG_S):
            await committed.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(w.app.chats.stop, LOCAL_USER, "main")
                await trio.testing.wait_all_tasks_blocked(0.05)
                go_on.set()
        stored = await w.app.chats.after(w.chat, 0, 50)
        assert [m.content for m in stored if m.role is Role.ASSISTANT] == ["the answer"]
        assert (await w.receipt()).status is TurnStatus.DONE


async def test_stop_before_the_turn_leaves_the_messages_unanswered(tmp_path: Path) -> None:
    async with world(tmp_path, processing={"debounceMs": 60_000, "debounceMaxMs": 60_000}) as w:
        await w.send("never mind")
        assert await w.command("/stop") == "Stopped."
        assert await w.command("/retry", 2) == "Nothing to retry."
        assert not w.llm.requests


async def test_stop_while_waiting_for_a_slot_leaves_the_messages_unanswered(tmp_path: Path) -> None:
    async with world(tmp_path, processing={"debounceMs": 0, "maxConcurrentLlm": 1}) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Text("busy"), Wait(gate))))
        await w.send("holds the only slot", chat="other")
        await w.llm.wait_for_requests(1)
        await w.send("never mind")
        with trio.fail_after(HANG_S):
            while not w.app.llm.slots.report().waiting:
                await trio.lowlevel.checkpoint()
        assert await w.app.chats.stop(LOCAL_USER, "main")
        gate.set()
        assert await w.command("/retry") == "Nothing to retry."
        assert len(w.llm.requests) == 1


async def test_a_crashed_chat_is_not_named_to_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a chat is its user's; the problems that all users see say only that there is one."""
    async with world(tmp_path) as w:
        await w.send("hi", chat="my-secret-plan")

        def crash(*_arguments: Any) -> None:
            raise RuntimeError

        monkeypatch.setattr(chat_module._ChatActor, "_handle", crash)
        with pytest.raises(ActorStopped):
            await w.send("/help", chat="my-secret-plan")
        problems = w.app.core.health.problems()
        assert problems["actor:a chat"] == "a chat crashed and will be tried again"
        assert "secret" not in repr(problems)


async def test_stop_with_nothing_to_stop_says_so(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        assert "nothing to stop" in await w.command("/stop")
        assert not await w.app.chats.stop(LOCAL_USER, "unknown")


async def test_new_begins_a_segment_and_ends_the_running_turn(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(Reply(steps=(Text("old"), Wait(trio.Event()))))
        await w.send("before")
        await w.watcher.until(lambda events: [e for e in events if isinstance(e, TextStreamed)])
        assert "Fresh start" in await w.command("/new")
        await w.send("after")
        await w.turn(2)
        assert w.contents() == ["after"]
        stored = await w.app.chats.after(w.chat, 0, 50)
        assert [m.type for m in stored if m.role is Role.SYSTEM] == [MessageKind.SESSION_BREAK, MessageKind.COMMAND]


async def test_a_failed_llm_is_told_and_retry_answers(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(error_reply(500))
        await w.send("question")
        ended = await w.turn(1)
        assert (ended.status, ended.code) == (TurnStatus.FAILED, "llm_refused")
        assert ended.text is not None
        assert "/retry" in ended.text
        with trio.fail_after(HANG_S):
            while w.app.chats.chat_status(w.chat)["state"] != "failed":
                await trio.lowlevel.checkpoint()
        assert await w.command("/retry") == "Trying again."
        assert (await w.turn(2)).status is TurnStatus.DONE
        assert w.contents() == ["question"]


async def test_the_next_message_tries_again_too(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(error_reply(500))
        await w.send("question")
        await w.turn(1)
        await w.send("hello?")
        await w.turn(2)
        assert w.contents() == ["question\nhello?"]


async def test_a_prompt_that_is_too_long_is_shortened_once(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for number in range(1, 9):
            await w.send(f"{number} " + "word " * 400)
            await w.turn(number)
        too_long = json.dumps({"error": {"code": "context_length_exceeded"}})
        w.llm.replies.append(Reply(status=400, body=too_long.encode()))
        await w.send("and now?")
        assert (await w.turn(9)).status is TurnStatus.DONE
        assert len(w.contents(-1)) < len(w.contents(-2))


@pytest.mark.parametrize(
    ("text", "wanted"), [("/help", "/retry"), ("/status", "Model: stub/model"), ("/nope", "no command")]
)
async def test_commands_are_answered_and_stored(tmp_path: Path, text: str, wanted: str) -> None:
    async with world(tmp_path) as w:
        assert wanted in await w.command(text)
        stored = await w.app.chats.after(w.chat, 0, 10)
        assert [(m.role, m.type) for m in stored] == [
            (Role.USER, MessageKind.COMMAND),
            (Role.SYSTEM, MessageKind.COMMAND),
        ]
        assert not w.llm.requests


async def test_context_shows_the_last_answers_layers(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.send("hi")
        await w.turn(1)
        assert "system_prompt" in await w.command("/context")


async def test_commands_are_no_part_of_the_dialogue(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.command("/status")
        await w.send("hi")
        await w.turn(1)
        assert w.contents() == ["hi"]


async def test_workspace_files_and_core_memory_stand_in_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "SOUL.md").write_text("You are a pirate. Йо-хо-хо.")
    (tmp_path / "workspace" / "TOOLS.md").write_bytes(b"\xff\xfe broken")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "core_memory.json").write_text('{"user": {"name": "Анна"}}')
    async with world(tmp_path) as w:
        await w.send("hi")
        await w.turn(1)
        system = w.llm.requests[0].body["messages"][0]["content"]
        assert "Йо-хо-хо" in system
        assert "- name: Анна" in system
        assert (await w.receipt()).receipt["problems"] == ["TOOLS.md was left out: it cannot be read"]


async def test_a_users_own_files_are_not_in_another_users_context(tmp_path: Path) -> None:
    """USER.md and core memory are the user's; SOUL.md is the agent's."""
    (tmp_path / "workspace" / "users" / "bob").mkdir(parents=True)
    (tmp_path / "workspace" / "SOUL.md").write_text("You are kind.")
    (tmp_path / "workspace" / "USER.md").write_text("The user is Ann.")
    (tmp_path / "workspace" / "users" / "bob" / "USER.md").write_text("The user is Bob.")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "core_memory.json").write_text('{"secret": "of Ann"}')
    async with world(tmp_path) as w:
        await w.send("hi")
        await w.turn(1)
        await w.app.chats.send(UserId("bob"), "main", "m", "hi")
        await w.turn(2)
        ann, bob = (request.body["messages"][0]["content"] for request in w.llm.requests)
        assert "You are kind." in ann
        assert "of Ann" in ann
        assert "You are kind." in bob
        assert "The user is Bob." in bob
        assert "Ann" not in bob


async def test_an_idle_chat_retires_and_comes_back(tmp_path: Path) -> None:
    async with world(tmp_path, chats={"idleSeconds": 0.05}) as w:
        await w.send("one")
        await w.turn(1)
        with trio.fail_after(HANG_S):
            await w.app.core.supervisor.wait_ended("chat local:main")
        await w.send("two")
        await w.turn(2)
        assert w.contents() == ["one", "ok", "two"]


async def test_a_crashed_chat_answers_what_was_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor crashes with a message stored and unanswered; its next incarnation reads it from the store."""
    async with world(tmp_path) as w:
        await w.send("first")
        await w.turn(1)
        real, crashes = chat_module.Turn.run, []

        async def crash_once(turn: Any) -> Any:
            if not crashes:
                crashes.append(turn)
                raise RuntimeError
            return await real(turn)

        monkeypatch.setattr(chat_module.Turn, "run", crash_once)
        await w.send("second")
        await w.turn(2)
        assert w.contents()[-1] == "second"
        assert w.app.core.supervisor.state("chat local:main") is ActorState.RUNNING
        assert crashes


async def test_a_chat_that_crashes_before_its_message_is_stored_answers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is with the writer, which is busy until the next incarnation begins."""
    gate = threading.Event()
    async with world(tmp_path) as w:
        await w.send("first")
        await w.turn(1)
        real, crashes = chat_module._ChatActor.recover, []

        async def crash_once(actor: Any) -> None:
            if not crashes:
                crashes.append(actor)
                raise RuntimeError
            await real(actor)

        monkeypatch.setattr(chat_module._ChatActor, "recover", crash_once)
        chats = w.app.chats
        async with trio.open_nursery() as nursery:
            await w.app.core.writer.begin(lambda _transaction: gate.wait(HANG_S))
            nursery.start_soon(w.send, "second")
            await trio.testing.wait_all_tasks_blocked()
            chats._handles[chat_id(LOCAL_USER, "main")].mailbox.tell(chat_module.Recover())
            # It stays so until the writer has said that nothing is left of the one before.
            await until(lambda: w.app.core.supervisor.state("chat local:main") is ActorState.STARTING)
            await trio.testing.wait_all_tasks_blocked(0.05)
            gate.set()
        await w.turn(2)
        assert w.contents()[-1] == "second"


async def test_chats_per_user_are_limited(tmp_path: Path) -> None:
    async with world(tmp_path, chats={"maxPerUser": 2}) as w:
        await w.send("a", chat="a")
        await w.send("b", chat="b")
        with pytest.raises(TooManyChats):
            await w.send("c", chat="c")
        await w.send("again", chat="a")


async def test_bad_chat_names_are_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        with pytest.raises(InvalidName):
            await w.send("x", chat="../x")


async def test_users_do_not_share_chats(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.send("mine", id="m")
        await w.app.chats.send(UserId("bob"), "main", "m", "his")
        assert [m.content for m in await w.app.chats.after(w.chat, 0, 1)] == ["mine"]
        assert [s.name for s in await w.app.chats.listed(UserId("bob"), 10, archived=False)] == ["main"]
        turn = await w.turn(1)
        assert await w.app.chats.receipt(UserId("eve"), "main", turn.turn) is None


async def test_shutdown_answers_what_waits_for_its_debounce(tmp_path: Path) -> None:
    async with world(tmp_path, processing={"debounceMs": 60_000, "debounceMaxMs": 60_000}) as w:
        await w.send("last words")
        watcher, llm = w.watcher, w.llm
    assert len(llm.requests) == 1
    assert any(getattr(getattr(e, "message", None), "role", None) is Role.ASSISTANT for e in watcher.events)


async def test_shutdown_answers_what_came_during_the_last_turn_too(tmp_path: Path) -> None:
    async with world(tmp_path, processing={"debounceMs": 20}) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Text("first"), Wait(gate))))
        await w.send("a")
        await w.llm.wait_for_requests(1)
        await w.send("b")
        gate.set()
        llm = w.llm
    assert [request.last_user for request in llm.requests] == ["a", "b"]


async def test_retry_during_a_turn_does_not_ask_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gate = trio.Event()
        w.llm.replies.append(Reply(steps=(Text("first"), Wait(gate))))
        await w.send("a")
        await w.llm.wait_for_requests(1)
        assert await w.command("/retry") == "An answer is already being written."
        gate.set()
        await w.turn(1)
        assert len(w.llm.requests) == 1


async def test_at_start_only_recent_questions_are_answered(tmp_path: Path) -> None:
    now = time.time()
    async with running_store(tmp_path / "data") as store:
        await store.writer.run(messages.append, [new("recent", chat="recent", at=now - 60)])
        await store.writer.run(messages.append, [new("too old", chat="old", at=now - 7200)])
    async with world(tmp_path) as w:
        await recover_chats(w.app)
        await w.turn(1)
        assert w.contents() == ["recent"]
        assert len(w.llm.requests) == 1
        assert not w.app.core.supervisor.alive("chat local:old")
