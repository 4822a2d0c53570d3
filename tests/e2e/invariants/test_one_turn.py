"""Invariant one-turn: a chat has at most one turn at a time; what comes meanwhile forms the next one."""

import sqlite3
from itertools import pairwise

import trio

from klaw.wire.frames import Stop, StoppedFrame
from tests.support.llm_server import Hang, Pause, Reply, Text, Wait, serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S

CHATS = ("main", "другой")
QUESTION = "the question before the flood / вопрос до потока"


def _said(request):
    return "\n".join(str(message["content"]) for message in request.messages)


async def test_one_turn_answers_what_came_while_another_ran(tmp_path):
    """Three clients send 30 messages during a turn: one request at a time, and the second one has them all in order."""
    gate = trio.Event()
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url, context={"slidingWindow": 50})) as server:
        llm.replies.append(Reply(steps=(Text("first"), Wait(gate), Text(" answer"))))
        async with talking(server.url) as one, talking(server.url) as two, talking(server.url) as three:
            begun = await one.send(QUESTION)
            await llm.wait_for_requests(1)
            async with trio.open_nursery() as nursery:
                for name, talk in (("a", one), ("b", two), ("c", three)):
                    nursery.start_soon(_flood, talk, name, 10)
            # Another chat's debounce, begun later, is over: so the flood's would be, if it had not to wait.
            await three.ask("tick", "clock")
            assert [request.last_user for request in llm.requests] == [QUESTION, "tick"], "no turn of its own"
            gate.set()
            first = await one.settled(begun)
            second = await one.settled(begun + 30)
            history = await one.history()
            await one.answer_to(second)
    assert len(llm.requests) == 3
    flood = [message.content for message in history if message.content.startswith("burst")]
    assert len(flood) == 30
    assert "burst" not in _said(llm.requests[0])
    places = [_said(llm.requests[2]).index(f"{text}") for text in flood]
    assert places == sorted(places)
    assert (first.first_seq, first.last_seq, second.first_seq, second.last_seq) == (1, 1, 2, 31)
    assert [message.content for message in history if message.role == "assistant"] == ["first answer", "ok"]


async def _flood(talk, name, count):
    for number in range(count):
        await talk.send(f"burst {name}{number:02}.")


async def test_one_turn_at_a_time_under_a_steady_flood(tmp_path):
    """Turns of a chat never overlap and cover each message once; turns of two chats do overlap."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, processing={"debounceMs": 0, "debounceMaxMs": 0})
        await _flood_two_chats(llm, home)


async def _flood_two_chats(llm, home):
    async with served(home) as server:
        both = trio.Event()

        def respond(request):
            if all(_asked(llm, chat) for chat in CHATS):
                both.set()
            return Reply(steps=(Text("so"), Wait(both), Pause(0.03), Text(" so")))

        llm.respond = respond
        async with talking(server.url) as one, talking(server.url) as two, trio.open_nursery() as nursery:
            for talk in (one, two):
                for chat in CHATS:
                    nursery.start_soon(_talk_on, talk, chat, llm)
        async with talking(server.url) as talk:
            for chat in CHATS:
                await talk.settled(await talk.send("last one", chat), chat)
        await server.terminate()
        with sqlite3.connect(server.database) as database:
            rows = database.execute(
                "SELECT chat_id, started_at, ended_at, first_seq, last_seq FROM turns ORDER BY chat_id, last_seq"
            ).fetchall()
            asked = database.execute("SELECT chat_id, seq FROM messages WHERE role = 'user'").fetchall()
        database.close()
    for chat in CHATS:
        assert sum(row[0] == f"local:{chat}" for row in rows) > 3, "the flood was longer than one turn"
    for before, after in pairwise(rows):
        if before[0] == after[0]:
            assert before[2] <= after[1], "a turn began before the one before it had ended"
            assert before[4] < after[3]
    for chat, seq in asked:
        assert sum(turn[0] == chat and turn[3] <= seq <= turn[4] for turn in rows) == 1
    overlapping = [(a, b) for a in rows for b in rows if a[0] < b[0] and a[1] < b[2] and b[1] < a[2]]
    assert overlapping, "different chats do not wait for each other"


def _asked(llm, chat):
    """How many turns of the chat have begun."""
    return sum(request.last_user.endswith(f" in {chat}") for request in llm.requests)


async def _talk_on(talk, chat, llm):
    """Send messages until the flood has lasted for several turns."""
    while _asked(llm, chat) < 5:
        await talk.send(f"message in {chat}", chat)


async def test_stop_cancels_within_the_stub(tmp_path):
    """/stop and the stop frame close the connection to the LLM, keep what was streamed and count as an answer."""
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, talking(server.url) as talk:
        for number, text in enumerate(("Tell me a long story", "Расскажи длинную сказку")):
            llm.replies.append(Reply(steps=(Text("Once upon"), Text(" a time"), Hang())))
            asked = await talk.send(text)
            await llm.wait_for_requests(number + 1)
            await talk.until(lambda number=number: _streamed(talk, "a time") > number)
            if number == 0:
                await talk.send("/stop")
            else:
                stopped = await talk.client.request(Stop(chat="main"))
                assert isinstance(stopped, StoppedFrame)
                assert stopped.running
            with trio.fail_after(HANG_S):
                await llm.requests[number].gone.wait()
            receipt = await talk.settled(asked)
            assert receipt.status == "stopped"
            assert await talk.answer_to(receipt) == "Once upon a time"
        llm.replies.append(text_reply("fresh"))
        receipt = await talk.ask("And now?")
        assert receipt.status == "done"
        assert receipt.first_seq == receipt.last_seq, "what was stopped is not asked again"


def _streamed(talk, text):
    return sum(text in getattr(event, "text", "") for event in talk.events)
