"""The outbox: bounded, in order, joining pieces of one answer."""

import json

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from klaw.gateway import outbox as module
from klaw.gateway.outbox import AT_ONCE_CHARS, MAX_CONTROL_BYTES
from klaw.wire.frames import ThinkingFrame


class Outbox(module.Outbox):
    """Counts the frames for which it has no room."""

    def __init__(self, capacity, **how):
        super().__init__(capacity, self._count, **how)
        self.refused = 0

    def _count(self):
        self.refused += 1


async def drain(outbox):
    outbox.close()
    taken = []
    while (frames := await outbox.take()) is not None:
        taken += frames
    return taken


async def test_pieces_of_one_answer_are_joined():
    outbox = Outbox(10)
    for offset, text in ((0, "При"), (3, "вет"), (6, "!")):
        outbox.put_delta("main", "t1", offset, text)
    (frame,) = await drain(outbox)
    assert json.loads(frame) == {"type": "delta", "chat": "main", "turn": "t1", "offset": 0, "text": "Привет!"}


async def test_pieces_are_joined_past_frames_of_other_chats_but_not_past_one_of_the_same():
    outbox = Outbox(10)
    outbox.put_delta("a", "t1", 0, "x")
    outbox.put("answer")
    outbox.put("message of b", "b")
    outbox.put_delta("a", "t1", 1, "y")
    outbox.put("tool of a", "a")
    outbox.put_delta("a", "t1", 2, "z")
    outbox.put_delta("a", "t2", 3, "w")
    frames = await drain(outbox)
    assert [json.loads(f)["text"] if f[0] == "{" else f for f in frames] == [
        "xy", "answer", "message of b", "tool of a", "z", "w",
    ]  # fmt: skip


async def test_pieces_of_thinking_are_joined_by_themselves():
    outbox = Outbox(10)
    outbox.put_delta("a", "t1", 0, "so", ThinkingFrame)
    outbox.put_delta("a", "t1", 2, "...", ThinkingFrame)
    outbox.put_delta("a", "t1", 5, "x")
    outbox.put_delta("a", "t1", 6, "y", ThinkingFrame)
    frames = [json.loads(frame) for frame in await drain(outbox)]
    assert [(f["type"], f["offset"], f["text"]) for f in frames] == [
        ("thinking", 0, "so..."), ("delta", 5, "x"), ("thinking", 6, "y"),
    ]  # fmt: skip


async def test_a_piece_that_was_taken_is_not_added_to():
    outbox = Outbox(10)
    outbox.put_delta("a", "t1", 0, "x")
    (frame,) = await outbox.take()
    assert json.loads(frame)["text"] == "x"
    outbox.put_delta("a", "t1", 1, "y")
    assert json.loads((await drain(outbox))[0])["offset"] == 1


async def test_a_full_outbox_refuses_frames_but_still_joins_pieces():
    outbox = Outbox(2)
    outbox.put("one")
    outbox.put_delta("a", "t", 0, "x")
    assert outbox.refused == 0
    outbox.put("three")
    outbox.put_delta("b", "t", 0, "x")
    assert outbox.refused == 2
    outbox.put_delta("a", "t", 1, "y")
    assert outbox.refused == 2
    assert outbox.high_water == 2


async def test_waiting_for_room_ends_when_the_writer_takes():
    outbox = Outbox(4)
    for text in "abcd":
        outbox.put(text * AT_ONCE_CHARS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.wait_for_room, 0.5)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            await outbox.take()
    assert outbox.depth == 1


async def test_cancelling_take_loses_nothing():
    outbox = Outbox(4)
    with trio.CancelScope() as scope:
        scope.cancel()
        await outbox.take()
    outbox.put("x")
    with trio.CancelScope() as scope:
        scope.cancel()
        await outbox.take()
    assert await drain(outbox) == ["x"]


async def test_closing_can_keep_or_clear_what_is_queued():
    outbox = Outbox(4)
    outbox.put("x")
    outbox.close(clear=True)
    outbox.put("ignored")
    assert outbox.refused == 0
    assert await outbox.take() is None


async def test_a_frame_that_comes_alone_is_sent_at_once_and_in_order():
    sent = []

    def send_now(text):
        sent.append(text)
        return b"rest of " + text.encode() if text == "long" else b""

    outbox = Outbox(4, send_now=send_now)
    outbox.put("a", alone=True)  # nobody takes yet: it has its turn
    async with trio.open_nursery() as nursery:

        async def write():
            while (frames := await outbox.take()) is not None:
                sent.extend(frames)

        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        outbox.put("b", alone=True)
        outbox.put("long", alone=True)
        outbox.put("c", alone=True)  # behind what is left of the long one
        outbox.put("d")
        outbox.put("e", alone=True)
        assert sent == ["a", "b", "long"]
        outbox.close()
    assert sent == ["a", "b", "long", b"rest of long", "c", "d", "e"]


async def test_short_frames_are_taken_together_and_control_frames_first():
    outbox = Outbox(4)
    outbox.put("a")
    outbox.put("b" * AT_ONCE_CHARS)
    outbox.put("c")
    outbox.interrupt(b"pong")
    assert await outbox.take() == [b"pong", "a", "b" * AT_ONCE_CHARS]
    for _ in range(MAX_CONTROL_BYTES):
        outbox.interrupt(b"12")  # of a peer that asks and does not read
    outbox.close(clear=True)
    assert await outbox.take() == [b"12" * (MAX_CONTROL_BYTES // 2)]
    assert await outbox.take() is None


@pytest.mark.parametrize("size", [1, 3])
@given(pieces=st.lists(st.tuples(st.sampled_from("ab"), st.text("xyя", max_size=3)), max_size=30))
def test_joined_pieces_are_the_whole_answer(size, pieces):
    async def main():
        outbox, said, heard, taken = Outbox(100), {"a": "", "b": ""}, {"a": "", "b": ""}, []
        for number, (chat, text) in enumerate(pieces):
            outbox.put_delta(chat, "t", len(said[chat]), text)
            said[chat] += text
            if number % size == 0 and outbox.depth:
                taken += await outbox.take()
        for text in [*taken, *await drain(outbox)]:
            frame = json.loads(text)
            assert frame["offset"] == len(heard[frame["chat"]])
            heard[frame["chat"]] += frame["text"]
        assert heard == said

    trio.run(main)


async def test_characters_are_bounded_too() -> None:
    """A client that asks for many large pages and never reads is dropped before they fill the memory."""
    outbox = Outbox(100, max_chars=50)
    outbox.put("x" * 80)  # one frame always may wait
    assert outbox.refused == 0
    outbox.put("y")
    assert outbox.refused == 1
    assert not outbox.has_room()
    await outbox.take()
    outbox.put_delta("main", "t", 0, "z" * 40)
    assert outbox.refused == 1
    outbox.put_delta("main", "t", 40, "z" * 40)
    assert outbox.refused == 2
