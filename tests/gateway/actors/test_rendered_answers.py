"""Answers as HTML while they grow: for connections that asked for it, over real sockets and with the real child."""

import os
import signal

from klaw.domain.events import TextStreamed, TurnEnded, TurnStarted
from klaw.domain.message import Role, TurnStatus
from klaw.domain.names import LOCAL_USER, ChatId
from tests.support.children import children
from tests.support.gateway_world import world
from tests.support.waiting import until

MAIN = ChatId("local:main")
CHILD = "klaw.web.child"


def streams(w, text, offset=0, turn="t1"):
    w.hub.emit(TextStreamed(chat=MAIN, turn=turn, offset=offset, text=text))


async def rendered(client, **fields):
    return (await client.until("rendered", **fields))[-1]


async def test_finished_blocks_come_once_and_the_open_one_again_and_again(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}, html=True) as c, w.client(chats={"main": 0}) as old:
        await c.get("status")
        await old.get("status")
        w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
        streams(w, "# Head\n\nsome\n*te")
        first = await rendered(c)
        assert first == {
            "type": "rendered", "chat": "main", "turn": "t1", "offset": 0, "end": 8, "shown": 16,
            "html": '<h1 dir="auto">Head</h1>\n', "rest": '<p dir="auto">some<br>\n*te</p>\n',
        }  # fmt: skip
        streams(w, "xt*", 16)
        second = await rendered(c)
        assert (second["offset"], second["end"], second["html"]) == (8, 8, "")
        assert second["rest"] == '<p dir="auto">some<br>\n<em>text</em></p>\n'
        w.chats.append(LOCAL_USER, "main", "# Head\n\nsome\n*text* ", role=Role.ASSISTANT, turn="t1")
        w.hub.emit(TurnEnded(chat=MAIN, turn="t1", status=TurnStatus.DONE, code=None, text=None))
        last = await rendered(c, seq=1)
        assert (last["offset"], last["end"], last["rest"]) == (8, 20, "")
        assert last["html"] == '<p dir="auto">some<br>\n<em>text</em></p>\n'
        await until(lambda: not children(CHILD))
        heard = await old.until("status", ended="done")
        assert "rendered" not in [frame["type"] for frame in heard]


async def test_what_is_stored_otherwise_than_it_was_told_is_rendered_as_a_whole(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}, html=True) as c:
        for number, stored in enumerate(("# Other\n\ntext", "# Head\n\n[a]\n\n[a]: http://a.example"), 1):
            turn = f"t{number}"
            w.hub.emit(TurnStarted(chat=MAIN, turn=turn, last_seq=1))
            streams(w, "# Head\n\n[a]\n\n", turn=turn)
            assert (await rendered(c, turn=turn))["end"] == 8
            w.chats.append(LOCAL_USER, "main", stored, role=Role.ASSISTANT, turn=turn)
            last = await rendered(c, seq=number)
            assert (last["offset"], last["end"]) == (0, len(stored))
        assert 'href="http://a.example"' in last["html"]


async def test_text_that_is_taken_back_is_rendered_from_its_beginning(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}, html=True) as c:
        w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
        streams(w, "# One\n\na\n*a*")
        await rendered(c, end=7)
        streams(w, "# Two\n\nb\n*b*")
        again = await rendered(c, end=7)
        assert again["offset"] == 0
        assert "Two" in again["html"]


async def test_a_child_that_ends_costs_only_the_rendering_of_that_answer(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}, html=True) as c:
        w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
        streams(w, "*a*")
        await rendered(c)
        [child] = children(CHILD)
        os.kill(child, signal.SIGKILL)
        streams(w, " *b*", 3)
        await until(lambda: not children(CHILD))
        w.chats.append(LOCAL_USER, "main", "*a* *b*", role=Role.ASSISTANT, turn="t1")
        w.hub.emit(TurnEnded(chat=MAIN, turn="t1", status=TurnStatus.DONE, code=None, text=None))
        w.hub.emit(TurnStarted(chat=MAIN, turn="t2", last_seq=1))
        streams(w, "*c*", turn="t2")
        heard = await c.until("rendered", turn="t2")
        assert "message" in [frame["type"] for frame in heard]
        assert "<em>c</em>" in heard[-1]["rest"]


async def test_a_client_that_goes_ends_its_child(tmp_path):
    async with world(tmp_path) as w:
        async with w.client(chats={"main": 0}, html=True) as c:
            w.hub.emit(TurnStarted(chat=MAIN, turn="t1", last_seq=1))
            streams(w, "*a*")
            await rendered(c)
        await until(lambda: not children(CHILD))
