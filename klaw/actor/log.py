"""Logging: event name plus key=value fields from an allow-list, never content. Any other field is dropped and its name
listed in ``dropped_fields``, so a slip loses a detail instead of leaking a message. A chat, whose name a person chose,
is a mark that is another one after each start; the turn's id leads to the chat (``klaw receipt TURN``).

Whose work it is (user, chat, turn, run, connection) is bound in the task's context where the work begins. Library
loggers are reduced to name and level, because their texts may quote what users wrote. An event is one line and one
write, whatever thread logs it, so lines do not run into one another, and a kill leaves no half of one.
"""

import hashlib
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog

from klaw.actor.failure import error_class, where

FIELDS = frozenset(
    {
        # who
        "actor", "chat", "connection", "run", "turn", "user", "pid", "model", "provider", "client", "name", "command",
        "document", "source",
        # what, as codes
        "code", "error", "event", "file", "frame", "kind", "kinds", "level", "line", "logger", "mode", "peer", "reason",
        "signal",
        "state", "status", "timestamp", "version", "where", "degraded", "exit_code",
        # how many, how long, where
        "address", "attempt", "batch", "bytes", "budget_s", "chats", "count", "crashes", "dimension", "dropped_fields",
        "duration_ms", "depth", "files", "limit", "messages", "missing", "page", "passages", "path", "percent", "port",
        "recalled", "retry_s", "rowid", "schema", "seconds", "seq", "size", "tokens", "tokens_in", "tokens_out",
        "total", "uid", "from_version", "to_version", "threads", "restarts", "watchers", "tool",
    }
)  # fmt: skip

EASY = frozenset({"client_disconnected", "client_gone", "client_too_slow", "request_refused"})
"""Events that a stranger can cause without effort, so that they could fill the disk."""
FLOOD_LINES, FLOOD_S = 20, 10.0
"""At most so many lines of one event are written in this time; the next one's ``count`` says how many were left out."""

PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""Syslog priorities, which the journal takes from the beginning of a line: ``<3>``."""

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def keep_allowed_fields(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop every field outside ``FIELDS``. A processor of structlog, like the others here."""
    dropped = sorted(key for key in event if key not in FIELDS)
    for key in dropped:
        del event[key]
    if dropped:
        event["dropped_fields"] = dropped
    return event


_KEY = secrets.token_bytes(16)
_CHAT_ACTOR = "chat "


def hide_chats(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if (chat := event.get("chat")) is not None:
        event["chat"] = _mark(str(chat))
    if str(actor := event.get("actor", "")).startswith(_CHAT_ACTOR):
        event["actor"] = _CHAT_ACTOR + _mark(str(actor).removeprefix(_CHAT_ACTOR))
    return event


def _mark(chat: str) -> str:
    return hashlib.blake2b(chat.encode(), key=_KEY, digest_size=5).hexdigest()


class Floods:
    """Drops ``EASY`` events when there are too many."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._written: dict[str, tuple[float, int, int]] = {}
        """For each event: since when, how many lines, and how many were left out."""

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        name, now = event["event"], self._monotonic()
        if name not in EASY:
            return event
        since, lines, left_out = self._written.get(name, (now, 0, 0))
        if now - since >= FLOOD_S:
            since, lines = now, 0
        if lines >= FLOOD_LINES:
            self._written[name] = since, lines, left_out + 1
            raise structlog.DropEvent
        self._written[name] = since, lines + 1, 0
        return {**event, "count": left_out} if left_out else event


_level = "info"


def set_level(level: str) -> None:
    """Set the level of the whole process. Raises KeyError: it is not one of ``LEVELS``."""
    global _level
    LEVELS[level]
    _level = level


def level() -> str:
    return _level


def _filter_level(_logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if LEVELS.get(method, logging.ERROR) < LEVELS[_level]:
        raise structlog.DropEvent
    return event


class _LibraryHandler(logging.Handler):
    """Passes on that a library warned, not what it said."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger("klaw.library").warning("library_log", logger=record.name, level=record.levelname.lower())


def priority(level: str, stream: TextIO = sys.stderr) -> str:
    """What a line of this level begins with: its priority where the stream is the journal of systemd, else nothing."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file: a test's, say
        return ""
    journal = os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return f"<{PRIORITIES[level]}>" if journal else ""


def configure(level: str, style: str, stream: TextIO = sys.stderr) -> None:
    """Set up logging for the process. ``style`` is console, json, or auto (console on a terminal)."""
    set_level(level)
    as_json = style == "json" or (style == "auto" and not stream.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer(colors=stream.isatty())
    if as_json:
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False)
    prefixes = {word: priority(word, stream) for word in LEVELS}

    def with_priority(_logger: object, method: str, text: Any) -> Any:
        return prefixes.get(method, prefixes["error"]) + text

    writer = structlog.WriteLogger(stream)  # structlog's print logger writes a line and its end apart
    structlog.configure(
        processors=[
            _filter_level,
            Floods(),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            keep_allowed_fields,
            hide_chats,
            renderer,
            with_priority,
        ],
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_LibraryHandler(level=logging.WARNING)]
    root.setLevel(logging.WARNING)


def log_what_nobody_caught() -> None:
    """Have warnings, and errors in threads and destructors, logged as events, with class and place: Python would write
    them to standard error in pieces, and quote them."""
    logging.captureWarnings(capture=True)
    threading.excepthook = lambda failed: _log_uncaught("thread_failed", failed.exc_value)
    sys.unraisablehook = lambda failed: _log_uncaught("destructor_failed", failed.exc_value)


def _log_uncaught(event: str, error: BaseException | None) -> None:
    if error is not None:
        structlog.get_logger("klaw.log").error(event, error=error_class(error), where=where(error))
