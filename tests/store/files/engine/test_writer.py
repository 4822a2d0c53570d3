"""The writer: ids, order, idempotence, group commit, full disk; and what a reader then sees."""

import errno
import json
import os
from pathlib import Path

import pytest
import trio

from klaw.domain.message import Message, MessageKind, Role
from klaw.errors import IdConflict, StorageFull
from klaw.store.kinds import messages, turns
from tests.support.stores import FullDisk, new, running_store
from tests.support.turns import record


async def test_messages_get_their_places_and_can_be_read(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        (first,) = await store.writer.run(messages.append, [new("Привет", chat="дача")])
        (second,) = await store.writer.run(messages.append, [new("hello", chat="дача")])
        assert (first.message.seq, second.message.seq) == (1, 2)
        read = await store.readers.run(messages.after, first.message.chat, 0, 10)
        assert read == [first.message, second.message]


async def test_a_repeated_id_gives_the_stored_message_and_no_second_row(tmp_path: Path) -> None:
    published: list[Message] = []
    async with running_store(tmp_path, publish=published.extend) as store:
        (first,) = await store.writer.run(messages.append, [new("one", id="x")])
        (again,) = await store.writer.run(messages.append, [new("another text", id="x")])
        assert again.repeated
        assert again.message == first.message
        assert published == [first.message]


async def test_an_id_of_another_chat_is_refused_and_the_rest_of_the_group_is_stored(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new(id="x", chat="a")])
        begun = [
            await store.writer.begin(messages.append, [message]) for message in (new(chat="b"), new(id="x", chat="b"))
        ]
        assert (await begun[0].wait())[0].message.seq == 1
        with pytest.raises(IdConflict):
            await begun[1].wait()


async def test_the_same_id_of_another_user_is_another_message(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("mine", id="x", user="ann")])
        (theirs,) = await store.writer.run(messages.append, [new("theirs", id="x", user="bob")])
        assert not theirs.repeated
        assert theirs.message.content == "theirs"


async def test_seq_has_no_gaps_under_concurrency(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:

        async def client(chat: str) -> None:
            for _ in range(25):
                await store.writer.run(messages.append, [new(chat=chat)])

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(client, "ab"[number % 2])
        for chat in "ab":
            found = await store.readers.run(messages.after, new(chat=chat).chat, 0, 1000)
            assert [message.seq for message in found] == list(range(1, 101))


async def test_a_session_break_begins_a_segment(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("old")])
        await store.writer.run(messages.append, [new("", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)])
        (after,) = await store.writer.run(messages.append, [new("fresh")])
        assert after.message.segment == 1
        session = await store.readers.run(messages.session, after.message.chat)
        assert session is not None
        assert (session.segment, session.segment_start, session.last_seq) == (1, 2, 3)


async def test_a_group_costs_one_fsync(tmp_path: Path) -> None:
    calls = 0

    def counting(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        os.fsync(descriptor)

    async with running_store(tmp_path, fsync=counting) as store:
        await store.writer.run(messages.append, [new(chat="first")])  # reserves the commit log's space
        before = calls
        replies = [store.writer.offer(messages.append, [new(chat=f"c{number}")]) for number in range(20)]
        for reply in replies:
            assert reply is not None
            await reply.wait()
        assert calls - before == 1


async def test_a_full_disk_refuses_and_keeps_nothing_then_recovers(tmp_path: Path) -> None:
    disk = FullDisk()
    async with running_store(tmp_path, fsync=disk) as store:
        (kept,) = await store.writer.run(messages.append, [new("kept")])
        disk.full = True
        with pytest.raises(StorageFull):
            await store.writer.run(messages.append, [new("refused", id="r")])
        disk.full = False
        (again,) = await store.writer.run(messages.append, [new("accepted", id="r")])
        assert not again.repeated
        assert again.message.seq == 2
        lines = [
            json.loads(line)
            for log in (tmp_path / "conversations").rglob("*.jsonl")
            for line in log.read_text().splitlines()
        ]
        assert [line["content"] for line in lines] == ["kept", "accepted"]
        assert kept.message.seq == 1


async def test_a_checkpoint_on_a_full_disk_is_put_off(tmp_path: Path) -> None:
    """The message is stored and acknowledged; the commit log keeps it until a checkpoint succeeds."""
    armed: list[bool] = []

    def failing(descriptor: int) -> None:
        if armed and Path(f"/proc/self/fd/{descriptor}").readlink().name != "commit.log":
            armed.clear()
            raise OSError(errno.ENOSPC, "No space left on device")
        os.fsync(descriptor)

    async with running_store(tmp_path, fsync=failing, checkpoint_bytes=1) as store:
        armed.append(True)
        (first,) = await store.writer.run(messages.append, [new("one", id="1")])
        assert (tmp_path / "commit.log").read_bytes().strip(b"\0")
        await store.writer.run(messages.append, [new("two", id="2")])
        assert not (tmp_path / "commit.log").read_bytes().strip(b"\0")
        assert [m.content for m in await store.readers.run(messages.after, first.message.chat, 0, 9)] == ["one", "two"]


async def test_message_and_turn_are_stored_together(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        (asked,) = await store.writer.run(messages.append, [new("question")])
        turn = record(asked.message)
        await store.writer.run(messages.append, [new("answer", role=Role.ASSISTANT)], turn)
        assert await store.readers.run(turns.last, asked.message.chat) == turn
        assert await store.readers.run(messages.pending, asked.message.chat, 1, 10) == []


async def test_ping_is_answered(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.ping()
