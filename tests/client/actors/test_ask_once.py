"""``klaw chat QUESTION``: one question, its answer, an exit code; at a (pseudo) terminal and without one."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from klaw.wire.frames import ApprovalFrame, Approve, Delta, Send, Status, Tool
from tests.client.actors.test_chat_command import COMMAND, chat_in_pipe, desk, echoing, environment
from tests.support.programs.fake_server import FakeServer, Link
from tests.support.waiting import HANG_S, until

ASKED = ApprovalFrame(
    chat="main", id="a1", tool="host_exec", what="rm дом.txt", until="2026-11-22T12:00:05.000Z", turn="t"
)


@asynccontextmanager
async def started(server: FakeServer, *arguments: str) -> AsyncIterator[trio.Process]:
    """The program without any terminal."""
    process = await trio.lowlevel.open_process(
        [*COMMAND, "--url", server.url, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment(),
    )
    try:
        with trio.fail_after(HANG_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def told(stream: trio.abc.ReceiveStream | None, text: str) -> str:
    """Read until the text has come; all of it."""
    seen = b""
    while text not in seen.decode(errors="replace"):
        assert stream is not None
        data = await stream.receive_some()
        assert data, seen
        seen += data
    return seen.decode()


@pytest.mark.parametrize(
    ("question", "text"), [("Summarise this:", "One.\nTwo.\n"), ("Перескажи:", "\tРаз.\n\nДва.")], ids=["en", "ru"]
)
async def test_the_input_stands_below_the_question(question: str, text: str) -> None:
    async with echoing().serving() as server:
        done = await chat_in_pipe(server, text.encode(), question)
    assert [frame.text for frame in server.sends] == [f"{question}\n\n{text.strip()}"]
    assert done.stdout.decode() == f"You said: {question}\n\n{text.strip()}\n"
    assert (done.returncode, done.stderr) == (0, b"")


async def test_empty_input_is_fine_and_a_command_is_answered_by_its_reply() -> None:
    async with echoing().serving() as server:
        plain = await chat_in_pipe(server, b" \n", "Привет", "--chat", "other")
        command = await chat_in_pipe(server, b"", "/status")
        as_json = await chat_in_pipe(server, b"", "hello", "--json")
    assert plain.stdout.decode() == "You said: Привет\n"
    assert command.stdout == b"reply to /status\n"
    assert json.loads(as_json.stdout)["content"] == "You said: hello"
    assert [frame.chat for frame in server.sends] == ["other", "main", "main"]


async def test_what_is_no_text_or_too_much_or_nothing_is_refused() -> None:
    async with echoing().serving() as server:
        zeros, other, long, nothing = [
            await chat_in_pipe(server, data, question)
            for data, question in [(b"PK\0\1", "what?"), (b"\xff\xfe", "what?"), (b"x" * 70_000, "what?"), (b"", " ")]
        ]
    assert [done.returncode for done in (zeros, other, long, nothing)] == [1, 1, 1, 2]
    assert b"standard input is not UTF-8 text" in zeros.stderr
    assert b"standard input is not UTF-8 text" in other.stderr
    assert b"too long: at most 65536 bytes" in long.stderr
    assert b"nothing to ask" in nothing.stderr
    assert server.sends == []


async def test_a_failed_answer_is_an_error_with_exit_code_1() -> None:
    async with echoing().serving() as server:
        done = await chat_in_pipe(server, b"", "fail")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"klaw: the model was slow (llm_timeout)\n"


@pytest.mark.parametrize("final", ["Полдень.", "Полдень в Риге."], ids=["other words", "a mark taken out"])
async def test_the_answer_is_written_once_when_it_is_complete(final: str) -> None:
    """Whatever was streamed; not what was said before a tool was called."""
    server = FakeServer()
    async with server.serving(), started(server, "Сколько времени?") as process:
        await until(lambda: bool(server.links and "main" in server.links[0].told))
        await until(lambda: bool(server.sends))
        await server.tell(Status(chat="main", state="thinking", turn="t"), "main")
        await server.tell(Delta(chat="main", turn="t", offset=0, text="Смотрю"), "main")
        await server.say("main", "assistant", "Смотрю на часы.", "tool_call", turn="t")
        await server.tell(Tool(chat="main", turn="t", call="c", name="clock", state="started"), "main")
        await server.tell(Delta(chat="main", turn="t", offset=0, text="Полдень [1] в"), "main")
        await server.say("main", "assistant", final, turn="t")
        assert await told(process.stdout, "\n") == f"{final}\n"
        assert await process.wait() == 0


async def test_control_c_stops_the_answer() -> None:
    server = FakeServer()
    async with server.serving(), started(server, "count") as process:
        await until(lambda: bool(server.sends))
        await server.tell(Delta(chat="main", turn="t", offset=0, text="1, 2"), "main")
        process.send_signal(signal.SIGINT)
        await until(lambda: server.stops == 1)
        await server.tell(Status(chat="main", state="idle", turn="t", ended="stopped"), "main")
        assert await told(process.stderr, "\n") == "klaw: the answer was stopped (stopped)\n"
        assert await process.wait() == 130


async def test_without_a_terminal_permission_is_refused_with_a_word_about_it() -> None:
    """A question of a subagent is left to others: it is not about this answer."""
    server = FakeServer()
    async with server.serving(), started(server, "clean up") as process:
        await until(lambda: bool(server.sends))
        await server.tell(ApprovalFrame(chat="main", id="a0", tool="web", what="x", until=ASKED.until), "main")
        await server.tell(ASKED, "main")
        await until(lambda: bool(server.approvals))
        text = await told(process.stderr, "дом.txt\n")
        assert "klaw: not allowed, since no terminal is there to ask you: host_exec: rm дом.txt\n" in text
        await server.say("main", "assistant", "Not done.", turn="t")
        assert await process.wait() == 0
    assert [(each.id, each.allow) for each in server.approvals] == [("a1", False)]


async def answer(server: FakeServer, text: str) -> None:
    await server.say("main", "assistant", text, turn="t")
    await server.tell(Status(chat="main", state="idle", turn="t", ended="done"), "main")


async def test_at_a_terminal_there_is_a_spinner_and_what_is_typed_is_left_to_the_shell() -> None:
    async with FakeServer().serving() as server, desk(server, "Как дела?") as person:
        await until(lambda: bool(server.sends))
        await server.tell(Status(chat="main", state="thinking", turn="t", doing="thinking"), "main")
        await person.see_status("thinking", "")
        person.type("ls\r")
        await server.tell(Delta(chat="main", turn="t", offset=0, text="Всё "), "main")
        await person.see_rows("Всё")
        await answer(server, "Всё хорошо.")
        assert await person.leave() == 0
        assert os.read(person.slave, 100) == b"ls\n"
    assert [frame.text for frame in server.sends] == ["Как дела?"]


async def test_at_a_terminal_markdown_is_rendered_while_the_next_block_grows() -> None:
    """And what the model sends cannot command the terminal, not even by a character reference."""
    text = "# Ответ\n\n- **раз**\n- `два`\n\n&#x9b;2J\x1b[2J and *so*"
    async with FakeServer().serving() as server, desk(server, "Как?") as person:
        await until(lambda: bool(server.sends))
        for end, rows in (
            ("\n\n- ", ("# Ответ",)),
            ("&", ("Ответ", "", "- **раз**", "- `два`")),
            (" and", ("Ответ", "", "- **раз**", "- `два`", "", "&#x9b;2J\u241b[2J")),
        ):
            await server.tell(Delta(chat="main", turn="t", offset=0, text=text[: text.index(end)]), "main")
            await person.see_rows(*rows)
        await answer(server, text)
        await person.see_rows("Ответ", "", "• раз", "• два", "", "\ufffd2J\u241b[2J and so", "")
        assert await person.leave() == 0


@pytest.mark.parametrize(("typed", "allow"), [("да\r", True), ("n\r", False)])
async def test_at_a_terminal_permission_is_asked_also_when_the_input_is_a_pipe(typed: str, allow: bool) -> None:
    async with FakeServer().serving() as server, desk(server, "Clean this:", stdin="дом.txt".encode()) as person:
        await until(lambda: bool(server.sends))
        await server.tell(ASKED, "main")
        await person.see("rm дом.txt")
        await trio.sleep(0.6)  # a person needs longer to read it; a quicker yes does not count
        person.type("what?\r")
        await person.see("[answer y or n]")
        person.type(typed)
        await until(lambda: bool(server.approvals))
        await answer(server, "Done.")
        assert await person.leave() == 0
        assert "Done." in person.seen
    assert server.approvals == [Approve(id="a1", allow=allow)]
    assert [frame.text for frame in server.sends] == ["Clean this:\n\nдом.txt"]


async def test_control_c_at_a_terminal_stops_the_answer() -> None:
    server = FakeServer()

    async def endless(link: Link, frame: Send, seq: int) -> None:
        await server.tell(Delta(chat="main", turn="t", offset=0, text="endless"), "main")

    server.after_send = endless
    async with server.serving(), desk(server, "go") as person:
        await person.see("endless")
        person.type("\x03")
        await until(lambda: server.stops == 1)
        await server.tell(Status(chat="main", state="idle", turn="t", ended="stopped"), "main")
        await person.see("klaw: the answer was stopped (stopped)")
        assert await person.leave() == 130


async def test_no_server_is_said_clearly() -> None:
    server = FakeServer()
    async with server.serving():
        pass
    done = await chat_in_pipe(server, b"", "hi")
    assert done.returncode == 1
    assert b"start it with `klaw serve`" in done.stderr
