"""No text that a frame can carry holds up the event loop, in any frame, command or turn: a server process is told them
all, and says which step took longest."""

import json
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import get_args

import attrs
import trio

from klaw.chats.commands import Command
from klaw.errors import RequestRefused
from klaw.wire.frames import ClientFrame, Send
from tests.support.hostile import FRAME_BYTES, hostile_texts
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.talking import bare_socket, talking
from tests.support.waiting import HANG_S

STEP_S = 0.5
"""Of CPU. 0.1 is meant; what is not linear takes several seconds, or for ever."""
LOCKED_S = 1.0
"""Of CPU of all threads together, while none of them lets another one run."""
TURNS = (
    "latin", "russian", "combining marks, out of order", "zalgo", "hangul jamo", "ligature of many letters",
    "chinese small talk, and then '龍'", "thai small talk, and then 'z'", "khmer", "emoji families",
    "digits with spaces", "dates", "sentences of one letter", "spaces, and then 'z'", "claims", "russian claims",
    "quotes",
)  # fmt: skip
"""So many: each is stored and answered twice."""
COMMANDS = TURNS[2::3]


@asynccontextmanager
async def measured(tmp_path, **config):
    """A server that measures itself for the body, and what it found in the end."""
    out = tmp_path / "steps.json"
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url, **config), start=False) as server:
        llm.respond = lambda request: text_reply(request.last_user)
        server.program = (sys.executable, "-m", "tests.support.programs.longest_step", str(out))
        with trio.fail_after(HANG_S):
            await server.start()
            server.process.send_signal(signal.SIGUSR1)
            yield server
            assert await server.terminate() == 0
        assert not [event for event in server.events() if event["level"] == "error"]
    found = json.loads(out.read_text())
    assert found["step_s"] < STEP_S, found
    assert found["locked_s"] < LOCKED_S, found


def frames(text):
    """A text in every place of every frame that may hold one."""
    for cls in get_args(ClientFrame):
        whole = {field.name: GOOD[field.name] for field in attrs.fields(cls)}
        for name, value in whole.items():
            if name == "chats":
                yield {"type": cls.type, **whole, "chats": {text: 1}}
            elif name == "files":
                yield {"type": cls.type, **whole, "files": [{"sha256": "0" * 64, "name": text}]}
                yield {"type": cls.type, **whole, "files": [{"sha256": text}]}
            elif isinstance(value, str) and not (cls is Send and name == "text"):
                yield {"type": cls.type, **whole, name: text}
            elif name == "args":
                yield {"type": cls.type, **whole, "args": {text: 1}}
                yield {"type": cls.type, **whole, "operation": "search", "args": {"query": text}}
    yield {"type": text}
    yield {"type": "watch", "chat": "main", text: 1}


GOOD = {
    "version": 2, "client": "test", "token": "t", "chats": {}, "id": "m1", "chat": "main", "text": "x",
    "ref": "r", "seq": 0, "allow": True, "files": None, "operation": "health", "args": {}, "name": "a.txt", "offset": 0,
    "data": "YQ==", "last": False, "sha256": "0" * 64, "model": "stub/model", "html": True, "visible": True,
    "transcribed": True,
}  # fmt: skip


async def test_no_frame_before_hello_holds_up_the_event_loop(tmp_path):
    async with measured(tmp_path) as server:
        for _, text in carried(("",)):
            for frame in frames(text):
                if frame["type"] in ("hello", "send", text):
                    async with bare_socket(server.url) as socket:
                        await socket.send_message(encoded(frame))
                        while True:
                            await socket.get_message()


async def test_no_frame_after_hello_holds_up_the_event_loop(tmp_path):
    told = 0
    async with measured(tmp_path) as server, bare_socket(server.url) as socket:
        await socket.send_message(encoded({"type": "hello", "version": 2}))
        plain, ended = (tuple(carried((end,))) for end in ("", "龍"))
        for number, texts in enumerate(zip(plain, ended, strict=True)):
            # In each place every text, and every other one with an end that it is not made of.
            for place, both in enumerate(zip(*(frames(text) for _, text in texts), strict=True)):
                await socket.send_message(encoded(both[(number + place) % 2]))
                told += 1
                mark = {"type": "call", "operation": "chats_list", "args": {"limit": 1}, "ref": str(told)}
                await socket.send_message(encoded(mark))
                while json.loads(await socket.get_message()).get("ref") != str(told):
                    pass
    assert told > 1_000


async def test_no_slash_command_holds_up_the_event_loop(tmp_path):
    texts = dict(carried(("", "龍", "z")))
    async with measured(tmp_path) as server, talking(server.url) as talk:
        for name in COMMANDS:
            for command in Command:
                with suppress(RequestRefused):
                    await talk.send(f"{command.value} {texts[name]}".rstrip())
            await talk.ask("go on")


async def test_no_turn_with_recall_holds_up_the_event_loop(tmp_path):
    """Each text is said, answered with itself, and asked for again when it is out of the window."""
    texts = dict(carried(("", "龍", "z")))
    async with measured(tmp_path, context={"slidingWindow": 2}) as server, talking(server.url) as talk:
        for name in TURNS:
            for _ in range(2):
                await talk.ask(f"the word is {name}: {texts[name]}")


def carried(ends):
    """What a frame can carry of each text, by its name."""
    for name, text in hostile_texts(ends=ends):
        length = len(encoded({"text": text}).encode())
        yield name, text[-(len(text) * (FRAME_BYTES - 1_000) // length) :]


def encoded(frame):
    """As short as the wire allows."""
    text = json.dumps(frame, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(frame)
    return text
