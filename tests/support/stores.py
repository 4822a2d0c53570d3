"""Short ways to make messages and stores in tests."""

import errno
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from klaw.actor.clock import SystemClock, iso
from klaw.actor.supervisor import ActorSpec, Supervisor
from klaw.domain import tokens
from klaw.domain.message import Message, MessageKind, NewMessage, Role
from klaw.domain.names import UserId, chat_id
from klaw.store.engine import writer as writer_actor
from klaw.store.engine.journal import Journal
from klaw.store.store import Store, open_store

_count = itertools.count(1)
START = 1_760_000_000.0


class FullDisk:
    """An fsync that says "no space left" while it is ``full``, and else does nothing: nobody cuts the power here."""

    full = False

    def __call__(self, _descriptor: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def new(
    text: str = "hello",
    *,
    id: str | None = None,  # noqa: A002 - the field's name
    user: str = "local",
    chat: str = "main",
    role: Role = Role.USER,
    kind: MessageKind = MessageKind.TEXT,
    at: float | None = None,
    **metadata: Any,
) -> NewMessage:
    number = next(_count)
    return NewMessage(
        id=id or f"id{number}",
        chat=chat_id(UserId(user), chat),
        user=UserId(user),
        channel="test",
        role=role,
        type=kind,
        content=text,
        tokens=tokens.estimate(text),
        created_at=iso(START + number if at is None else at),
        metadata=metadata,
    )


def stored(
    seq: int, text: str = "hello", *, role: Role = Role.USER, kind: MessageKind = MessageKind.TEXT, segment: int = 0
) -> Message:
    """A message as the store returns it, without a store."""
    return Message(
        rowid=seq,
        id=f"m{seq}",
        chat=chat_id(UserId("local"), "main"),
        user=UserId("local"),
        channel="test",
        role=role,
        type=kind,
        content=text,
        tokens=tokens.estimate(text),
        created_at=iso(START + seq),
        seq=seq,
        segment=segment,
    )


def dialogue(count: int, text: str = "some words to fill the line") -> list[Message]:
    """``count`` messages, user and assistant in turn."""
    return [stored(n, f"{text} {n}", role=Role.USER if n % 2 else Role.ASSISTANT) for n in range(1, count + 1)]


@asynccontextmanager
async def running_store(
    root: Path, *, publish: Callable[[Any], None] = lambda _messages: None, **journal: Any
) -> AsyncIterator[Store]:
    """A real store with its writer running, in a folder."""
    journal.setdefault("checkpoint_bytes", 1 << 20)
    async with (
        open_store(root / "klaw.db", Journal(root, **journal), readers=2) as store,
        trio.open_nursery() as nursery,
    ):
        supervisor = Supervisor(nursery, SystemClock())
        await supervisor.start(
            ActorSpec(
                name="store.writer",
                mailbox=store.writer.mailbox,
                vital=True,
                run=partial(
                    writer_actor.run,
                    writer=store.writer,
                    database=store.database,
                    journal=store.journal,
                    publish=publish,
                ),
            )
        )
        yield store
        await supervisor.stop("store.writer", "test is over")
