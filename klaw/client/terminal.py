"""``klaw chat`` at a terminal: what is typed goes out, what happens appears above the input line."""

import enum
import math
import os
import signal
import termios
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import trio

from klaw.actor.clock import new_id
from klaw.client.activity import COMMAND, SENDING, SLOW_SPIN_S, SPIN_S, Activity
from klaw.client.ask import INTERRUPTED, NoAnswer, ask
from klaw.client.client import Client
from klaw.client.connection import QUIT
from klaw.client.editor import EditorKey, LineEditor, SubmittedLine
from klaw.client.events import Event
from klaw.client.link import run_until_first_ends
from klaw.client.screen import PASTE_OFF, PASTE_ON, Foot, Screen
from klaw.client.transcript import PROMPT, ScreenTranscript
from klaw.client.typed_commands import ATTACH, OPEN, attach, passage
from klaw.errors import ClientClosed, ConnectionLost, RequestRefused, ServerRefused, ServerUnreachable
from klaw.wire.files import FileOfMessage
from klaw.wire.frames import ClientFrame, MessageFrame, Stop

_LOCAL_FLAGS = 3
_CONTROL_CHARACTERS = 6
DEFAULT_SIZE = (80, 24)


def size_of(fd: int) -> tuple[int, int]:
    """Columns and rows of a terminal now."""
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
    """What was typed, as soon as there is something; empty when the terminal is gone."""
    await trio.lowlevel.wait_readable(fd)
    try:
        return os.read(fd, 4096)
    except OSError:
        # A hung-up terminal reads as an input/output error.
        return b""


MAX_WAITING = 32
"""Lines that wait to be sent; more are refused."""
SECOND_PRESS_S = 2.0
KEYS = "Alt-Enter: new line · Ctrl-C: stop · Ctrl-D or /quit: leave · /help"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGCONT)


class Press(enum.Enum):
    STOP = "stop"
    CLEAR = "clear"
    QUIT = "quit"


class Interrupts:
    """Ctrl-C: the first stops the turn or clears the input; one soon after, or with nothing to do, quits. Typed text is
    never lost by leaving."""

    def __init__(self) -> None:
        self._last = -math.inf

    def press(self, now: float, *, busy: bool, typed: bool) -> Press:
        soon = now - self._last < SECOND_PRESS_S
        self._last = now
        if busy and not soon:
            return Press.STOP
        return Press.CLEAR if typed else Press.QUIT


class Terminal:
    """One conversation at a terminal whose input ``fd`` gives key by key."""

    def __init__(self, client: Client, chat: str, screen: Screen, fd: int) -> None:
        self._client = client
        self._chat = chat
        self._screen = screen
        self._fd = fd
        self._editor = LineEditor()
        self._transcript = ScreenTranscript(screen, chat)
        self._interrupts = Interrupts()
        self._once = False
        self._activity = Activity()
        self._spinning = trio.Event()
        """Set while the row of the activity is shown."""
        self._typing = trio.Event()
        """Set when keys are read; before that, they are left to the shell."""
        self._outgoing, self._typed = trio.open_memory_channel[tuple[str, str]](MAX_WAITING)

    async def run(self, earlier: Sequence[MessageFrame]) -> None:
        """Talk until the user leaves. Raises ServerRefused, ServerUnreachable."""
        for entry in earlier:
            self._transcript.entry(entry)
            if entry.role == "user":
                self._editor.remember(entry.content)
        self._transcript.say(KEYS)
        self._typing.set()
        await self._until_first_ends(self._send, self._show_events)

    async def ask(self, text: str) -> MessageFrame | NoAnswer:
        """Send one message to a watched chat, show its answer, and return it. Keys are read only for permissions.
        Raises ServerRefused, ServerUnreachable."""
        verdict: MessageFrame | NoAnswer = INTERRUPTED
        self._once = True

        async def send() -> None:
            nonlocal verdict
            verdict = await ask(self._client, self._chat, text, self._see)

        self._activity.sent(text, trio.current_time())
        await self._until_first_ends(send)
        return verdict

    async def _until_first_ends(self, *tasks: Callable[[], Awaitable[None]]) -> None:
        self._refresh()
        try:
            await run_until_first_ends(self._read_keys, self._heed_signals, self._spin, *tasks)
        finally:
            self._screen.show(None)
            self._screen.end()

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def _read_keys(self) -> None:
        await self._typing.wait()
        while keys := await read_keys(self._fd):
            for happened in self._editor.feed(keys):
                if self._on_key(happened):
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
                    attached.append(await attach(self._client, rest.strip()))
                    self._transcript.say(f"{attached[-1].name} goes with your next message")
                    self._activity.over(COMMAND)
                elif word == OPEN:
                    self._screen.line(await passage(self._client, self._transcript.with_passages, rest))
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

    # -- what happens ----------------------------------------------------------------------------------------------

    def _see(self, event: Event) -> None:
        if getattr(event, "chat", None) in (None, self._chat):
            self._activity.see(event, trio.current_time())
        self._transcript.show(event)
        self._transcript.ask(trio.current_time())
        if self._transcript.questions.standing:
            self._typing.set()
        self._refresh()

    def _on_key(self, happened: SubmittedLine | EditorKey) -> bool:
        match happened:
            case SubmittedLine(text=text):
                return self._submit(text.strip())
            case EditorKey.END:
                return True
            case EditorKey.INTERRUPT:
                return self._interrupt()
            case EditorKey.REDRAW:
                self._screen.clear()
        return False

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
        press = self._interrupts.press(trio.current_time(), busy=self._transcript.busy, typed=bool(self._editor.text))
        if press is Press.STOP:
            if self._post(Stop(chat=self._chat), "not connected: cannot stop; Ctrl-C again leaves"):
                self._transcript.say("stopping; Ctrl-C again leaves")
        elif press is Press.CLEAR:
            self._editor.remember(self._editor.text)
            self._editor.clear()
        self._refresh()
        return press is Press.QUIT

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
