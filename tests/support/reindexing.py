"""Stores with a past, and reindexes of them, for tests."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import apsw

from klaw.domain.message import Kind, Role
from klaw.store import connect
from klaw.store.reindex.compare import digests
from klaw.store.reindex.offline import reindex
from klaw.store.reindex.values import Embeds, Options, Progress, Report
from klaw.store.store import Store
from tests.support.making import new, running_store
from tests.support.turns import record

MODEL = "test-model"
DIMENSION = 8
WORDS = ["garden", "gate", "code", "peanut", "сестра", "кошка", "дача", "погода", "working", "spielen", "12", "🙂"]


def unit(seed: int) -> bytes:
    """A unit vector."""
    values = [random.Random(seed * 31 + place).gauss(0, 1) for place in range(DIMENSION)]
    norm = sum(value * value for value in values) ** 0.5
    return struct.pack(f"<{DIMENSION}f", *(value / norm for value in values))


class FakeModel:
    """Gives every text a vector of its own."""

    model_id = MODEL
    dimension = DIMENSION

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts):
        self.texts += texts
        return [unit(sum(text.encode())) for text in texts]


async def talk(store: Store, *, rounds: int, chats: int = 3, seed: int = 1, vectors: bool = True) -> None:
    """Questions and answers of two users in several chats, with turns, breaks, tools, repeated ids and vectors."""
    chance = random.Random(seed)
    if vectors:
        await store.writer.prepare_vectors(MODEL, DIMENSION)
    for number in range(rounds):
        user, chat = chance.choice(["local", "анна"[:0] + "anna"]), f"чат {chance.randrange(chats)}"
        text = " ".join(chance.choices(WORDS, k=chance.randrange(1, 30)))
        (asked,) = await store.writer.append([new(text, user=user, chat=chat, id=f"s{seed}q{number}")])
        if number % 5 == 4:
            await store.writer.append([new("/new", user=user, chat=chat, role=Role.SYSTEM, kind=Kind.SESSION_BREAK)])
        elif number % 5 == 3:
            call = new(
                "{}", user=user, chat=chat, role=Role.ASSISTANT, kind=Kind.TOOL_CALL, calls=[{"id": 1, "ю": 0.1}]
            )
            result = new("result", user=user, chat=chat, role=Role.TOOL, kind=Kind.TOOL_RESULT)
            await store.writer.append([call, result])
        else:
            answer = new(f"answer: {text[::-1]}", user=user, chat=chat, role=Role.ASSISTANT)
            await store.writer.append([answer], record(asked.message))
        if vectors and chance.random() < 0.8:
            rowid = asked.message.rowid
            await store.writer.store_vectors(MODEL, [(rowid, unit(rowid))])


async def filled(root: Path, **options) -> None:
    """A store's folder with a past."""
    async with running_store(root) as store:
        await talk(store, **{"rounds": 40, **options})


def run(
    root: Path,
    *,
    accept: bool = False,
    again: bool = False,
    model: Embeds | None = None,
    see: Callable[[Progress], None] = lambda _step: None,
) -> Report:
    """Reindex a stopped store."""
    work = reindex(root / "klaw.db", Options(accept_differences=accept, embed_again=again), lambda: model, 1)
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


def differing(report: Report) -> set[str]:
    """Tables that are not the same."""
    return {table.name for table in report.tables if not table.same}
