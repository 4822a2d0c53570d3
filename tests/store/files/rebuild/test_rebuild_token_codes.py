"""A reindex takes codes of tokens over with the vectors."""

from pathlib import Path

import pytest

from klaw.store.engine.transaction import Transaction
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.search import token_codes
from klaw.store.search import vectors as stored_vectors
from tests.support.reindexing import ended, filled, reindexing_store, run
from tests.support.stores import running_store


def everything(connection) -> dict[int, bytes]:
    return dict(connection.execute("SELECT rowid, codes FROM token_codes"))


def put(tx: Transaction, codes: dict[int, bytes]) -> None:
    token_codes.put(tx.connection, codes)


def embedded(connection) -> list[int]:
    return [rowid for (rowid,) in connection.execute("SELECT rowid FROM vec_messages_rowids ORDER BY rowid")]


async def coded(root: Path) -> dict[int, bytes]:
    """Codes for every other message that has a vector."""
    async with running_store(root) as store:
        await stored_vectors.prepare_codes(store.writer, "coder 1")
        rowids = (await store.readers.run(embedded))[::2]
        made = {rowid: bytes([rowid % 256]) * 16 for rowid in rowids}
        await store.writer.run(put, made)
        assert await store.readers.run(everything) == made
        return made


async def read(root: Path) -> tuple[dict[int, bytes], str | None, list[int]]:
    async with running_store(root) as store:
        found = await store.readers.run(everything)
        return found, await store.readers.run(token_codes.coder), await store.readers.run(embedded)


@pytest.mark.parametrize("server", [True, False])
async def test_they_are_taken_over_with_the_vectors(tmp_path: Path, server: bool) -> None:
    await filled(tmp_path)
    made = await coded(tmp_path)
    if server:
        async with reindexing_store(tmp_path) as (_store, reindexer):
            await reindexer.start(ReindexOptions())
            assert (await ended(reindexer)).report.swapped
    else:
        assert run(tmp_path).swapped
    found, coder, rowids = await read(tmp_path)
    assert (found, coder) == (made, "coder 1")
    assert len(rowids) > len(made)
