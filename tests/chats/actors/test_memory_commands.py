"""The slash commands /topics and /forget of a running server."""

from pathlib import Path

import pytest
import trio

from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER, UserId
from klaw.operations.forget import CONFIRM_S
from klaw.store.kinds import facts, messages
from tests.support.asking import forgetting_in
from tests.support.chats_world import world
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.llm_server import Wait, text_reply
from tests.support.memory.summaries import CHAT
from tests.support.people import add, in_topic, names
from tests.support.scripted import TestClock
from tests.support.stores import new, running_store
from tests.support.topics import archive, say
from tests.support.waiting import HANG_S

SECRET = "Ключ от сейфа называется Kanarienvogel8842."
CANARY = "Kanarienvogel8842"


async def test_topics_are_listed_and_found(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        assert "topics.enabled" in await w.command("/topics")
        (trip,) = await say(w.app.core.store, "Поезд в Тверь уходит в девять", user="local")
        (bread,) = await say(w.app.core.store, "buy bread", user="local", chat="дом")
        (his,) = await say(w.app.core.store, "secret train", user="boris")
        await archive(w.app.core.store, [trip], user="local")
        await archive(w.app.core.store, [bread], user="local", chat="дом")
        await archive(w.app.core.store, [his], user="boris")
        lines = (await w.command("/topics", 2)).split("\n")
        assert lines[0] == "Topics, the last talked about first:"
        assert [line.split()[:2] for line in lines[1:]] == [["2", "дом"], ["1", "main"]]
        found = (await w.command("/topics когда поезд в Тверь?", 3)).split("\n")
        assert found[0] == "Topics that fit, the best first:"
        assert found[1].endswith(f"topic of {trip}")
        assert len(found) == 2
        assert await w.command("/topics квазар", 4) == "No topic fits that."
        assert "boris" not in "".join([*lines, *found])
        assert "/forget" in await w.command("/help", 5)


async def test_people_are_listed_and_told(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        assert "No people are known" in await w.command("/people")
        await add(w.app.core.store, "Аня", user="local", relation="сестра")
        await add(w.app.core.store, "Аня", user="boris", relation="secret")
        assert (await w.command("/people", 2)).endswith("\n  Аня  сестра")
        assert (await w.command("/people Аню", 3)).startswith("Аня  сестра  person:")
        assert await w.command("/people Zoe", 4) == "Nobody of that name is known."
        assert "/people" in await w.command("/help", 5)


@pytest.mark.parametrize("yes", ["/forget yes", "/forget Да"])
async def test_what_was_shown_is_forgotten_when_it_is_confirmed(tmp_path: Path, yes: str) -> None:
    async with world(tmp_path) as w:
        assert "nothing goes before" in await w.command("/forget")
        assert await w.command("/forget yes", 2) == "There is nothing to confirm: say first what is to be forgotten."
        await w.app.core.writer.run(messages.append, [new("Hello there, my friend"), new(SECRET)])
        shown = await w.command("/forget last 1", 3)
        assert "This would be forgotten" in shown
        assert "main#6  user" in shown
        assert f"“{SECRET}”" in shown  # such an answer is stored itself, and goes with it
        assert holding(w.app.core.paths.data_dir, CANARY)
        assert await w.command("/forget no", 4) == "Nothing was forgotten."
        assert await w.command("/forget yes", 5) == "There is nothing to confirm: say first what is to be forgotten."
        for number, what in enumerate(["#6", "6", "main#6", "последнее 1"], 6):
            assert "main#6  user" in await w.command(f"/forget {what}", number)
        done = await w.command(yes, 10)
        assert done.startswith("Forgotten.\nNothing else mentions it any more.")
        assert holding(w.app.core.paths.data_dir, CANARY) == {}
        left = [each.content for each in await w.app.core.readers.run(messages.after, CHAT, 0, 99)]
        assert "Hello there, my friend" in left
        assert "forgotten already" in await w.command("/forget #6", 11)


async def test_nobody_forgets_what_is_another_users(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        rowids = await say(w.app.core.store, SECRET, user="boris")
        (topic,) = await archive(w.app.core.store, rowids, user="boris")
        kept = fact("Boris has a safe", user="boris")
        await w.app.core.writer.run(facts.put, kept, "new")
        (message,) = await w.app.core.readers.run(messages.by_rowids, rowids)
        wrong = [
            f"topic:{topic.id}",
            f"fact:{kept.id}",
            message.id,
            "boris:main#1",
            "topic:x",
            "main#99",
            "last 0",
            "last 51",
            "last x",
            "#",
            "🙂",
        ]
        for number, what in enumerate(wrong):
            answer = await w.command(f"/forget {what}", 2 * number + 1)
            assert answer.startswith("Nothing can be forgotten: "), what
            assert "nothing to confirm" in await w.command("/forget yes", 2 * number + 2)
        assert holding(w.app.core.paths.data_dir, CANARY)


async def test_facts_go_too_when_that_is_said(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        (stored,) = await w.app.core.writer.run(messages.append, [new(SECRET)])
        made = fact(f"Сказано: {SECRET}", user="local", message=stored.message.id)
        await w.app.core.writer.run(facts.put, made, "new")
        assert f"takes them too:\n  fact {made.id}: “Сказано: Ключ" in await w.command("/forget main#1")
        assert f"\n  fact {made.id}: “Сказано: Ключ" in await w.command("/forget main#1 с фактами", 2)
        await w.command("/forget yes", 3)
        assert await w.app.core.readers.run(facts.count, UserId(LOCAL_USER)) == 0
        assert holding(w.app.core.paths.data_dir, CANARY) == {}


async def test_a_person_is_shown_and_what_still_names_them_is_told(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await say(store, "Спроси у Цецилии про чай", user="local")
        person = await add(store, "Цецилия", user="local")
        tell = forgetting_in(forgetter(store, tmp_path), TestClock(1_000.0))
        for what in ("Цецилия", "person:ЦЕЦИЛИЯ", f"person:{person.id}"):
            shown = await tell(CHAT, what)
            assert f"\n  person {person.id}: “Цецилия”" in shown
            assert "Kept: messages that name them, 1;" in shown
        done = await tell(CHAT, "yes")
        assert done.startswith("Forgotten.\nSTILL named in: messages 1.")
        other = await add(store, "Cecily", user="local")
        await store.writer.run(facts.put, fact("Cecily likes tea with jam", user="local"), "new")
        assert f"person {other.id}: “Cecily”" in await tell(CHAT, "Cecily")
        done = await tell(CHAT, "yes")
        assert done.startswith("Forgotten.\nNo row names them any more.")
        # Nothing of another user's.
        await add(store, "Fremde", user="boris")
        assert "Nothing can be forgotten" in await tell(CHAT, "person:Fremde")


async def test_people_known_by_a_message_only_go_with_the_facts(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("Борис тут", id="m1")])
        person = await add(store, "Борис", user="local", source="archivist", mention=in_topic(1, "m1"))
        tell = forgetting_in(forgetter(store, tmp_path), TestClock(1_000.0))
        assert f"takes them too:\n  person {person.id}: “Борис”" in await tell(CHAT, "main#1")
        assert f"\n  person {person.id}: “Борис”" in await tell(CHAT, "main#1 with facts")
        assert "too short, or too common" in await tell(CHAT, "yes")
        assert await names(store, "local") == []


async def test_an_answer_that_is_being_made_is_stopped_first(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gate = trio.Event()
        w.llm.replies.append(text_reply(f"You said: {SECRET}", before_head=(Wait(gate),)))
        await w.send(SECRET)
        with trio.fail_after(HANG_S):
            await w.llm.wait_for_requests(1)
        await w.command("/forget last 1")
        done = await w.command("/forget yes", 2)
        gate.set()
        assert done.startswith("Forgotten.")
        said = await w.app.core.readers.run(messages.after, CHAT, 0, 99)
        assert not any(each.role is Role.ASSISTANT for each in said)
        assert holding(w.app.core.paths.data_dir, CANARY) == {}


async def test_a_question_is_confirmed_in_its_chat_and_in_time(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await say(store, SECRET, "and more of it", user="local")
        clock = TestClock(1_000.0)
        tell = forgetting_in(forgetter(store, tmp_path), clock)
        other = type(CHAT)(f"{CHAT}2")
        assert "would be forgotten" in await tell(CHAT, "main#1")
        assert "nothing to confirm" in await tell(other, "yes")
        clock.at += CONFIRM_S + 1
        assert "nothing to confirm" in await tell(CHAT, "yes")
        assert "would be forgotten" in await tell(CHAT, "main#1")
        assert "would be forgotten" in await tell(CHAT, "main#2")  # takes the place of the first
        assert (await tell(CHAT, "yes")).startswith("Forgotten.")
        assert holding(tmp_path, CANARY)
