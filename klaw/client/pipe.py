"""``klaw chat`` in a pipe: messages in, one a line (or all of it as one), and only the answers out.

An answer is written when it is complete: streamed words could not be taken back when a citation is invalid, or another
model begins again.
"""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TextIO

import attrs
import trio

from klaw.actor.threads import Threads
from klaw.client.ask import EXIT_STOPPED, INTERRUPTED, QUIT, NoAnswer, ask
from klaw.client.client import Client
from klaw.client.connection import run_until_first_ends
from klaw.client.streams import Event
from klaw.domain.text_width import harmless
from klaw.errors import ConnectionLost, InputError
from klaw.wire.frames import ApprovalFrame, Approve, MessageFrame, Stop

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Input without a line end is not collected beyond this."""
STOP_S = 3.0
"""How long to wait for the end of a stopped answer."""


class Messages:
    """The messages on a file descriptor of any kind."""

    def __init__(self, fd: int, *, whole: bool) -> None:
        self._fd, self._whole = fd, whole
        self._threads = Threads("stdin", 1)
        self._held = b""
        self._at_end = False

    async def next(self) -> str | None:
        """The next message that is not blank; None at the end. Raises InputError: it is not UTF-8 text, or too long."""
        while True:
            line, mark, rest = self._held.partition(b"\n")
            if mark and not self._whole:
                self._held = rest
            elif self._at_end:
                line, self._held = self._held, b""
                if not line:
                    return None
            else:
                await self._read()
                continue
            try:
                text = line.decode().strip()
            except UnicodeDecodeError:
                text = "\0"
            if "\0" in text:
                raise InputError("standard input is not UTF-8 text")
            if text:
                return text

    async def _read(self) -> None:
        # A thread, since files and some devices cannot be waited for; it may be left behind in the call.
        try:
            data = await self._threads.run(os.read, self._fd, 64 * 1024, abandon=True)
        except OSError as exc:
            raise InputError(f"standard input cannot be read ({exc.strerror})") from exc
        self._at_end = not data
        self._held += data
        if len(self._held) > MAX_MESSAGE_BYTES:
            raise InputError("a message on standard input is too long")


class Pipe:
    """The answers of one chat on ``out``; ``warn`` tells what went wrong. ``once``: nobody is asked for permission."""

    def __init__(
        self, client: Client, chat: str, out: TextIO, warn: Callable[[str], None], *, as_json: bool, once: bool
    ) -> None:
        self._client, self._chat = client, chat
        self._out, self._warn = out, warn
        self._as_json, self._once = as_json, once

    async def converse(self, messages: Messages) -> int:
        """Send each message after the answer to the one before, up to ``/quit``. Returns the exit code: 1 if one got no
        answer, 130 after Ctrl-C, else 0.

        Raises:
            BrokenPipeError: nobody reads the answers any more.
            InputError, ServerRefused, ServerUnreachable
        """
        code = 0
        while (text := await messages.next()) is not None and text.lower() not in QUIT:
            code = max(code, await self.exchange(text))
            if code == EXIT_STOPPED:
                break
        return code

    async def exchange(self, text: str) -> int:
        """Send one message. Returns and raises as ``converse``."""
        interrupted = False

        async def heed_control_c() -> None:
            nonlocal interrupted
            with trio.open_signal_receiver(signal.SIGINT) as signals:
                await anext(signals)
                interrupted = True
                with suppress(ConnectionLost):
                    self._client.post(Stop(chat=self._chat))
                with trio.move_on_after(STOP_S):
                    await anext(signals)

        asking = partial(ask, self._client, self._chat, text, self._see)
        verdict: MessageFrame | NoAnswer = await run_until_first_ends(asking, heed_control_c) or INTERRUPTED
        if isinstance(verdict, MessageFrame):
            self._end(verdict)
            return 0
        self._warn(f"{verdict.text} ({verdict.code})")
        return EXIT_STOPPED if interrupted else 1

    def _see(self, event: Event) -> None:
        if not isinstance(event, ApprovalFrame):
            return
        if self._once and event.turn is not None:
            with suppress(ConnectionLost):  # it is asked again with the next one
                self._client.post(Approve(id=event.id, allow=False))
            self._warn(f"not allowed, since no terminal is there to ask you: {event.tool}: {event.what}")
        else:
            self._warn(f"waits for permission (klaw chat {self._chat}): {event.what}")

    def _end(self, entry: MessageFrame) -> None:
        if self._as_json:
            text = json.dumps({**attrs.asdict(entry), "replayed": bool(entry.replayed)}, ensure_ascii=False)
        else:
            text = entry.content
        if text.strip():
            self._out.write(f"{harmless(text) if self._out.isatty() else text}\n")
        self._out.flush()
