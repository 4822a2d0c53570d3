"""Watching chats: resume, exactly once and in order, streaming, several watchers, slow clients."""

import attrs
import pytest
import trio
import trio.testing

from klaw.domain.events import HealthChanged, MessageStored, TextStreamed, ToolUsed, TurnEnded, TurnStarted
from klaw.domain.message import Role, TurnStatus
from klaw.domain.names import LOCAL_USER, ChatId
from klaw.errors import StorageError
from klaw.gateway import delivery, link
from tests.support.gateway_world import QUICK, world
from tests.support.waiting import HANG_S

MAIN = ChatId("local:main")


def seqs(frames):
    return [frame["seq"] for frame in frames if frame["type"] in ("message", "ack")]


async def test_resume_sends_what_was_missed_and_then_live_messages(tmp_path):
    async with world(tmp_path) as w:
        for number in range(300):
            w.chats.append(LOCAL_USER, "main", f"сообщение {number}")
        async with w.client(chats={"main": 100}) as c:
            heard = await c.until("caught_up", chat="main")
            assert seqs(heard) == list(range(101, 301))
            assert all(frame["replayed"] for frame in heard if frame["type"] == "message")
            assert heard[-1]["seq"] == 300
            assert await c.hear() == {"type": "status", "state": "idle", "chat": "main"}
            w.chats.append(LOCAL_USER, "main", "now", turn="t9", role=Role.ASSISTANT)
            live = await c.hear()
            assert (live["seq"], live["turn"], live["role"], live["kind"]) == (301, "t9", "assistant", "text")
            assert "replayed" not in live


async def test_resume_is_exactly_once_while_messages_are_appended(tmp_path):
    """However appends and page reads interleave, each message comes once and in order."""
    async with world(tmp_path) as w:
        w.chats.page = 7
        for number in range(50):
            w.chats.append(LOCAL_USER, "main", str(number))

        async def append():
            for number in range(400):
                w.chats.append(LOCAL_USER, "main", str(number))
                if number % 3 == 0:
                    await trio.lowlevel.checkpoint()

        async with w.client(chats={"main": 0}) as c, trio.open_nursery() as nursery:
            nursery.start_soon(append)
            heard = []
            while not heard or heard[-1] != 450:
                heard += seqs([await c.hear()])
            assert heard == list(range(1, 451))


async def test_own_and_foreign_messages_come_in_one_order(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as one, w.client(chats={"main": 0}) as two:

        async def send(client, prefix):
            for number in range(60):
                await client.say("send", id=f"{prefix}{number}", chat="main", text="x")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, one, "a")
            nursery.start_soon(send, two, "b")
            for client, own in ((one, "a"), (two, "b")):
                frames = []
                while len(seqs(frames)) < 120:
                    frames.append(await client.hear())
                assert seqs(frames) == list(range(1, 121))
                assert {f["id"][0] for f in frames if f["type"] == "ack"} == {own}
                assert {f["id"][0] for f in frames if f["type"] == "message"} == {"ab".replace(own, "")}


async def test_an_unacknowledged_message_is_found_again_after_a_reconnect(tmp_path):
    """Stored, but the connection broke before the ack: resume shows it, and sending it again is acknowledged."""
    async with world(tmp_path) as w:
        w.chats.append(LOCAL_USER, "main", "x", message_id="m1")
        async with w.client(chats={"main": 0}) as c:
            await c.say("send", id="m1", chat="main", text="x")
            heard = [await c.hear() for _ in range(3)]
            heard += await c.until("ack") if "ack" not in [frame["type"] for frame in heard] else []
            acks = [frame for frame in heard if frame["type"] == "ack"]
            assert [(ack["id"], ack["seq"]) for ack in acks] == [("m1", 1)]
        assert len(w.chats.rows[MAIN]) == 1


