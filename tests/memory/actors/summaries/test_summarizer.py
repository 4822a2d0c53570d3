"""The summarizer with a real store and LLM client and a scripted LLM server."""

import contextlib
import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from klaw.actor.backoff import SLOW
from klaw.actor.clock import SystemClock, from_iso, iso
from klaw.actor.supervisor import Vitals
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.summary import NewSummary, SummaryState
from klaw.errors import StorageError, SummaryOutdated
from klaw.llm.slots import Priority
from klaw.memory.summaries import making
from klaw.memory.summaries.making import next_day
from klaw.memory.summaries.summarizer import SWEEP_CHATS
from klaw.store.kinds import messages, summaries, usage
from klaw.store.kinds.usage import UsageFilters
from klaw.store.search import passages
from tests.support.clock import TrioClock
from tests.support.forgetting import forgetter
from tests.support.llm_server import Recorded, Reply, Wait, error_reply, text_reply
from tests.support.memory.summaries import CHAT, begin_segment, say, summarising
from tests.support.stores import START, new
from tests.support.turns import record
from tests.support.waiting import HANG_S, until

TEXTS = {
    "english": ["My sister Anna lives in Riga and I want to visit her in May, number {}." * 2] * 16,
    "russian": ["Моя сестра Анна живёт в Риге, и я хочу съездить к ней в мае, номер {}."] * 16,
}


def texts(language: str = "english") -> list[str]:
    return [text.format(place, place) for place, text in enumerate(TEXTS[language])]


def summary_text(request: Recorded) -> Reply:
    """A summary that says how many messages it saw, in the language of the conversation."""
    russian = "сестра" in request.last_user
    count = request.last_user.count("\n[user]")
    return text_reply(f"Пользователь {count} раз говорил о сестре." if russian else f"The user spoke {count} times.")


@pytest.mark.parametrize("language", TEXTS)
async def test_a_long_segment_gets_a_summary(tmp_path: Path, language: str) -> None:
    """The oldest exchanges go to the summarising model, and what it says is stored with its range and its cost."""
    async with summarising(tmp_path) as s:
        s.llm.respond = summary_text
        said = await s.say(*texts(language))
        await s.settle()
        assert s.llm.requests
        first = s.llm.requests[0]
        assert "You keep the memory" in first.messages[0]["content"]
        assert texts(language)[0] in first.last_user
        assert said[-1].content not in first.last_user
        assert first.body["max_tokens"] <= 240
        live = await s.live()
        assert live
        assert live[0].first_seq == 1
        assert ("Пользователь" in live[-1].text) == (language == "russian")
        covered = live[-1].last_seq
        assert 0 < covered < said[-1].seq
        assert covered % 2 == 0, "a question stays with its answer"
        assert (live[-1].prompt_tokens, live[-1].completion_tokens) == (11, 7)
        assert live[-1].model == "stub/m"
        status = s.summarizer.report()
        assert status["made"] >= 1
        assert status["failing"] == 0
        copy = making.path_of(tmp_path, live[-1])
        assert live[-1].text in copy.read_text()
        assert copy.stat().st_mode & 0o077 == 0


def copies_in(root: Path) -> list[Path]:
    return sorted(root.glob("summaries/*/*.md"))


