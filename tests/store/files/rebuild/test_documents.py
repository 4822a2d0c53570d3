"""A reindex takes over the documents of knowledge bases: with their passages, row ids and full text; killed or not."""

import signal
import sqlite3
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.domain.knowledge import DocumentState
from klaw.store.kinds.knowledge import bases, document_steps, documents, sources
from klaw.store.rebuild.offline import drop
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.store import Store
from tests.store.files.kinds.test_knowledge import ANNA, LATER, base, count, document, found, passage, source
from tests.store.files.rebuild.test_interrupted import killed
from tests.support import stored_documents
from tests.support.forgetting import lose_database
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import ended, reindexing_store, run
from tests.support.stores import running_store

NAMES = [f"файл {number}.md" for number in range(12)]


async def fill(store: Store) -> None:
    """A base with documents, of which one failed and one was just being read."""
    mine = await store.writer.run(bases.put, base(members={"boris": "viewer"}))
    made = await store.writer.run(sources.put, ANNA, source(mine))
    for number, name in enumerate(NAMES):
        texts = [passage(at, f"Слово{number} и {at}. Аренда.") for at in range(10 + number * 10)]
        assert await store.writer.run(stored_documents.put, document(made, name, sha256="a", stamp="1"), texts)
    await store.writer.run(stored_documents.remove, document(made, NAMES[1]).id)
    await store.writer.run(stored_documents.put, document(made, "broken.pdf", state=DocumentState.FAILED), [])
    half = document(made, "half.md")
    await store.writer.run(document_steps.wait, [half])
    await store.writer.run(document_steps.begin, half)
    await store.writer.run(document_steps.fill, half.id, [(passage(0, "Половина."), None)])


def content(root: Path) -> tuple[Any, ...]:
    """All that there is of whole documents; and the number that the next passage gets."""
    connection = sqlite3.connect(root / "klaw.db")
    try:
        whole = "document_id IN (SELECT id FROM kb_documents WHERE name <> 'half.md')"
        return (
            connection.execute("SELECT * FROM kb_documents WHERE name <> 'half.md' ORDER BY id").fetchall(),
            connection.execute(f"SELECT * FROM kb_passages WHERE {whole} ORDER BY rowid").fetchall(),
            connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'kb_passages'").fetchall(),
        )
    finally:
        connection.close()


async def checked(root: Path) -> None:
    """The full text has each passage once, and every word is found."""
    async with running_store(root) as store:
        passages = await count(store, "SELECT count(*) FROM kb_passages")
        assert await count(store, "SELECT count(*) FROM kb_passages_fts_docsize") == passages
        assert await found(store, "слово11") == 120
        assert await found(store, "слово1") == 0
        await store.writer.run(
            lambda tx: tx.connection.execute(
                "INSERT INTO kb_passages_fts (kb_passages_fts, rank) VALUES ('integrity-check', 1)"
            )
        )
        named = await store.readers.run(bases.of_user, ANNA)
        there = await store.readers.run(documents.of_base, ANNA, named[0].base.id)
        assert {each.name for each in there} >= {*NAMES, "broken.pdf"} - {NAMES[1]}