async def test_sending_watches_from_the_head_without_replay(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        for _ in range(5):
            w.chats.append(LOCAL_USER, "main", "old")
        await c.say("send", id="m1", chat="main", text="x")
        assert await c.hear() == {"type": "ack", "id": "m1", "chat": "main", "seq": 6}
        w.chats.append(LOCAL_USER, "main", "answer")
        assert (await c.hear())["seq"] == 7


async def test_watch_without_seq_and_again_with_one(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        for _ in range(5):
            w.chats.append(LOCAL_USER, "main", "old")
        await c.say("watch", chat="main", ref="w1")
        assert await c.hear() == {"type": "caught_up", "chat": "main", "seq": 5, "ref": "w1"}
        await c.say("watch", chat="main", seq=2, ref="w2")
        assert seqs((await c.until("caught_up", ref="w2"))[:-1]) == [3, 4, 5]


async def test_a_chat_that_does_not_exist_yet_can_be_watched(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"новый": 0}) as c:
        assert (await c.hear()) == {"type": "caught_up", "chat": "новый", "seq": 0}
        await c.get("status")
        w.chats.append(LOCAL_USER, "новый", "первое")
        assert (await c.hear())["seq"] == 1


async def test_a_client_that_is_ahead_of_the_server_is_told_and_goes_on_from_the_head(tmp_path):
    async with world(tmp_path) as w:
        w.chats.append(LOCAL_USER, "main", "x")
        async with w.client(chats={"main": 7}) as c:
            assert (await c.hear())["code"] == "seq_ahead"
            assert (await c.hear())["seq"] == 1
            await c.get("status")
            w.chats.append(LOCAL_USER, "main", "y")
            assert (await c.hear())["seq"] == 2


async def test_a_gap_in_the_events_is_filled_from_the_database(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        w.chats.append(LOCAL_USER, "main", "unheard", emit=False)
        w.chats.append(LOCAL_USER, "main", "heard")
        assert seqs([await c.hear(), await c.hear()]) == [1, 2]


async def test_an_event_for_a_row_that_is_gone_does_not_hang_the_stream(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        w.chats.append(LOCAL_USER, "main", "lost", emit=False)
        gone = w.chats.append(LOCAL_USER, "main", "gone", emit=False)
        rows, w.chats.rows[MAIN] = w.chats.rows[MAIN], []
        w.hub.emit(MessageStored(message=gone))
        with trio.fail_after(HANG_S):
            while not w.chats.reads:
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        w.chats.rows[MAIN] = rows
        w.chats.append(LOCAL_USER, "main", "third")
        assert (await c.hear())["seq"] == 3


async def test_a_message_that_is_stored_while_a_page_is_read_is_not_skipped(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        w.chats.read_gate = trio.Event()
        w.chats.append(LOCAL_USER, "main", "first")
        await c.say("watch", chat="main", seq=0)
        with trio.fail_after(HANG_S):
            while not w.chats.reads:
                await trio.lowlevel.checkpoint()
        for text in ("second", "third"):
            w.chats.append(LOCAL_USER, "main", text)
        w.chats.read_gate.set()
        assert seqs(await c.until("caught_up")) == [1, 2, 3]


async def test_a_message_that_is_stored_while_an_empty_page_is_read_is_not_skipped(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        for number in range(delivery.PAGE):
            w.chats.append(LOCAL_USER, "main", str(number))
        read = w.chats.after

        async def after(chat, seq, limit):
            found = await read(chat, seq, limit)
            if not found and len(w.chats.rows[MAIN]) == delivery.PAGE:
                w.chats.append(LOCAL_USER, "main", "one more")
            return found

        w.chats.after = after
        await c.say("watch", chat="main", seq=0)
        assert seqs(await c.until("caught_up")) == list(range(1, delivery.PAGE + 2))


async def test_a_send_right_after_a_watch_waits_for_the_watch(tmp_path):
    """Else its ack would come before the older messages that the watch brings."""
    async with world(tmp_path) as w, w.client() as c:
        for _ in range(5):
            w.chats.append(LOCAL_USER, "main", "old")
        await c.say("watch", chat="main", seq=0)
        await c.say("send", id="m1", chat="main", text="x")
        assert seqs(await c.until("ack")) == [1, 2, 3, 4, 5, 6]


async def test_the_events_of_a_turn_reach_every_watcher_in_order(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as one, w.client(chats={"main": 0}) as two:
        for c in (one, two):
            await c.get("status")
        w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
        w.hub.emit(TextStreamed(chat=MAIN, turn="t1", offset=0, text="При"))
        w.hub.emit(TextStreamed(chat=MAIN, turn="t1", offset=3, text="вет"))
        w.hub.emit(ToolUsed(chat=MAIN, turn="t1", call="c1", name="memory_search", state="started"))
        w.hub.emit(TextStreamed(chat=MAIN, turn="t1", offset=6, text="!"))
        w.chats.append(LOCAL_USER, "main", "Привет!", role=Role.ASSISTANT, turn="t1")
        w.hub.emit(TurnEnded(chat=MAIN, turn="t1", status=TurnStatus.DONE, code=None, text=None))
        for c in (one, two):
            heard = await c.until("status", ended="done")
            assert [frame["type"] for frame in heard] == ["status", "delta", "tool", "delta", "message", "status"]
            assert heard[1] == {"type": "delta", "chat": "main", "turn": "t1", "offset": 0, "text": "Привет"}
            assert heard[3]["offset"] == 6


async def test_a_failed_turn_is_an_error_frame(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        event = TurnEnded(chat=MAIN, turn="t1", status=TurnStatus.FAILED, code="llm_timeout", text="no answer in time")
        w.hub.emit(event)
        error = await c.hear()
        assert (error["code"], error["turn"], error["retryable"]) == ("llm_timeout", "t1", True)
        assert (await c.hear())["ended"] == "failed"


async def test_who_begins_to_watch_in_the_middle_of_an_answer_gets_its_beginning(tmp_path):
    async with world(tmp_path) as w:
        w.chats.append(LOCAL_USER, "main", "question")
        w.chats.running.add(MAIN)
        w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
        w.hub.emit(TextStreamed(chat=MAIN, turn="t1", offset=0, text="Once "))
        async with w.client(chats={"main": 0}) as c:
            heard = await c.until("delta")
            assert [frame["type"] for frame in heard] == ["message", "caught_up", "status", "delta"]
            assert (heard[2]["state"], heard[3]["offset"], heard[3]["text"]) == ("thinking", 0, "Once ")
            w.hub.emit(TextStreamed(chat=MAIN, turn="t1", offset=5, text="upon"))
            assert (await c.hear())["offset"] == 5


async def test_the_end_of_a_turn_is_never_told_before_its_answer(tmp_path):
    """While a chat catches up, what happens in it waits for the messages."""
    async with world(tmp_path) as w:
        w.chats.append(LOCAL_USER, "main", "question")
        w.chats.read_gate = trio.Event()
        async with w.client(chats={"main": 0}) as c:
            with trio.fail_after(HANG_S):
                while not w.chats.reads:
                    await trio.lowlevel.checkpoint()
            w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
            w.hub.emit(TextStreamed(chat=MAIN, turn="t1", offset=0, text="ans"))
            w.chats.append(LOCAL_USER, "main", "answer", role=Role.ASSISTANT, turn="t1")
            w.hub.emit(TurnEnded(chat=MAIN, turn="t1", status=TurnStatus.DONE, code=None, text=None))
            w.chats.read_gate.set()
            heard = await c.until("status", ended="done")
            assert seqs(heard) == [1, 2]
            assert "delta" not in [frame["type"] for frame in heard]


async def test_another_user_sees_nothing(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        w.chats.append("other", "main", "private")
        w.chats.append(LOCAL_USER, "main", "mine")
        assert (await c.hear())["content"] == "mine"
        page = (await c.call("chats_messages", chat="main"))["result"]
        assert [each["content"] for each in page["messages"]] == ["mine"]


async def test_a_client_that_never_reads_is_dropped_and_can_resume(tmp_path, quick_clock, log_events):
    async with world(tmp_path) as w:
        async with w.client(chats={"main": 0}) as c:
            await c.get("status")
            for _ in range(400):  # more than the sockets' buffers hold
                w.chats.append(LOCAL_USER, "main", "x" * 60_000)
            await trio.sleep(2 * link.SEND_S)
            assert w.gateway.connections() == []
        assert "client_too_slow" in [entry["event"] for entry in log_events]
        total = len(w.chats.rows[MAIN])
        async with w.client(chats={"main": total - 3}) as c:
            assert seqs(await c.until("caught_up")) == [total - 2, total - 1, total]


async def test_a_burst_larger_than_the_outbox_drops_nobody_who_reads(tmp_path):
    config = attrs.evolve(QUICK, outbox_frames=16)
    async with world(tmp_path, config) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        for number in range(500):
            w.chats.append(LOCAL_USER, "main", str(number))
        heard = [await c.hear() for _ in range(500)]
        assert seqs(heard) == list(range(1, 501))
        assert w.gateway.connections()[0]["outbox_high_water"] <= 16


async def test_an_outbox_full_of_answers_drops_the_client_with_4008(tmp_path):
    config = attrs.evolve(QUICK, outbox_frames=16)
    async with world(tmp_path, config) as w, w.client() as c:
        for number in range(40):
            w.hub.emit(HealthChanged(code="degraded", text=str(number)))
        assert await c.closed() == 4008


async def test_a_failing_database_ends_the_connection_with_1011(tmp_path):
    async with world(tmp_path) as w:
        w.chats.append(LOCAL_USER, "main", "x")

        async def fail(*_args):
            await trio.lowlevel.checkpoint()
            raise StorageError("broken")

        w.chats.after = fail
        async with w.client(chats={"main": 0}) as c:
            assert (await c.hear())["code"] == "storage"
            assert await c.closed() == 1011


async def test_notices_reach_everybody(tmp_path):
    async with world(tmp_path) as w, w.client() as one, w.client() as two:
        w.hub.emit(HealthChanged(code="embedder_failed", text="full text only", details={"since": "now"}))
        for c in (one, two):
            assert await c.hear() == {
                "type": "notice", "code": "embedder_failed", "text": "full text only", "details": {"since": "now"},
            }  # fmt: skip


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_history_pages_meet_without_gap_or_overlap(tmp_path, limit):
    async with world(tmp_path) as w, w.client() as c:
        for number in range(10):
            w.chats.append(LOCAL_USER, "main", str(number))
        pages, before, more = [], None, True
        while more:
            page = (await c.call("chats_messages", chat="main", limit=limit, before=before))["result"]
            pages = [each["seq"] for each in page["messages"]] + pages
            before, more = page["messages"][0]["seq"], page["more"]
        assert pages == list(range(1, 11))
        pages, after, more = [], 0, True
        while more:
            page = (await c.call("chats_messages", chat="main", limit=limit, after=after))["result"]
            pages += [each["seq"] for each in page["messages"]]
            after, more = pages[-1], page["more"]
        assert pages == list(range(1, 11))


async def test_a_page_of_long_messages_stays_below_a_megabyte(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        for _ in range(30):
            w.chats.append(LOCAL_USER, "main", "x" * 60_000)
        page = (await c.call("chats_messages", chat="main", limit=30))["result"]
        assert (len(page["messages"]), page["more"], page["messages"][-1]["seq"]) == (8, True, 30)


async def test_stop_is_answered(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        w.chats.append(LOCAL_USER, "main", "x")
        await c.say("stop", chat="main", ref="b")
        assert await c.hear() == {"type": "stopped", "chat": "main", "running": False, "ref": "b"}
        w.chats.running.add(MAIN)
        await c.say("stop", chat="main")
        assert (await c.hear())["running"] is True