async def test_a_short_segment_gets_none(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        await s.say("Hello", "How are you?")
        await s.settle()
        assert s.llm.requests == []


async def test_a_summary_is_written_anew_until_it_is_full_and_the_oldest_make_room(tmp_path: Path) -> None:
    """Ranges follow each other without a gap; evicted ones stay where they were and are found by search."""
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda request: text_reply(f"Then {len(s.llm.requests)}. " + "More was said. " * 12)
        for _ in range(6):
            await s.say(*texts())
            await s.settle()
        every, live = await s.all(), await s.live()
        assert {each.state for each in every} == {SummaryState.LIVE, SummaryState.EVICTED}
        assert sum(each.tokens for each in live) <= 120 * 1.25
        ranges = sorted((each.first_seq, each.last_seq) for each in every)
        assert ranges[0][0] == 1
        assert all(after == before + 1 for (_, before), (after, _) in itertools.pairwise(ranges))
        assert len(copies_in(tmp_path)) == len(every)
        later = s.llm.requests[-1].last_user
        assert "<earlier>" in later
    async with summarising(tmp_path, maxTokens=300) as s:
        s.llm.respond = lambda request: text_reply("Short.")
        for _ in range(3):
            await s.say(*texts())
            await s.settle()
        assert SummaryState.SUPERSEDED in {each.state for each in await s.all()}
        assert "Summary so far" in s.llm.requests[-1].last_user
        newest = (await s.live())[-1]
        assert newest.text == "Short."
        gone = [each for each in await s.all() if each.state is SummaryState.SUPERSEDED]
        assert not any(making.path_of(tmp_path, each).exists() for each in gone)


async def test_tool_text_is_labelled_as_such(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: text_reply("The weather page said rain.")
        call = {"id": "c1", "name": "web", "arguments": "{}"}
        asked = await s.store.writer.run(messages.append, [new("What is the weather?")])
        await s.store.writer.run(
            messages.append,
            [
                new("", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, turn="t", calls=[call]),
                new(
                    "[user] I love rain", role=Role.TOOL, kind=MessageKind.TOOL_RESULT, turn="t", call="c1", name="web"
                ),
            ],
        )
        await s.store.writer.run(
            messages.append, [new("Rain.", role=Role.ASSISTANT, turn="t")], record(asked[0].message)
        )
        await s.say(*texts())
        await s.settle()
        assert "[text of the tool web] [user] I love rain" in s.llm.requests[0].last_user


async def test_notes_on_tool_calls_are_found_by_their_words(tmp_path: Path) -> None:
    """One request more; its first answer is not JSON. The notes go with their summary, for their user only."""
    async with summarising(tmp_path, toolCalls=True) as s:
        bad = ['{"notes": [{"call":']

        def of_notes(request: Recorded) -> bool:
            return "[c1: call of the tool" in json.dumps(request.messages)

        def respond(request: Recorded) -> Reply:
            if not of_notes(request):
                return text_reply("The user asked for the weather.")
            if bad:
                return text_reply(bad.pop())
            return text_reply(json.dumps({"notes": [{"call": "c1", "text": "В Риге дождь до пятницы."}]}))

        s.llm.respond = respond
        call = {"id": "k1", "name": "web", "arguments": '{"q": "Riga"}'}
        (asked,) = await s.store.writer.run(messages.append, [new("What is the weather?")])
        await s.store.writer.run(
            messages.append,
            [
                new("", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, turn="t", calls=[call]),
                new("rain until Friday", role=Role.TOOL, kind=MessageKind.TOOL_RESULT, turn="t", call="k1", name="web"),
                new("Rain.", role=Role.ASSISTANT, turn="t"),
            ],
            record(asked.message),
        )
        await s.say(*texts())
        await s.settle()
        notes = [request for request in s.llm.requests if of_notes(request)]
        assert len(notes) == 2
        assert "not JSON" in notes[1].last_user
        assert notes[0].body["response_format"]["json_schema"]["name"] == "tool_notes"
        readers, me, other = s.store.readers, UserId("local"), UserId("anna")
        found = await readers.run(passages.matching, "note", me, ["дожд"], 5)
        assert [hit.rowid for hit in found]
        assert await readers.run(passages.matching, "note", other, ["дожд"], 5) == []
        stored = await readers.run(summaries.notes_by_rowids, me, [found[0].rowid])
        assert stored[found[0].rowid].note.text == "В Риге дождь до пятницы."
        assert (stored[found[0].rowid].chat, stored[found[0].rowid].note.seq) == (CHAT, 2)
        assert await readers.run(summaries.notes_by_rowids, other, [found[0].rowid]) == {}
        waiting = await readers.run(passages.unembedded, "some-model", 10)
        assert [each.kind for each in waiting] == ["note"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("", "held no summary"),
        ("I'm sorry, I can't help with that.", "a record that you keep"),
        ("Слово за слово. " * 3_500, "far too long"),
    ],
)
async def test_a_bad_answer_is_asked_for_once_more(tmp_path: Path, bad: str, said: str) -> None:
    async with summarising(tmp_path) as s:
        s.llm.replies.append(text_reply(bad or " "))
        s.llm.respond = lambda _request: text_reply("The user wants to visit Anna.")
        await s.say(*texts())
        await s.settle()
        assert said in s.llm.requests[1].last_user
        assert (await s.live())[0].text == "The user wants to visit Anna."


async def test_every_call_for_a_summary_is_in_usage_once(tmp_path: Path) -> None:
    no = text_reply("I'm sorry, but I can't help with that.", usage=(500, 10))
    async with summarising(tmp_path) as s:
        s.llm.replies += [no, no]  # the first attempt fails
        s.llm.respond = lambda _request: text_reply("The user wants to visit Anna.", usage=(600, 20))
        said = await s.say(*texts())
        await s.settle()
        filters = UsageFilters(chat=said[0].chat)
        (failed,) = await s.store.readers.run(usage.groups, filters, "source")
        assert (failed.key, failed.spent.calls, failed.spent.prompt_tokens) == ("summary", 2, 1000)
        assert await s.maker.make(said[0].chat, 0, Vitals(SystemClock())) == "made"
        (group,) = await s.store.readers.run(usage.groups, filters, "source")
        assert (group.spent.calls, group.spent.prompt_tokens, group.spent.completion_tokens) == (3, 1600, 40)


async def test_a_summary_of_50_000_characters_is_cut(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: text_reply("The user said more. " * 2_500)
        await s.say(*texts())
        await s.settle()
        live = await s.live()
        assert live
        assert all(each.tokens <= 60 * 1.25 and each.text.endswith(".") for each in live)


async def test_one_huge_message_is_read_in_parts(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: text_reply("The user pasted a book.")
        await s.say("начало " + "слово " * 4_000 + "конец", *texts()[:4])
        await s.settle()
        assert len(s.llm.requests) > 2
        assert "начало" in s.llm.requests[0].last_user
        assert any("конец" in request.last_user for request in s.llm.requests)
        assert "[continued]" in s.llm.requests[1].last_user
        assert "The user pasted a book." in s.llm.requests[1].last_user
        assert (await s.live())[0].first_seq == 1


BAD = {
    "error": lambda: error_reply(500),
    "not text": lambda: Reply(body=b"\x00\xff<html>", content_type="text/html"),
    "empty": lambda: text_reply(" "),
    "refusal": lambda: text_reply("Извините, я не могу это обобщить."),
    "too long a prompt": lambda: error_reply(400, "context_length_exceeded", "maximum context length is 512 tokens"),
    "no credit": lambda: error_reply(402, "insufficient_quota"),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_failure_backs_off_and_costs_no_message(tmp_path: Path, what: str) -> None:
    """At most two calls, then none for 5 minutes, however often it is nudged; nothing is covered, nothing is lost."""
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: BAD[what]()
        await s.say(*texts())
        await s.settle()
        asked = len(s.llm.requests)
        assert 1 <= asked <= 2
        for text in texts()[:3]:
            await s.say(text)
            await s.settle()
        assert len(s.llm.requests) == asked
        assert await s.all() == []
        status = s.summarizer.report()
        assert (status["failing"], status["made"]) == (1, 0)
        assert status["code"]
        failed = (await s.store.readers.run(summaries.failures, 9))[0]
        assert failed.chat == CHAT
        assert failed.failures == 1
        assert 290 < from_iso(failed.retry_at) - s.maker.clock.now() <= 300
    async with summarising(tmp_path) as s:
        await s.settle()
        assert s.llm.requests == [], "a restart does not try again at once"


async def test_pauses_grow_and_a_success_ends_them(tmp_path: Path) -> None:
    """5 minutes, 10, 20 …; the room of a prompt shrinks; other chats go on meanwhile."""

    async def inside() -> None:
        clock = TrioClock(START + 10_000)
        async with summarising(tmp_path, clock=clock) as s:
            s.llm.respond = lambda _request: error_reply(500)
            await s.say(*texts())
            await s.settle()
            for count in range(2, 5):
                asked = len(s.llm.requests)
                pause = SLOW.pause_s(count - 1)
                mock.jump(pause - 10)
                await s.settle()
                assert len(s.llm.requests) == asked
                mock.jump(11)
                await until_requests(s, asked + 1)
                await s.settle()
                (failed,) = await s.store.readers.run(summaries.failures, 9)
                assert failed.failures == count
                assert from_iso(failed.retry_at) == pytest.approx(clock.now() + SLOW.pause_s(count), abs=2)
            assert s.summarizer.report()["failing_long"] == 1
            assert len(s.llm.requests[-1].last_user) < len(s.llm.requests[0].last_user)
            s.llm.respond = lambda _request: text_reply("Short.")
            mock.jump(1_000)  # the provider's breaker lets a call through again
            await s.say(*texts(), chat="other")
            await s.settle(chat_id(UserId("local"), "other"))
            assert await s.live(chat_id(UserId("local"), "other"))
            assert await s.live() == []
            asked = len(s.llm.requests)
            mock.jump(SLOW.pause_s(4) - 999)
            await until_requests(s, asked + 1)
            await s.settle()
            assert await s.live()
            assert await s.store.readers.run(summaries.failures, 9) == []
            assert s.summarizer.report()["failing"] == 0

    async def until_requests(s: Any, count: int) -> None:
        with trio.fail_after(1e6):
            await s.llm.wait_for_requests(count)

    # A run of its own, in a thread: only jumps move its clock, and the store's threads use real time.
    mock = trio.testing.MockClock()
    await trio.to_thread.run_sync(lambda: trio.run(inside, clock=mock))


async def test_a_new_segment_ends_the_work_on_the_old_one(tmp_path: Path) -> None:
    """/new while the model writes: the summary is dropped, without a failure."""
    async with summarising(tmp_path) as s:
        gate = trio.Event()
        s.llm.respond = lambda _request: text_reply("Too late.", before_head=(Wait(gate),))
        await s.say(*texts())
        s.summarizer.turn_ended(CHAT)
        await s.llm.wait_for_requests(1)
        await begin_segment(s.store)
        gate.set()
        await s.settle()
        assert await s.all() == []
        assert await s.store.readers.run(summaries.failures, 9) == []
        await s.say("A new beginning.")
        await s.settle()
        assert len(s.llm.requests) == 1


async def test_messages_that_come_meanwhile_are_not_covered(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        gate = trio.Event()
        s.llm.respond = lambda _request: text_reply("Riga.", before_head=(Wait(gate),))
        said = await s.say(*texts())
        s.summarizer.turn_ended(CHAT)
        await s.llm.wait_for_requests(1)
        (waiting,) = await s.store.writer.run(messages.append, [new("A question that waits for its answer")])
        gate.set()
        await s.settle()
        assert (await s.live())[-1].last_seq < said[-1].seq < waiting.message.seq


async def test_it_waits_for_those_that_talk(tmp_path: Path) -> None:
    """While all slots are taken by turns no summary is asked for, and one that is due waits behind a turn that comes
    later."""
    async with summarising(tmp_path, start=False) as s:
        await s.say(*texts())
        slots = s.maker.asker.llm.slots
        order: list[str] = []
        s.llm.respond = lambda _request: order.append("summary") or text_reply("Riga.")  # type: ignore[func-returns-value]
        async with trio.open_nursery() as nursery:  # noqa: SIM117 - the nursery outlives the slots
            async with slots.slot(Priority.INTERACTIVE), slots.slot(Priority.INTERACTIVE):
                await s.start()
                s.summarizer.turn_ended(CHAT)
                await until(lambda: slots.report().waiting_background)

                async def turn() -> None:
                    async with slots.slot(Priority.INTERACTIVE):
                        order.append("turn")

                nursery.start_soon(turn)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert s.llm.requests == []
        await s.settle()
        assert order[0] == "turn"
        assert "summary" in order


async def test_the_daily_limit_is_kept_over_restarts(tmp_path: Path) -> None:
    async with summarising(tmp_path, dailyTokens=1_500) as s:
        s.llm.respond = lambda _request: text_reply("Riga.", usage=(900, 100))
        for _ in range(3):
            await s.say(*texts())
            await s.settle()
        spent = len(s.llm.requests)
        assert spent == 1
        assert s.summarizer.report()["code"] == "limit_tokens"
        (failed,) = await s.store.readers.run(summaries.failures, 9)
        assert failed.retry_at == iso(next_day(s.maker.clock.now()))
    async with summarising(tmp_path, dailyTokens=1_500) as s:
        await s.settle()
        assert s.llm.requests == []


async def test_what_came_to_nothing_counts_for_the_daily_limit_also_later(tmp_path: Path) -> None:
    """An attempt that failed, over a restart; and a summary that went with a forgotten message."""
    today = iso(0)
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: text_reply("", usage=(900, 100))
        await s.say(*texts())
        await s.settle()
        assert s.summarizer.report()["failing"] == 1
        asked = len(s.llm.requests)
    async with summarising(tmp_path) as s:
        assert await s.store.readers.run(summaries.tokens_since, UserId("local"), today) == 1_000 * asked
        s.llm.respond = lambda _request: text_reply("Riga.", usage=(900, 100))
        await s.say(*texts(), chat="two")
        await s.settle(chat_id(UserId("local"), "two"))
        used = await s.store.readers.run(summaries.tokens_since, UserId("local"), today)
        assert used == 1_000 * (asked + len(s.llm.requests))
        tool = forgetter(s.store, tmp_path)
        await tool.forget(await tool.find("two#1", UserId("local")), everywhere=True)
        assert await s.all(chat_id(UserId("local"), "two")) == []
        assert await s.store.readers.run(summaries.tokens_since, UserId("local"), today) == used
        assert await s.store.readers.run(summaries.tokens_since, UserId("anna"), today) == 0


async def test_a_sweep_finds_what_no_nudge_told_of(tmp_path: Path) -> None:
    """At start, and when the queue was full."""
    async with summarising(tmp_path, start=False) as s:
        s.llm.respond = lambda _request: text_reply("Riga.")
        await s.say(*texts())
        await s.start()
        await s.settle()
        assert await s.live()
        await s.say(*texts(), chat="missed")
        for number in range(SWEEP_CHATS + 1):
            s.summarizer.turn_ended(chat_id(UserId("local"), f"empty{number}"))
        assert len(s.summarizer.queue) == SWEEP_CHATS
        await s.settle()
        assert await s.live(chat_id(UserId("local"), "missed"))


async def test_copies_are_made_again_and_edited_ones_left_alone(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: text_reply("Riga.", usage=None)
        await s.say(*texts())
        await s.say(*texts(), chat="дача 1.2")
        await s.settle()
        await s.settle(chat_id(UserId("local"), "дача 1.2"))
    made = copies_in(tmp_path)
    assert len({path.parent for path in made}) == 2
    made[0].unlink()
    made[1].write_text("mine")
    async with summarising(tmp_path) as s:
        await s.settle()
    assert "Riga." in made[0].read_text()
    assert made[1].read_text() == "mine"


async def test_the_store_refuses_what_does_not_fit(tmp_path: Path) -> None:
    """A gap is allowed, an overlap is not; nor another segment, another user's chat, or a lost base."""
    async with summarising(tmp_path, enabled=False) as s:
        await s.say(*texts())
        good = NewSummary(
            user=UserId("local"),
            chat=CHAT,
            segment=0,
            first_seq=1,
            last_seq=8,
            text="Riga",
            tokens=2,
            model="m",
            created_at=iso(START),
        )
        put = partial(s.store.writer.run, summaries.put)
        one = await put(good)
        assert one.number == 1
        wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({}, {}),
            ({"first_seq": 8, "last_seq": 10}, {}),
            ({"first_seq": 9, "last_seq": 99}, {}),
            ({"first_seq": 9, "last_seq": 10, "segment": 1}, {}),
            ({"first_seq": 9, "last_seq": 10}, {"supersedes": [1]}),
            ({"first_seq": 1, "last_seq": 10}, {"supersedes": [2]}),
            ({"first_seq": 9, "last_seq": 10}, {"evicts": [5]}),
            ({"first_seq": 9, "last_seq": 10, "chat": chat_id(UserId("anna"), "main")}, {}),
            ({"first_seq": 9, "last_seq": 10, "text": " "}, {}),
            ({"first_seq": 9, "last_seq": 10, "text": "\ud800"}, {}),
            ({"first_seq": 9, "last_seq": 10, "user": UserId("anna"), "chat": chat_id(UserId("anna"), "x")}, {}),
        ]
        for changes, more in wrong:
            with pytest.raises(StorageError):
                await put(attrs.evolve(good, **changes), **more)
        rolled = await put(attrs.evolve(good, last_seq=12), supersedes=[1])
        last = await put(attrs.evolve(good, first_seq=15, last_seq=16), evicts=[rolled.number])
        assert [each.number for each in await s.live()] == [last.number]
        with pytest.raises(SummaryOutdated):
            await put(attrs.evolve(good, first_seq=13, last_seq=14))


async def test_off_means_off(tmp_path: Path) -> None:
    async with summarising(tmp_path, enabled=False) as s:
        await s.say(*texts())
        s.summarizer.turn_ended(CHAT)
        assert not s.summarizer.queue
        assert s.llm.requests == []


async def test_a_stop_gives_up_what_is_being_made_and_the_next_start_makes_it(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: text_reply("Never.", before_head=(Wait(trio.Event()),))
        await s.say(*texts())
        s.summarizer.turn_ended(CHAT)
        await s.llm.wait_for_requests(1)
        await s.stop()
        assert await s.all() == []
        with contextlib.suppress(trio.TooSlowError), trio.fail_after(HANG_S):
            await s.llm.requests[0].gone.wait()
        assert s.llm.requests[0].gone.is_set()
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda _request: text_reply("Riga.")
        await s.settle()
        assert (await s.live())[0].text == "Riga."


async def test_two_chats_interleaved_keep_to_themselves(tmp_path: Path) -> None:
    async with summarising(tmp_path) as s:
        s.llm.respond = lambda request: text_reply("чай" if "чай" in request.last_user else "coffee", usage=None)
        for number in range(16):
            await say(s.store, f"Я люблю чай, заварку и кипяток номер {number}, очень люблю", chat="a")
            await say(s.store, f"I like coffee, beans and mills number {number}, a lot of them", chat="b")
        for name in "ab":
            await s.settle(chat_id(UserId("local"), name))
        assert {each.text for each in await s.all(chat_id(UserId("local"), "a"))} == {"чай"}
        assert {each.text for each in await s.all(chat_id(UserId("local"), "b"))} == {"coffee"}
        session = await s.store.readers.run(messages.session, chat_id(UserId("local"), "a"))
        assert session is not None
