"""``klaw chat``: talk to a running server, at a terminal or in a pipe, or ask it once."""

import argparse
import ipaddress
import math
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import trio

from klaw import __version__, errors
from klaw.actor.log import configure
from klaw.cli.output import warn
from klaw.client.ask import EXIT_STOPPED, NoAnswer
from klaw.client.client import Client, open_chat
from klaw.client.connection import check_url, connect, run_until_first_ends
from klaw.client.pipe import Messages, Pipe
from klaw.domain.names import chat_name, new_chat_name
from klaw.wire.frames import MessageFrame

PIPE_PATIENCE_S = 60.0
"""How long a pipe tries to get a lost connection back."""
_STDIN = 0


def chat_command(args: argparse.Namespace) -> int:
    """Talk. Returns 0; 1: no server, or a message got no answer; 2: wrong arguments; 130: Ctrl-C ended it."""
    try:
        chat = new_chat_name() if args.temporary and args.chat == "main" else chat_name(args.chat)
        url, trusted = args.url or ("" if args.port is not None else os.environ.get("KLAW_URL", "")), None
        if not url:
            url, trusted = _configured(args)
        check_url(url)
    except ValueError as exc:
        return _complain(str(exc), 2)
    except errors.ConfigError as exc:
        return _complain(str(exc), 1)
    configure("error", "console")
    token = args.token or os.environ.get("KLAW_TOKEN") or None
    if token and not _is_private(url):
        warn("warning: the token goes over the network unencrypted; use wss://")
    try:
        return trio.run(_chat, args, url, token, chat, trusted)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at exit
        return 0


async def _chat(args: argparse.Namespace, url: str, token: str | None, chat: str, trusted: Path | None) -> int:
    async def heed_signals() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await anext(signals)

    code = await run_until_first_ends(partial(_connected, args, url, token, chat, trusted), heed_signals)
    return EXIT_STOPPED if code is None else code


async def _connected(args: argparse.Namespace, url: str, token: str | None, chat: str, trusted: Path | None) -> int:
    once = bool(args.question)
    keyboard = None if args.json or (args.whole and not once) else _keyboard(once=once)
    welcomed = False
    try:
        question = await _with_input(" ".join(args.question)) if once else ""
        if once and not question:
            return _complain("there is nothing to ask: QUESTION and standard input are empty", 2)
        again_s = PIPE_PATIENCE_S if keyboard is None else math.inf
        name = f"klaw chat {__version__}"
        async with connect(url, token=token, name=name, again_s=again_s, trusted=trusted) as client:
            welcomed = True
            if args.temporary:
                await client.call("chats_temporary", chat=chat)
                warn(f"temporary chat {chat}: deleted a day after its last message; `klaw chats keep {chat}` keeps it")
            history = 0 if once or keyboard is None or args.no_history else args.history
            earlier = await open_chat(client, chat, history)
            if keyboard is not None:
                return await _at_terminal(client, chat, keyboard, question, earlier, thinking=args.thinking)
            pipe = Pipe(client, chat, sys.stdout, warn, as_json=args.json, once=once)
            return await (pipe.exchange(question) if once else pipe.converse(Messages(_STDIN, whole=args.whole)))
    except (errors.ServerUnreachable, errors.ConnectionLost) as exc:
        reason = f"the server at {url} is gone" if welcomed else f"no server at {url}: start it with `klaw serve`"
        return _complain(f"{reason} ({exc})", 1)
    except errors.ServerRefused as exc:
        return _complain(f"the server at {url} refuses: {exc}" + ("" if token else " (no token in $KLAW_TOKEN)"), 1)
    except (errors.RequestRefused, errors.InputError) as exc:
        return _complain(str(exc), 1)


async def _with_input(question: str) -> str:
    """The question, and below it what standard input holds, if that is no terminal."""
    beside = None
    if sys.stdin is not None and not sys.stdin.isatty():
        beside = await Messages(_STDIN, whole=True).next()
    return "\n\n".join(filter(None, (question.strip(), beside)))


def _keyboard(*, once: bool) -> int | None:
    """Where to read keys; None: the output is no terminal that can be drawn on, or nobody can type. For one question
    whose input is piped in, it is the controlling terminal."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        return None
    at_hand = sys.stdin is not None and sys.stdin.isatty()
    if not once:
        return _STDIN if at_hand else None
    try:
        keyboard = _STDIN if at_hand else os.open(os.ctermid(), os.O_RDWR | os.O_CLOEXEC)
        return keyboard if os.tcgetpgrp(keyboard) == os.getpgrp() else None  # a job in the background cannot ask
    except OSError:
        return None


async def _at_terminal(
    client: Client, chat: str, keyboard: int, question: str, earlier: list[MessageFrame], *, thinking: bool
) -> int:
    from klaw.client.screen import Screen  # these are not loaded for a pipe
    from klaw.client.terminal import Terminal, borrowed_terminal, size_of

    screen = Screen(sys.stdout, lambda: size_of(sys.stdout.fileno()), colours="NO_COLOR" not in os.environ)
    terminal = Terminal(client, chat, screen, keyboard, thinking=thinking)
    with borrowed_terminal(keyboard, sys.stdout):
        if not question:
            await terminal.run(earlier)
            return 0
        verdict = await terminal.ask(question)
    if isinstance(verdict, NoAnswer):
        return _complain(f"{verdict.text} ({verdict.code})", EXIT_STOPPED if verdict.code == "stopped" else 1)
    return 0


def _configured(args: argparse.Namespace) -> tuple[str, Path | None]:
    """The address that the configuration, or ``--port``, gives the server, and its certificate."""
    from klaw.config.load import load
    from klaw.config.paths import Paths

    config, _ = load(Path(args.config) if args.config else Paths.resolve(args.home).config_file)
    host, port = config.gateway.host, config.gateway.port if args.port is None else args.port
    if port == 0:
        raise ValueError("the configuration leaves the server's port open (gateway.port 0): give it with --port")
    trusted = config.gateway.tls.cert_file
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
        host = f"[{address}]" if address.version == 6 else str(address)
    return f"{'ws' if trusted is None else 'wss'}://{host}:{port}/ws", trusted


def _is_private(url: str) -> bool:
    from klaw.gateway.origin_check import is_loopback

    parts = urlsplit(url)
    return parts.scheme == "wss" or is_loopback(parts.hostname or "")


def _complain(text: str, code: int) -> int:
    warn(text)
    return code
