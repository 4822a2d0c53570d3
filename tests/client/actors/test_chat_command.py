"""``klaw chat`` as a program: in pipes, and at a real (pseudo) terminal."""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from klaw.wire.frames import DegradedPart, Delta, Error, MessageFrame, Send, Status, Tool
from tests.client.unit.small_terminal import SmallTerminal
from tests.support.processes import KLAW, completed
from tests.support.programs.fake_server import FakeServer, Link
from tests.support.waiting import HANG_S, until

COMMAND = [sys.executable, "-m", "klaw.cli.main", "chat"]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PATH", "PYTHON", "COVERAGE_"))}
    return {**kept, "TERM": "xterm", "LANG": "C.UTF-8", **more}


async def chat_in_pipe(server: FakeServer, stdin: bytes, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return await completed([*KLAW, "chat", "--url", server.url, *arguments], stdin, environment())


async def echo(link: Link, frame: Send, seq: int) -> None:
    """Answer like a turn: thinking, pieces, message, idle; commands by their reply."""
    server = link.server
    if frame.text.startswith("/"):
        await server.say(frame.chat, "system", f"reply to {frame.text}", "command")
        return
    turn = f"t{seq}"
    await server.tell(Status(chat=frame.chat, state="thinking", turn=turn), frame.chat)
    if frame.text == "fail":
        error = Error(code="llm_timeout", message="the model was slow", retryable=True, chat=frame.chat, turn=turn)
        await server.tell(error, frame.chat)
        await server.tell(Status(chat=frame.chat, state="failed", turn=turn, ended="failed"), frame.chat)
        return
    text = f"You said: {frame.text}"
    await server.tell(Delta(chat=frame.chat, turn=turn, offset=0, text=text[:5]), frame.chat)
    await server.say(frame.chat, "assistant", text, turn=turn)
    await server.tell(Status(chat=frame.chat, state="idle", turn=turn, ended="done"), frame.chat)


def echoing() -> FakeServer:
    server = FakeServer()
    server.after_send = echo
    return server


async def test_each_line_of_a_pipe_is_answered_in_turn() -> None:
    async with echoing().serving() as server:
        done = await chat_in_pipe(server, "Привет\n\n  second \n/status\nlast without line end".encode())
    assert done.stdout.decode().splitlines() == [
        "You said: Привет",
        "You said: second",
        "reply to /status",
        "You said: last without line end",
    ]
    assert (done.returncode, done.stderr) == (0, b"")


async def test_whole_makes_one_message_and_json_one_object() -> None:
    async with echoing().serving() as server:
        server.store("notes", "user", "earlier")
        done = await chat_in_pipe(server, "one\nдва\n".encode(), "--whole", "--json", "--chat", "notes")
    (line,) = done.stdout.decode().splitlines()
    answer = json.loads(line)
    assert answer["content"] == "You said: one\nдва"
    assert (answer["chat"], answer["seq"], answer["turn"], answer["role"]) == ("notes", 3, "t2", "assistant")


async def test_a_failed_turn_goes_to_stderr_and_the_rest_goes_on() -> None:
    async with echoing().serving() as server:
        done = await chat_in_pipe(server, b"fail\nnext\n")
    assert done.stdout == b"You said: next\n"
    assert b"the model was slow (llm_timeout)" in done.stderr
    assert done.returncode == 1


async def test_an_answer_given_while_the_connection_was_down_is_printed() -> None:
    server = FakeServer()

    async def cut_then_answer(link: Link, frame: Send, seq: int) -> None:
        server.store(frame.chat, "assistant", "made meanwhile", turn="t9")
        await link.cut()

    server.after_send = cut_then_answer
    async with server.serving():
        done = await chat_in_pipe(server, b"hi\n")
    assert (done.stdout, done.returncode) == (b"made meanwhile\n", 0)
    assert len(server.hellos) == 2
    assert done.stderr == b""


async def test_no_server_is_said_clearly() -> None:
    server = FakeServer()
    async with server.serving():
        pass
    done = await chat_in_pipe(server, b"hi\n")
    assert done.returncode == 1
    assert f"no server at {server.url}: start it with `klaw serve`" in done.stderr.decode()


async def test_bad_usage_is_2_and_bad_input_is_1() -> None:
    async with echoing().serving() as server:
        bad_name = await chat_in_pipe(server, b"hi\n", "--chat", "../x")
        bad_url = await chat_in_pipe(server, b"hi\n", "--url", "http://x")
        not_text = await chat_in_pipe(server, b"\xff\xfe\n")
        nothing = await chat_in_pipe(server, b"")
    assert (bad_name.returncode, bad_url.returncode, not_text.returncode, nothing.returncode) == (2, 2, 1, 0)
    assert b"UTF-8" in not_text.stderr
    assert server.sends == []


async def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    async with echoing().serving() as server:
        with trio.fail_after(HANG_S):
            done = await trio.run_process(
                ["/bin/sh", "-c", f"yes hi | head -50 | {' '.join(COMMAND)} --url {server.url} | head -1"],
                capture_stdout=True,
                capture_stderr=True,
                env=environment(),
            )
    assert (done.stdout, done.stderr) == (b"You said: hi\n", b"")


SPINNER = tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")


class Desk:
    """A person at a pseudo terminal."""

    def __init__(self, master: int, process: trio.Process, slave: int) -> None:
        self.master, self.slave = master, slave
        self.process = process
        self.seen = ""
        self.screen = SmallTerminal(80, 24)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def see(self, text: str) -> None:
        """Read until the text has appeared; what came before it is forgotten."""
        with trio.fail_after(HANG_S):
            while text not in self.seen:
                self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", await self._read())
        self.seen = self.seen.split(text, 1)[1]

    async def see_rows(self, *rows: str) -> None:
        """Read until the last rows of the screen are these; a row that ends with … need only begin so."""
        with trio.fail_after(HANG_S):
            while not self._stand(rows):
                await self._read()

    async def see_status(self, doing: str, below: str | None = None) -> None:
        """Read until the row above the input line names what is being done (an empty text: nothing), and the input
        line is this one."""
        with trio.fail_after(HANG_S):
            while True:
                *_, row, last = ["", "", *self.screen.picture]
                named = (doing in row and row[:1] in SPINNER) if doing else row[:1] not in SPINNER
                if named and below in (None, last):
                    return
                await self._read()

    async def see_text(self, text: str) -> None:
        """Read until a text stands on the screen, whatever its rows are."""
        with trio.fail_after(HANG_S):
            while "".join(text.split()) not in "".join("".join(self.screen.picture).split()):
                await self._read()

    async def resize(self, columns: int) -> None:
        """Make the window wider or narrower, with the text that is there: all that was written for the old one."""
        while select.select([self.master], [], [], 0)[0]:
            await self._read()
        self.screen.resize(columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def _stand(self, rows: tuple[str, ...]) -> bool:
        last = self.screen.picture[-len(rows) :]
        return len(last) == len(rows) and all(
            row.startswith(wanted[:-1]) if wanted.endswith("…") else row == wanted
            for row, wanted in zip(last, rows, strict=True)
        )

    async def _read(self) -> str:
        await trio.lowlevel.wait_readable(self.master)
        text = self._decoder.decode(os.read(self.master, 65536))
        self.screen.write(text.replace("\r\n", "\n"))
        return text

    async def leave(self) -> int:
        """Wait for the program's end, reading on so that it can write."""
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain)
                await self.process.wait()
                nursery.cancel_scope.cancel()
        return self.process.returncode or 0

    async def _drain(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self.master)
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                return


@asynccontextmanager
async def desk(server: FakeServer, *arguments: str, stdin: bytes | None = None) -> AsyncIterator[Desk]:
    """The program at a terminal; with ``stdin``, its input comes from a pipe."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    process = await trio.lowlevel.open_process(
        [*COMMAND, "--url", server.url, *arguments],
        stdin=slave if stdin is None else subprocess.PIPE,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
        env=environment(),
    )
    try:
        if process.stdin is not None:
            await process.stdin.send_all(stdin or b"")
            await process.stdin.aclose()
        yield Desk(master, process, slave)
        assert termios.tcgetattr(slave) == before, "the terminal was not put back"
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True), trio.move_on_after(5):
            await process.wait()
        os.close(slave)
        os.close(master)


async def test_a_conversation_at_a_terminal() -> None:
    """History, prompt, a streamed answer printed once, a command, and /quit."""
    server = echoing()
    server.store("main", "user", "раньше")
    server.store("main", "assistant", "old answer")
    server.degraded = [DegradedPart(code="no_model", text="full-text only: no embedding model")]
    async with server.serving(), desk(server) as person:
        await person.see("> раньше")
        await person.see("old answer")
        await person.see("> ")
        person.type("Как дела?\r")
        await person.see("> Как дела?")
        await person.see("You said: Как дела?")
        person.type("/status\r")
        await person.see("reply to /status")
        person.type("\x1b[A\x1b[A\r")  # up, up: the question again
        await person.see("You said: Как дела?")
        person.type("/quit\r")
        assert await person.leave() == 0
        assert "You said" not in person.seen
    assert [frame.text for frame in server.sends] == ["Как дела?", "/status", "Как дела?"]


async def test_control_c_stops_the_turn_and_then_leaves() -> None:
    server = FakeServer()

    async def never_done(link: Link, frame: Send, seq: int) -> None:
        await server.tell(Status(chat="main", state="answering", turn="t1"), "main")
        await server.tell(Delta(chat="main", turn="t1", offset=0, text="endless"), "main")

    server.after_send = never_done
    async with server.serving(), desk(server) as person:
        await person.see("> ")
        person.type("go\r")
        await person.see("endless")
        person.type("\x03")
        await person.see("[stopping; Ctrl-C again leaves]")
        await until(lambda: server.stops == 1)
        person.type("\x03\x03")  # on a busy machine the first of them may come too late to be the second press
        assert await person.leave() == 0


async def test_control_c_clears_what_is_typed_and_control_d_leaves() -> None:
    async with echoing().serving() as server, desk(server) as person:
        await person.see("> ")
        person.type("half")
        await person.see("half")
        person.type("\x03")
        await person.see("> \r")
        person.type("\x04")
        assert await person.leave() == 0
        assert server.sends == []


async def test_it_reconnects_with_a_visible_line_and_shows_what_was_missed() -> None:
    server = echoing()
    async with server.serving(), desk(server, "--no-history") as person:
        await person.see("> ")
        await until(lambda: any("main" in link.told for link in server.links))
        person.type("typed half")
        await person.see("typed half")
        server.store("main", "assistant", "while you were away", turn="t1")
        await server.cut_all()
        await person.see("[connection lost; trying to get it back]")
        await person.see("[connected again]")
        await person.see("while you were away")
        await person.see("> typed half")
        person.type(" and all\r")
        await person.see("You said: typed half and all")
        person.process.send_signal(signal.SIGTERM)
        assert await person.leave() == 0


async def test_a_final_refusal_ends_it_with_a_reason_and_a_sane_terminal() -> None:
    server = echoing()
    async with server.serving(), desk(server) as person:
        await person.see("> ")
        await until(lambda: server.links)
        await server.links[0].give(Error(code="unauthorized", message="the token was revoked"))
        await server.links[0].websocket.aclose(4401, "unauthorized")
        await person.see("refuses: the token was revoked")
        assert await person.leave() == 1


async def test_messages_of_other_clients_appear_while_one_types() -> None:
    server = echoing()
    async with server.serving(), desk(server) as person:
        await person.see("> ")
        person.type("мой текст")
        await person.see("мой текст")
        message: MessageFrame = await server.say("main", "user", "\x1b[2Jfrom the phone")
        assert message.seq == 1
        await person.see("> ␛[2Jfrom the phone")
        await person.see("> мой текст")
        person.type("\x15\x04")
        assert await person.leave() == 0


async def test_after_a_pause_of_the_program_the_input_line_is_back() -> None:
    """Ctrl-Z and fg: the shell has set its own terminal mode meanwhile."""
    async with echoing().serving() as server, desk(server) as person:
        await person.see("> ")
        person.type("before")
        await person.see("> before")
        mode = termios.tcgetattr(person.master)
        mode[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(person.master, termios.TCSANOW, mode)
        person.process.send_signal(signal.SIGCONT)
        await person.see("> before")
        person.type(" after\r")
        await person.see("You said: before after")
        person.type("/quit\r")
        assert await person.leave() == 0


async def test_what_is_being_done_stands_above_the_input_line() -> None:
    """From Enter to the first word each step is named as the server tells it; what is typed stays below."""
    steps = [
        (Status(chat="main", state="waiting"), "waiting for more"),
        (Status(chat="main", state="thinking", turn="t", doing="queued"), "waiting until another answer"),
        (Status(chat="main", state="thinking", turn="t", doing="recalling"), "recalling"),
        (Status(chat="main", state="thinking", turn="t", doing="a step of a newer server"), ""),
        (Status(chat="main", state="thinking", turn="t", doing="thinking"), "thinking"),
        (Tool(chat="main", turn="t", call="c", name="clock", state="started", what="zone: UTC"), "clock"),
        (Tool(chat="main", turn="t", call="c", name="clock", state="done"), "thinking"),
    ]
    async with FakeServer().serving() as server, desk(server) as person:
        await person.see("/help")
        person.type("Когда?\r")
        await until(lambda: bool(server.sends))
        person.type("дальше")
        for frame, doing in steps:
            await server.tell(frame, "main")
            await person.see_status(doing, "> дальше")
        assert "[clock: zone: UTC]" in person.screen.picture
        await server.tell(Delta(chat="main", turn="t", offset=0, text="Сейчас"), "main")
        await person.see_rows("Сейчас", "> дальше")
        await server.say("main", "assistant", "Сейчас полдень.", turn="t")
        await server.tell(Status(chat="main", state="idle", turn="t", ended="done"), "main")
        await person.see_rows("Сейчас полдень.", "> дальше")
        person.type("\x15\x04")
        assert await person.leave() == 0


async def test_the_window_is_resized_while_an_answer_comes_and_something_is_typed() -> None:
    """Rows end between words, no ghost of the input line or of the spinner is left, and nothing stands twice."""
    words = "Садовая калитка закрыта the garden gate is shut 花园的门关着 👍 and so on"
    async with FakeServer().serving() as server, desk(server) as person:
        await person.resize(60)
        await person.see("/help")
        await until(lambda: any("main" in link.told for link in server.links))
        person.type(typed := "a long line that is being typed meanwhile")
        await server.tell(Status(chat="main", state="thinking", turn="t", doing="thinking"), "main")
        await person.see_status("thinking", f"> {typed}")
        await person.resize(30)
        await person.see_status("thinking", f"> {typed[-27:]}")
        for number, columns in enumerate((24, 70, 20, 44)):
            cut = len(words) * (number + 1) // 4
            begin = len(words) * number // 4
            await server.tell(Delta(chat="main", turn="t", offset=begin, text=words[begin:cut]), "main")
            await person.see_text(words[:cut])
            await person.see_status("")  # nothing more is written for this width
            await person.resize(columns)
            await person.see_rows(f"> {typed[-(columns - 3) :]}")  # written again for the new one
            await person.see_text(words[:cut])
        picture = person.screen.picture
        assert sum("thinking" in row for row in picture) == 0, picture
        assert sum("meanwhile" in row for row in picture) == 1
        assert sum("калитка" in row for row in picture) == 1
        person.type("\x15\x04")
        assert await person.leave() == 0


async def test_control_c_does_not_lose_what_was_typed_after_it() -> None:
    """Ctrl-C clears, something new is typed at once, Ctrl-C again: that clears too, and Up brings it back."""
    async with echoing().serving() as server, desk(server) as person:
        await person.see("/help")
        for text in ("first", "second"):
            person.type(text)
            await person.see_rows(f"> {text}")
            person.type("\x03")
            await person.see_rows(">")
        assert person.process.returncode is None
        person.type("\x1b[A")
        await person.see_rows("> second")
        person.type("\r")
        await person.see("You said: second")
        person.type("/exit\r")
        assert await person.leave() == 0


async def test_commands_are_not_replayed_at_the_next_start_and_alt_enter_makes_a_new_line() -> None:
    server = echoing()
    server.store("main", "user", "question")
    server.store("main", "assistant", "answer")
    server.store("main", "user", "/help", "command")
    server.store("main", "system", "Commands: many", "command")
    async with server.serving(), desk(server, "--history", "2") as person:
        await person.see_rows("> question", "answer", "[Alt-Enter: new line…", ">")
        person.type("one\x1b\rдва\r")
        await person.see_rows("> one", "  два", "You said: one", "два", ">")
        person.type("\x04")
        assert await person.leave() == 0
    assert [frame.text for frame in server.sends] == ["one\nдва"]
