"""``klaw chat`` at a terminal: what is typed goes out, what happens appears above the input line."""

import math
import os
import signal
import stat
import termios
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Literal, TextIO

import trio

from klaw.actor.clock import new_id
from klaw.actor.threads import Threads
from klaw.client.ask import INTERRUPTED, QUIT, NoAnswer, ask
from klaw.client.client import Client
from klaw.client.connection import T, run_until_first_ends
from klaw.client.editor import COMPLETED, EditorKey, LineEditor, completed
from klaw.client.screen import PASTE_OFF, PASTE_ON, Foot, Screen
from klaw.client.streams import Event
from klaw.client.transcript import COMMAND, PROMPT, SENDING, SLOW_SPIN_S, SPIN_S, Activity, ScreenTranscript
from klaw.domain import context_used
from klaw.domain.context_used import place_of
from klaw.errors import ClientClosed, ConnectionLost, RequestRefused, ServerRefused, ServerUnreachable
from klaw.wire.frames import ClientFrame, FileOfMessage, MessageFrame, Stop

_LOCAL_FLAGS = 3
_CONTROL_CHARACTERS = 6
DEFAULT_SIZE = (80, 24)


def size_of(fd: int) -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        return DEFAULT_SIZE
    return (columns or DEFAULT_SIZE[0], rows or DEFAULT_SIZE[1])


def key_by_key(fd: int) -> None:
    """Let the terminal give each key at once and echo nothing; Ctrl-C and Ctrl-Z stay signals."""
    mode = termios.tcgetattr(fd)
    mode[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    mode[_CONTROL_CHARACTERS][termios.VMIN] = 1
    mode[_CONTROL_CHARACTERS][termios.VTIME] = 0
    termios.tcsetattr(fd, termios.TCSADRAIN, mode)


@contextmanager
def borrowed_terminal(fd: int, out: TextIO) -> Iterator[None]:
    """Use a terminal key by key; it is restored afterwards, whatever happens."""
    before = termios.tcgetattr(fd)
    try:
        key_by_key(fd)
        out.write(PASTE_ON)
        out.flush()
        yield
    finally:
        try:
            out.write(PASTE_OFF)
            out.flush()
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def read_keys(fd: int) -> bytes:
    """Wait for keys; empty when the terminal is gone."""
    await trio.lowlevel.wait_readable(fd)
    try:
        return os.read(fd, 4096)
    except OSError:  # it was hung up
        return b""


MAX_WAITING = 32
"""Lines that wait to be sent; more are refused."""
SECOND_PRESS_S = 2.0
ATTACH, OPEN = "/attach", "/open"
"""Typed and never sent: a file of this machine for the next message; a passage that an answer refers to."""
KEYS = "Alt-Enter: new line · Ctrl-C: stop · Ctrl-D or /quit: leave · /help"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGCONT)


class Interrupts:
    """Ctrl-C: the first stops the turn or clears the input; one soon after, or with nothing to do, quits. Typed text is
    never lost by leaving."""

    def __init__(self) -> None:
        self._last = -math.inf

    def press(self, now: float, *, busy: bool, typed: bool) -> Literal["stop", "clear", "quit"]:
        soon, self._last = now - self._last < SECOND_PRESS_S, now
        if busy and not soon:
            return "stop"
        return "clear" if typed else "quit"


