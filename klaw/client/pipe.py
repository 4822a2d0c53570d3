"""``klaw chat`` in a pipe: messages in, one a line (or all of it as one), and only the answers out."""

import json
import math
import os
from typing import TextIO

import attrs
import trio

from klaw.actor.clock import new_id
from klaw.actor.threads import Threads
from klaw.client.client import Client
from klaw.client.connection import QUIT, open_chat
from klaw.client.events import Failed, Waiter
from klaw.client.text_width import harmless
from klaw.errors import InputError, RequestRefused
from klaw.wire.frames import Approval, ChatMessage

ATTEMPTS = 5
"""How often a message is offered to a busy server."""
PAUSE_S = 1.0
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Input without a line end is not collected beyond this."""
DOUBT_S = 5.0
"""How long a chat without an answer may do nothing before that counts as failed."""


class Messages:
    """The messages on a file descriptor, which may be anything that can be read."""

    def __init__(self, fd: int, *, whole: bool) -> None:
        self._fd = fd
        self._whole = whole
        self._threads = Threads("stdin", 1)
        self._held = b""
        self._at_end = False

    async def next(self) -> str | None:
        """The next message that is not blank; None at the end.

        Raises:
            InputError: it is no UTF-8 text, or too long.
        """
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
                raise InputError("standard input is not UTF-8 text") from None
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


async def run_pipe(client: Client, chat: str, messages: Messages, out: TextIO, errors: TextIO, *, as_json: bool) -> int:
    """Send each message after the answer to the one before, up to ``/quit``. Returns 1 if one got no answer, else 0.

    Raises:
        InputError
        BrokenPipeError: nobody reads the answers any more.
        RequestRefused, ServerRefused, ServerUnreachable
    """
    await open_chat(client, chat, 0)
    failed = False
    while (text := await messages.next()) is not None and text.lower() not in QUIT:
        verdict = await _ask(client, chat, text, errors)
        if isinstance(verdict, Failed):
            failed = True
            errors.write(f"klaw: {harmless(verdict.text)} ({harmless(verdict.code)})\n")
            errors.flush()
        else:
            _print_answer(verdict, out, as_json=as_json)
    return 1 if failed else 0


async def _ask(client: Client, chat: str, text: str, errors: TextIO) -> ChatMessage | Failed:
    waiter = Waiter(chat, message_id := new_id(), answered_later=text.lower() == "/retry")
    for attempt in range(ATTEMPTS):
        try:
            await client.send(chat, text, message_id)
            break
        except RequestRefused as exc:
            if not exc.retryable or attempt == ATTEMPTS - 1:
                return Failed(exc.code, str(exc))
            await trio.sleep((exc.retry_after_ms or PAUSE_S * 1000) / 1000)
    while True:
        with trio.move_on_after(DOUBT_S if waiter.in_doubt else math.inf):
            event = await client.next_event()
            if isinstance(event, Approval) and event.chat == chat:
                errors.write(f"klaw: waits for permission (klaw chat {harmless(chat)}): {harmless(event.what)}\n")
                errors.flush()
            verdict = waiter.see(event)
            if verdict is not None:
                return verdict
            continue
        return waiter.settle()


def _print_answer(entry: ChatMessage, out: TextIO, *, as_json: bool) -> None:
    if as_json:
        text = json.dumps({**attrs.asdict(entry), "replayed": bool(entry.replayed)}, ensure_ascii=False)
    else:
        text = harmless(entry.content) if out.isatty() else entry.content
    if text.strip():
        out.write(f"{text}\n")
        out.flush()