async def test_offline(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
    before = content(tmp_path)
    assert run(tmp_path).swapped
    assert content(tmp_path) == before
    await checked(tmp_path)


async def test_killed_again_and_again(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
    before = content(tmp_path)
    for step in (1, 1, 2):
        await trio.to_thread.run_sync(killed, tmp_path, "documents", step)
    assert run(tmp_path).swapped
    assert content(tmp_path) == before
    await checked(tmp_path)


async def test_beside_a_server_that_reads_and_removes_documents(tmp_path: Path) -> None:
    async with reindexing_store(tmp_path) as (store, reindexer):
        await fill(store)
        named = await store.readers.run(bases.of_user, ANNA)
        made = (await store.readers.run(sources.of_base, ANNA, named[0].base.id))[0]
        reindexer.slice_s = 0.0
        await reindexer.start(ReindexOptions())
        changes, latest = 0, dict[str, list[Any]]()
        while reindexer.status.state == "running":
            changes += 1
            again = document(made, NAMES[changes % 12], sha256=f"{changes}")
            if changes % 3:
                latest[again.name] = [passage(0, f"Изменение {changes}.")]
                await store.writer.run(stored_documents.put, again, latest[again.name])
            else:
                await store.writer.run(stored_documents.remove, again.id)
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        live = {each.name: each for each in await store.readers.run(documents.of_source, made.id)}
        old = sqlite3.connect(tmp_path / "klaw.db.old")
        last = dict(old.execute("SELECT name, digest FROM kb_documents").fetchall())
        sequence = old.execute("SELECT seq FROM sqlite_sequence WHERE name = 'kb_passages'").fetchone()[0]
        old.close()
        for name, each in live.items():
            # As at the swap, or to be read again, or put after it; what was removed is gone.
            is_new = name in latest and each.digest == stored_documents.digest(latest[name])
            assert is_new or (name in last and each.digest in ("", last[name]))
            assert each.digest or each.state is DocumentState.WAITING or name == "broken.pdf"
        await store.writer.run(stored_documents.put, document(made, "new.md"), [passage(0, "Новое.")])
        assert await count(store, "SELECT max(rowid) FROM kb_passages") > sequence
        words = await count(store, "SELECT count(*) FROM kb_passages_fts_docsize")
        assert words == await count(store, "SELECT count(*) FROM kb_passages")


async def test_a_source_that_is_gone_takes_its_documents_along(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
        mine = (await store.readers.run(bases.of_user, ANNA))[0].base
        made = (await store.readers.run(sources.of_base, ANNA, mine.id))[0]
        await store.writer.run(sources.remove, ANNA, made.id, LATER)
    assert run(tmp_path).swapped
    assert content(tmp_path)[:2] == ([], [])


async def test_a_lost_database_has_the_sources_and_no_documents(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await fill(store)
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        (made,) = await store.readers.run(sources.every)
        assert attrs.asdict(made)["name"] == "папка"
        assert await store.readers.run(documents.of_source, made.id) == []


CHILD = """
import os, signal, sys
from pathlib import Path
import structlog, trio
from klaw.store.kinds.knowledge import bases, documents, sources
from klaw.store.rebuild.values import ReindexOptions
from tests.store.files.kinds.test_knowledge import ANNA, document, passage
from tests.store.files.rebuild.test_documents import NAMES
from tests.support import stored_documents
from tests.support.reindexing import reindexing_store

root, at, left = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def count(here):
    global left
    left -= here == at
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(method):
    def change(self, *args, **kwargs):
        if self.name.startswith("klaw.db"):
            count("swap")
        return method(self, *args, **kwargs)
    return change

for name in ("rename", "replace", "unlink"):
    setattr(Path, name, counted(getattr(Path, name)))

async def main():
    async with reindexing_store(root) as (store, reindexer):
        (mine,) = await store.readers.run(bases.of_user, ANNA)
        (made,) = await store.readers.run(sources.of_base, ANNA, mine.base.id)
        reindexer.slice_s = 0.0
        await reindexer.start(ReindexOptions())
        number = 0
        while reindexer.status.state == "running":
            number += 1
            again = document(made, NAMES[number % 12], sha256=f"{number}")
            if number % 4:
                texts = [passage(each, f"{number} {each}") for each in range(number % 12)]
                await store.writer.run(stored_documents.put, again, texts)
            else:
                await store.writer.run(stored_documents.remove, again.id)
            os.write(1, f"{number}\\n".encode())
            count("put")

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
trio.run(main)
"""


@pytest.mark.parametrize(("at", "number"), [("put", 9), *(("swap", step) for step in (1, 3, 4, 5, 7))])
def test_a_server_killed_beside_its_reindex_has_every_document_whole_or_waiting(
    tmp_path: Path, at: str, number: int
) -> None:
    """SIGKILL while documents change, and before each change of the folder at the swap."""

    async def filled() -> None:
        async with running_store(tmp_path) as store:
            await fill(store)

    trio.run(filled)
    done = trio.run(completed, [*SCRIPT, CHILD, str(tmp_path), at, str(number)])
    assert done.returncode == -signal.SIGKILL
    told = [int(line) for line in done.stdout.split()]
    latest = {NAMES[each % 12]: each for each in told}

    async def look() -> None:
        async with running_store(tmp_path) as store:
            (made,) = await store.readers.run(sources.every)
            live = {each.name: each for each in await store.readers.run(documents.of_source, made.id)}
            for name, each in live.items():
                pieces = await store.readers.run(documents.passages, ANNA, each.id)
                if each.state is DocumentState.READ:  # all of one version
                    assert [piece.ordinal for piece in pieces] == list(range(each.passages)), name
                    assert {piece.text.split()[0] for piece in pieces} <= {each.sha256} or each.sha256 == "a", name
            if at == "put":  # nothing was swapped: what was told is stored
                for name, last in latest.items():
                    assert (str(last) if last % 4 else None) == (live[name].sha256 if name in live else None)
            words = await count(store, "SELECT count(*) FROM kb_passages_fts_docsize")
            assert words == await count(store, "SELECT count(*) FROM kb_passages")
            orphans = "SELECT count(*) FROM kb_passages WHERE document_id NOT IN (SELECT id FROM kb_documents)"
            assert await count(store, orphans) == 0

    trio.run(look)
    drop(tmp_path / "klaw.db")
    assert run(tmp_path).swapped  # and the next one goes on