class Terminal:
    """One conversation at a terminal whose input ``fd`` gives key by key."""

    def __init__(self, client: Client, chat: str, screen: Screen, fd: int, *, thinking: bool = False) -> None:
        self._client, self._chat, self._screen, self._fd = client, chat, screen, fd
        self._editor = LineEditor()
        self._transcript = ScreenTranscript(screen, chat, thinking=thinking, clock=trio.current_time)
        self._interrupts = Interrupts()
        self._once = False
        self._activity = Activity()
        self._spinning = trio.Event()
        self._typing = trio.Event()
        """Set when keys are read; before that, they are left to the shell."""
        self._completing = trio.Event()
        self._outgoing, self._typed = trio.open_memory_channel[tuple[str, str]](MAX_WAITING)

    async def run(self, earlier: Sequence[MessageFrame]) -> None:
        for entry in earlier:
            self._transcript.entry(entry)
            if entry.role == "user":
                self._editor.remember(entry.content)
        self._transcript.say(KEYS)
        if self._client.welcome is not None and self._client.welcome.hint:
            self._transcript.say(self._client.welcome.hint)
        self._typing.set()
        await self._until_first_ends(self._send, self._show_events, self._complete)

    async def ask(self, text: str) -> MessageFrame | NoAnswer:
        """Send one message to a watched chat, show its answer, and return it. Keys are read only for permissions.
        Raises ServerRefused, ServerUnreachable."""
        self._once = True
        self._activity.sent(text, trio.current_time())
        asking = partial(ask, self._client, self._chat, text, self._see)
        return await self._until_first_ends(asking) or INTERRUPTED

    async def _until_first_ends(self, *tasks: Callable[[], Awaitable[T | None]]) -> T | None:
        self._refresh()
        try:
            return await run_until_first_ends(self._read_keys, self._heed_signals, self._spin, *tasks)
        finally:
            self._screen.show(None)
            self._screen.end()

    async def _read_keys(self) -> None:
        await self._typing.wait()
        while keys := await read_keys(self._fd):
            if any(map(self._on_key, self._editor.feed(keys))):
                return
            self._refresh()

    async def _heed_signals(self) -> None:
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            async for number in signals:
                if self._on_signal(number):
                    return

    async def _send(self) -> None:
        """One message after the other, so that they are stored in the order in which they were typed."""
        attached: list[FileOfMessage] = []
        async for message_id, text in self._typed:
            word, _, rest = text.partition(" ")
            try:
                if word == ATTACH:
                    attached.append(await _attach(self._client, rest.strip()))
                    self._transcript.say(f"{attached[-1].name} goes with your next message")
                    self._activity.over(COMMAND)
                elif word == OPEN:
                    self._screen.line(await _passage(self._client, self._transcript.with_passages, rest))
                    self._activity.over(COMMAND)
                elif text.startswith("/"):
                    await self._client.send(self._chat, text, message_id)
                else:
                    files, attached = attached, []
                    await self._client.send(self._chat, text, message_id, files)
                    self._transcript.busy = True
            except (RequestRefused, ConnectionLost) as exc:
                self._transcript.refused(message_id, str(exc))
                self._activity.over(COMMAND if text.startswith("/") else SENDING)
            self._refresh()

    async def _complete(self) -> None:
        """Complete the name behind ``/model`` when Tab was pressed."""
        while True:
            await self._completing.wait()
            self._completing = trio.Event()
            try:
                answer = await self._client.call("chats_models", chat=self._chat)
            except (RequestRefused, ConnectionLost) as exc:
                self._transcript.say(str(exc))
                continue
            text = self._editor.text
            if text.startswith(COMPLETED):  # it may have been sent meanwhile
                found, more = completed(text.removeprefix(COMPLETED), [each["name"] for each in answer["models"]])
                self._editor.put(COMPLETED + found)
                if more:
                    self._transcript.say(more)
            self._refresh()

    async def _show_events(self) -> None:
        while True:
            self._see(await self._client.next_event())

    async def _spin(self) -> None:
        """Turn the spinner while something is being done; slowly while something is typed: a terminal that is being
        resized is better left alone, and long lines in it move most."""
        while True:
            await self._spinning.wait()
            await trio.sleep(SLOW_SPIN_S if self._editor.text else SPIN_S)
            self._refresh()

    def _see(self, event: Event) -> None:
        if getattr(event, "chat", None) in (None, self._chat):
            self._activity.see(event, trio.current_time())
        self._transcript.show(event)
        self._transcript.ask(trio.current_time())
        if self._transcript.questions.standing:
            self._typing.set()
        self._refresh()

    def _on_key(self, happened: str | EditorKey) -> bool:
        """Returns whether the user leaves."""
        if isinstance(happened, str):
            return self._submit(happened.strip())
        if happened is EditorKey.INTERRUPT:
            return self._interrupt()
        if happened is EditorKey.COMPLETE:
            self._completing.set()
        if happened is EditorKey.REDRAW:
            self._screen.clear()
        return happened is EditorKey.END

    def _submit(self, text: str) -> bool:
        if text.lower() in QUIT:
            return True
        now = trio.current_time()
        if (answer := self._transcript.questions.answer(text, now)) is not None:
            self._post(answer, "not connected: cannot answer")
        elif self._transcript.questions.too_soon(text, now):
            self._transcript.say("read the question first; nothing was sent")
        elif self._once:
            self._transcript.say("answer y or n")
        elif text:
            message_id = new_id()
            try:
                self._outgoing.send_nowait((message_id, text))
            except trio.WouldBlock:
                self._transcript.say("too many messages wait to be sent; this one was not taken")
            else:
                self._transcript.submitted(message_id, text)
                self._activity.sent(text, now)
        return False

    def _interrupt(self) -> bool:
        does = self._interrupts.press(trio.current_time(), busy=self._transcript.busy, typed=bool(self._editor.text))
        if does == "stop" and self._post(Stop(chat=self._chat), "not connected: cannot stop; Ctrl-C again leaves"):
            self._transcript.say("stopping; Ctrl-C again leaves")
        elif does == "clear":
            self._editor.remember(self._editor.text)
            self._editor.clear()
        self._refresh()
        return does == "quit"

    def _post(self, frame: ClientFrame, otherwise: str) -> bool:
        """Send a request; without a connection say ``otherwise``."""
        try:
            self._client.post(frame)
        except (ConnectionLost, ClientClosed, ServerRefused, ServerUnreachable):
            self._transcript.say(otherwise)
            return False
        return True

    def _on_signal(self, number: int) -> bool:
        if number == signal.SIGINT:
            return self._interrupt()
        if number == signal.SIGCONT:
            key_by_key(self._fd)
            self._screen.begin_anew()
        elif number == signal.SIGWINCH:
            self._screen.resized()
        else:
            return True
        self._refresh()
        return False

    def _refresh(self) -> None:
        """The input line stands below the text, except while an answer is written and nothing is typed."""
        status = self._activity.line(trio.current_time())
        if status:
            self._spinning.set()
        elif self._spinning.is_set():
            self._spinning = trio.Event()
        foot = None
        if (status or self._typing.is_set()) and (self._editor.text or not self._transcript.streaming):
            view = self._editor.view(max(self._screen.columns - len(PROMPT), 2))
            foot = Foot(prompt=PROMPT if self._typing.is_set() else "", view=view, status=status)
        self._screen.show(foot)


