"""The index of MEMORY.md and memory/*.md follows the files, for each user apart, over a real store."""

import os
from pathlib import Path

from klaw.actor.threads import Threads
from klaw.domain.names import UserId
from klaw.memory.facts.memory_files import MAX_BYTES, MAX_FILES, MAX_LOOKED_AT, MemoryFiles, find
from klaw.store.kinds import memory_files, messages
from klaw.store.search import passages
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.passages import PassageVector
from klaw.store.store import Store
from tests.support.reindexing import DIMENSION, MODEL, run, unit
from tests.support.stores import new, running_store

LOCAL, ANNA = UserId("local"), UserId("anna")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def looked(store: Store, workspace: Path) -> int:
    return await MemoryFiles(workspace, store.writer, store.readers, lambda: None).look(Threads("test files", 1))


async def found(store: Store, word: str, user: UserId = LOCAL) -> list[str]:
    hits = await store.readers.run(passages.matching, "chunk", user, [word], 20)
    pieces = await store.readers.run(memory_files.by_rowids, user, [hit.rowid for hit in hits])
    assert len(pieces) == len(hits)
    return sorted(f"{each.path}:{each.line} {each.heading}" for each in pieces.values())


async def test_pieces_follow_the_files(tmp_path: Path) -> None:
    workspace, data = tmp_path / "workspace", tmp_path / "data"
    data.mkdir()
    write(workspace / "MEMORY.md", "# Дом\nКод от калитки 4815.\n\n# Сад\nяблоня\n")
    write(workspace / "memory" / "2026-11-22.md", "Bought a pear tree.\n")
    write(workspace / "memory" / "deep" / "no.md", "pear")
    write(workspace / "memory" / ".hidden.md", "pear")
    write(workspace / "notes.md", "pear")
    async with running_store(data) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        assert await looked(store, workspace) == 2
        assert await looked(store, workspace) == 0
        assert await found(store, "калитка") == ["MEMORY.md:2 Дом"]
        assert await found(store, "сад") == ["MEMORY.md:5 Сад"]
        assert await found(store, "pears") == ["memory/2026-11-22.md:1 "]
        waiting = await store.readers.run(passages.unembedded, MODEL, 9)
        made = [PassageVector(each.kind, each.rowid, each.text, unit(each.rowid)) for each in waiting]
        assert await store.writer.run(stored_vectors.store_of_passages, MODEL, made) == 3
        # A line is put before, a section goes: what stays keeps its row and its vector.
        write(workspace / "MEMORY.md", "Intro.\n\n# Дом\nКод от калитки 4815.\n")
        assert await looked(store, workspace) == 1
        assert await found(store, "калитка") == ["MEMORY.md:4 Дом"]
        assert await found(store, "яблоня") == []
        assert [each.text for each in await store.readers.run(passages.unembedded, MODEL, 9)] == ["\nIntro."]
        (workspace / "memory" / "2026-11-22.md").unlink()
        assert await looked(store, workspace) == 1
        assert await found(store, "pear") == []
        assert await looked(store, workspace) == 0


async def test_each_user_has_their_own(tmp_path: Path) -> None:
    workspace, data = tmp_path / "workspace", tmp_path / "data"
    data.mkdir()
    write(workspace / "MEMORY.md", "secret of local")
    write(workspace / "users" / "anna" / "MEMORY.md", "secret of anna")
    write(workspace / "users" / "bob" / "MEMORY.md", "secret of bob")
    # Links lead nowhere.
    (workspace / "users" / "anna" / "memory").symlink_to(workspace / "users" / "bob")
    (workspace / "users" / "eve").mkdir()
    (workspace / "users" / "eve" / "MEMORY.md").symlink_to(workspace / "MEMORY.md")
    async with running_store(data) as store:
        for user in ("anna", "eve"):
            await store.writer.run(messages.append, [new(user=user)])
        await looked(store, workspace)
        for user, count in (("local", 1), ("anna", 1), ("bob", 0), ("eve", 0)):
            assert len(await found(store, "secret", UserId(user))) == count
        rows = [each.rowid for each in await store.readers.run(memory_files.of_file, ANNA, "MEMORY.md")]
        assert await store.readers.run(memory_files.by_rowids, LOCAL, rows) == {}


async def test_files_that_are_none(tmp_path: Path) -> None:
    workspace, data = tmp_path / "workspace", tmp_path / "data"
    data.mkdir()
    (workspace / "memory").mkdir(parents=True)
    os.mkfifo(workspace / "MEMORY.md")
    write(workspace / "memory" / "big.md", "x" * (MAX_BYTES + 1))
    (workspace / "memory" / "folder.md").mkdir()
    (workspace / "memory" / "bytes.md").write_bytes(b"caf\xe9 \x00 \xff word\r\n# H\r\ntext")
    (workspace / "memory" / "empty.md").touch()
    with (workspace / "memory" / os.fsdecode(b"\xff.md")).open("w") as file:
        file.write("word")
    async with running_store(data) as store:
        assert await looked(store, workspace) == 2
        assert await found(store, "word") == ["memory/bytes.md:1 "]
    assert find(tmp_path / "nothing", [LOCAL]) == []
    write(tmp_path / "file" / "memory", "no folder")
    assert find(tmp_path / "file", [LOCAL]) == []


async def test_a_new_database_gets_the_pieces_again(tmp_path: Path) -> None:
    workspace, data = tmp_path / "workspace", tmp_path / "data"
    data.mkdir()
    write(workspace / "MEMORY.md", "The gate code is 4815.")
    async with running_store(data) as store:
        await store.writer.run(messages.append, [new()])
        await looked(store, workspace)
    assert run(data).swapped
    async with running_store(data) as store:
        assert await found(store, "gate") == []
        await looked(store, workspace)
        assert await found(store, "gate") == ["MEMORY.md:1 "]


def test_any_number_of_files_is_looked_at_in_bounds(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for number in range(MAX_LOOKED_AT + 100):
        (tmp_path / "memory" / f"2026-{number:05}.md").touch()
    names = [each.path for each in find(tmp_path, [LOCAL])]
    assert len(names) == MAX_FILES
    assert names == sorted(names, reverse=True)
