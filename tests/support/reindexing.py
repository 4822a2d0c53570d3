"""Stores with a past, and reindexes of them, for tests."""

import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import ActorSpec, Supervisor
from klaw.domain.message import MessageKind, Role
from klaw.store.engine import connect
from klaw.store.engine import writer as writer_actor
from klaw.store.engine.journal import Journal
from klaw.store.kinds import messages as stored_messages
from klaw.store.rebuild import actor as reindex_actor
from klaw.store.rebuild.actor import Reindexer, ReindexStatus
from klaw.store.rebuild.compare import digests
from klaw.store.rebuild.files import Places
from klaw.store.rebuild.offline import reindex
from klaw.store.rebuild.values import Progress, ReindexOptions, ReindexReport
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store, open_store
from tests.support.stores import new, running_store
from tests.support.turns import record
from tests.support.waiting import until

MODEL = "test-model"
DIMENSION = 8
WORDS = ["garden", "gate", "code", "peanut", "сестра", "кошка", "дача", "погода", "working", "spielen", "12", "🙂"]


def unit(seed: int) -> bytes:
    """A unit vector."""
    values = [random.Random(seed * 31 + place).gauss(0, 1) for place in range(DIMENSION)]
    norm = sum(value * value for value in values) ** 0.5
    return struct.pack(f"<{DIMENSION}f", *(value / norm for value in values))


async def talk(store: Store, *, rounds: int, chats: int = 3, seed: int = 1, vectors: bool = True) -> None:
    """Questions and answers of two users in several chats, with turns, breaks, tools, repeated ids and vectors."""
    chance = random.Random(seed)
    if vectors:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
    for number in range(rounds):
        user, chat = chance.choice(["local", "анна"[:0] + "anna"]), f"чат {chance.randrange(chats)}"
        text = " ".join(chance.choices(WORDS, k=chance.randrange(1, 30)))
        (asked,) = await store.writer.run(
            stored_messages.append, [new(text, user=user, chat=chat, id=f"s{seed}q{number}")]
        )
        if number % 5 == 4:
            await store.writer.run(
                stored_messages.append,
                [new("/new", user=user, chat=chat, role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)],
            )
        elif number % 5 == 3:
            call = new(
                "{}", user=user, chat=chat, role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, calls=[{"id": 1, "ю": 0.1}]
            )
            result = new("result", user=user, chat=chat, role=Role.TOOL, kind=MessageKind.TOOL_RESULT)
            await store.writer.run(stored_messages.append, [call, result])
        else:
            answer = new(f"answer: {text[::-1]}", user=user, chat=chat, role=Role.ASSISTANT)
            await store.writer.run(stored_messages.append, [answer], record(asked.message))
        if vectors and chance.random() < 0.8:
            rowid = asked.message.rowid
            await store.writer.run(stored_vectors.store, MODEL, [(rowid, unit(rowid))])


async def filled(root: Path, **options) -> None:
    """A store's folder with a past."""
    async with running_store(root) as store:
        await talk(store, **{"rounds": 40, **options})


def run(
    root: Path, *, accept: bool = False, again: bool = False, see: Callable[[Progress], None] = lambda _step: None
) -> ReindexReport:
    """Reindex a stopped store."""
    work = reindex(root / "klaw.db", ReindexOptions(accept_differences=accept, embed_again=again), 1)
    try:
        while True:
            see(next(work))
    except StopIteration as end:
        return end.value
    finally:
        work.close()


def digests_of(file: Path) -> dict[str, str]:
    """Content digests of a database that is not in use."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connect.prepare_writer(connection)
        assert connection.pragma("integrity_check") == "ok"
        return digests(connection)
    finally:
        connection.close()


def differing(report: ReindexReport) -> set[str]:
    """Tables that are not the same."""
    return {table.name for table in report.tables if not table.same}


@asynccontextmanager
async def reindexing_store(root: Path, **journal: Any) -> AsyncIterator[tuple[Store, Reindexer]]:
    """A real store with its writer and its reindexer, as a server has them."""
    journal.setdefault("checkpoint_bytes", 1 << 20)
    async with (
        open_store(root / "klaw.db", Journal(root, **journal), readers=2) as store,
        trio.open_nursery() as nursery,
    ):
        supervisor = Supervisor(nursery, SystemClock())
        places = Places(root / "klaw.db")
        reindexer = Reindexer(places=places, min_tokens=1, writer=store.writer, readers=store.readers)
        write = partial(
            writer_actor.run,
            writer=store.writer,
            database=store.database,
            journal=store.journal,
            publish=lambda _messages: None,
            swapped=store.readers.renew,
        )
        remake = partial(reindexer.run, swapped=trio.lowlevel.checkpoint)
        mailbox = store.writer.mailbox
        await supervisor.start(ActorSpec(name=mailbox.name, mailbox=mailbox, vital=True, run=write))
        await supervisor.start(ActorSpec(name=reindex_actor.ACTOR_NAME, run=remake))
        yield store, reindexer
        await supervisor.stop("store.reindexer", "test is over")
        await supervisor.stop("store.writer", "test is over")


async def ended(reindexer: Reindexer) -> ReindexStatus:
    """Wait until the reindex has ended."""
    await until(lambda: reindexer.status.state != "running")
    return reindexer.status


async def reached(reindexer: Reindexer, phase: str) -> None:
    """Wait until the reindex is at a phase, or has ended."""
    await until(lambda: reindexer.status.state != "running" or reindexer.status.progress.phase == phase)