_threads = Threads("attach", 1)


async def _attach(client: Client, path: str) -> FileOfMessage:
    """Upload a file. Raises as ``Client.request``; RequestRefused also where it cannot be read."""
    most = client.welcome.limits.max_file_bytes if client.welcome else None
    if most is None:
        raise RequestRefused("unknown_type", "this server takes no files")
    return await client.upload(PurePath(path).name, await _threads.run(_read, path, most, abandon=True))


def _read(name: str, most: int) -> bytes:
    path = Path(name)
    try:
        path = path.expanduser()
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise RequestRefused("no_file", f"{path} is not a regular file")
        if info.st_size > most:
            raise RequestRefused("file_too_large", f"{path} has {info.st_size:,} bytes: at most {most:,}")
        return path.read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RequestRefused("no_file", f"{path} cannot be read: {why}") from error


async def _passage(client: Client, turn: str, number: str) -> str:
    """A passage as the model was given it for ``turn`` (empty: none). Raises as ``Client.request``; RequestRefused also
    where there is no such passage: the text says which there are."""
    if not turn:
        raise RequestRefused("no_passages", "no answer here refers to a passage")
    used = context_used.read((await client.call("receipt", turn=turn))["receipt"])
    given = {str(each.number): each for each in used.passages} if used is not None else {}
    found = given.get(number.strip("[] "))
    if found is None:
        numbers = f"1 to {len(given)}" if len(given) > 1 else "1"
        raise RequestRefused("no_passage", f"{OPEN} takes the number of a passage: {numbers}")
    return f"[{found.number}] {place_of(found)}\n{found.text}"
