"""Pieces of thinking over real sockets: for who watches the chat, and never in the way of messages and answers."""

import attrs
import trio

from klaw.domain.events import TextStreamed, ThoughtStreamed, ToolUsed, TurnEnded, TurnStarted
from klaw.domain.message import Role, TurnStatus
from klaw.domain.names import LOCAL_USER, ChatId
from tests.support.gateway_world import QUICK, world
from tests.support.waiting import HANG_S

MAIN = ChatId("local:main")


def thought(offset, text, turn="t1", chat=MAIN):
    return ThoughtStreamed(chat=chat, turn=turn, offset=offset, text=text)


async def test_thinking_comes_in_its_place(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        for event in (
            TurnStarted(chat=MAIN, turn="t1", last_seq=1),
            thought(0, "Наверное, "),
            thought(10, "четыре."),
            ToolUsed(chat=MAIN, turn="t1", call="c1", name="add", state="started"),
            thought(0, "Да."),
            TextStreamed(chat=MAIN, turn="t1", offset=0, text="Че"),
            TextStreamed(chat=MAIN, turn="t1", offset=2, text="тыре."),
        ):
            w.hub.emit(event)
        w.chats.append(LOCAL_USER, "main", "Четыре.", role=Role.ASSISTANT, turn="t1")
        heard = await c.until("message")
        assert [frame["type"] for frame in heard] == ["status", "thinking", "tool", "thinking", "delta", "message"]
        joined = {"type": "thinking", "chat": "main", "turn": "t1", "offset": 0, "text": "Наверное, четыре."}
        assert heard[1] == joined
        assert heard[4]["text"] == "Четыре."


async def test_thinking_of_another_user_or_chat_is_not_sent(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        for chat in ("other:main", "local:other"):
            w.hub.emit(thought(0, "private", chat=ChatId(chat)))
        w.chats.append(LOCAL_USER, "main", "mine")
        assert (await c.hear())["content"] == "mine"


async def test_who_catches_up_or_comes_later_gets_what_comes_from_then_on(tmp_path):
    async with world(tmp_path) as w:
        w.chats.append(LOCAL_USER, "main", "question")
        w.chats.read_gate = trio.Event()
        w.chats.running.add(MAIN)
        async with w.client(chats={"main": 0}) as c:
            with trio.fail_after(HANG_S):
                while not w.chats.reads:
                    await trio.lowlevel.checkpoint()
            w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
            w.hub.emit(thought(0, "missed "))
            w.chats.read_gate.set()
            heard = await c.until("caught_up")
            assert "thinking" not in [frame["type"] for frame in heard]
            await c.until("status", state="thinking")
            w.hub.emit(thought(7, "seen"))
            frame = (await c.until("thinking"))[-1]
            assert (frame["offset"], frame["text"]) == (7, "seen")


async def test_thinking_drops_no_client_and_leaves_room_for_the_answer(tmp_path):
    config = attrs.evolve(QUICK, outbox_frames=16)
    async with world(tmp_path, config) as w, w.client(chats={"main": 0}) as c:
        await c.get("status")
        for number in range(500):  # pieces of one turn would be joined
            w.hub.emit(thought(0, "x", turn=f"t{number}"))
        w.hub.emit(TurnEnded(chat=MAIN, turn="t1", status=TurnStatus.DONE, code=None, text=None))
        heard = await c.until("status", ended="done")
        assert 0 < len(heard) - 1 < 16
        assert w.gateway.connections()[0]["outbox_high_water"] <= 16
