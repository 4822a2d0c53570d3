"""The indexer with real files, a real store, the system's watches and a process that reads."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.domain.knowledge import DocumentId, DocumentState
from klaw.knowledge import scan
from klaw.knowledge.indexer import LARGE_BYTES
from klaw.store.kinds.knowledge import documents, sources
from klaw.store.kinds.knowledge.documents import KnownDocument
from tests.conftest import CANARY
from tests.support import stored_documents
from tests.support.children import stopped
from tests.support.knowledge_world import ANNA, AT, knowledge_world, old
from tests.support.waiting import HANG_S, until

WAITING = "SELECT count(*) FROM kb_documents WHERE state = 'waiting'"
TEXT = "# Аренда\n\nСрок аренды составляет один год.\n\n# Tenant\n\nThe tenant pays within five days.\n"


async def test_an_upload_becomes_a_document_with_passages(tmp_path: Path) -> None:
    async with knowledge_world(tmp_path) as world:
        source = await world.upload("договор.md", TEXT.encode())
        found = (await world.settled(source, "договор.md"))["договор.md"]
        assert (found.state, found.format, found.sha256, found.problems) == ("read", "md", source.sha256, ())
        pieces = await world.passages(found)
        assert found.passages == len(pieces) > 0
        assert "один год" in " ".join(each.text for each in pieces)
        assert world.nudges
        broken = await world.upload("broken.pdf", b"%PDF-1.7 nothing")
        failed = (await world.settled(broken, "broken.pdf"))["broken.pdf"]
        assert failed.state is DocumentState.FAILED
        assert failed.problems[-1].text.startswith("broken.pdf")
        assert not await world.passages(failed)
        await world.store.writer.run(sources.put, ANNA, source_named(source, "иначе.md"))
        world.indexer.nudge()
        assert (await world.settled(source, "иначе.md"))["иначе.md"].passages == found.passages


def source_named(source: Any, name: str) -> Any:
    import attrs

    return attrs.evolve(source, name=name, updated_at=AT)


async def test_a_graph_is_loaded_and_shown_as_a_document(tmp_path: Path) -> None:
    async with knowledge_world(tmp_path) as world:
        good = await world.upload("города.ttl", '<urn:omsk> <urn:name> "Омск" ; <urn:river> <urn:irtysh> .'.encode())
        bad = await world.upload("bad.ttl", b"this is no turtle")
        found = (await world.settled(good, "города.ttl"))["города.ttl"]
        assert (found.state, found.title.partition(",")[0], found.passages) == ("read", "2 triples", 0)
        failed = (await world.settled(bad, "bad.ttl"))["bad.ttl"]
        assert (failed.state, failed.problems[0].code) == ("failed", "unreadable")


async def test_a_folder_is_followed(tmp_path: Path, log_events: list[dict[str, Any]]) -> None:
    folder = tmp_path / "docs"
    old(folder / f"{CANARY}.md", TEXT)
    old(folder / "deep" / "er" / "заметка.txt", "Ключ лежит под ковриком.")
    old(folder / "photo.jpg", b"\xff\xd8\xff no text")
    old(folder / ".hidden" / "secret.md", "no")
    old(folder / ".env", "no")
    old(tmp_path / "outside.md", "outside")
    (folder / "link.md").symlink_to(tmp_path / "outside.md")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.md")
    async with knowledge_world(tmp_path) as world:
        source = await world.folder()
        names = (f"{CANARY}.md", "deep/er/заметка.txt", "photo.jpg")
        first = await world.settled(source, *names)
        assert {each.state for each in first.values()} == {"read", "failed"}
        assert first["photo.jpg"].problems[0].code == "unsupported"
        state = world.indexer.state_of(source.id)
        assert state is not None
        assert (state.code, state.files, dict(state.left_out)) == ("ok", 3, {"hidden": 2, "link": 2, "special": 1})
        kept = {each.rowid for each in await world.passages(first[f"{CANARY}.md"])}
        # By the system's watches: the next look by itself is minutes away.
        old(folder / "deep" / "er" / "заметка.txt", "Ключ у соседки.")
        old(folder / "new" / "one.md", "Something new.")
        (folder / f"{CANARY}.md").touch()  # the content is as before
        os.utime(folder / f"{CANARY}.md", (1, 1))
        shutil.rmtree(folder / ".hidden")

        async def changed() -> bool:
            now = await world.settled(source, *names, "new/one.md")
            return now["deep/er/заметка.txt"].sha256 != first["deep/er/заметка.txt"].sha256

        await until(changed)
        now = await world.documents(source)
        assert [each.text for each in await world.passages(now["deep/er/заметка.txt"])] == ["Ключ у соседки."]
        await until(lambda: _stamped(world, source, f"{CANARY}.md", "-1000000000-"))
        now = await world.documents(source)
        assert now[f"{CANARY}.md"].read_at > first[f"{CANARY}.md"].read_at
        assert {each.rowid for each in await world.passages(now[f"{CANARY}.md"])} == kept
        shutil.rmtree(folder / "deep")
        (folder / "photo.jpg").unlink()
        await world.settled(source, f"{CANARY}.md", "new/one.md")
        left = sum([len(await world.passages(each)) for each in (await world.documents(source)).values()])
        assert await world.count("SELECT count(*) FROM kb_passages") == left
        assert any(each["event"] == "document_read" for each in log_events)


async def _stamped(world: Any, source: Any, name: str, part: str) -> bool:
    found = (await world.documents(source))[name]
    return part in found.stamp and found.state is DocumentState.READ


async def test_what_is_not_there_for_a_while_is_not_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    old(folder / "a.md", TEXT)
    async with knowledge_world(tmp_path) as world:
        source = await world.folder()
        await world.settled(source, "a.md")
        folder.rename(tmp_path / "elsewhere")
        world.indexer.read_again(source.id)
        await until(lambda: world.indexer.state_of(source.id).code == "missing")  # type: ignore[union-attr]
        assert "kb_missing" in world.problems()
        assert (await world.documents(source))["a.md"].passages
    async with knowledge_world(tmp_path) as world:  # a mount point without its disk
        folder.mkdir()
        world.indexer.read_again(source.id)
        await until(lambda: (state := world.indexer.state_of(source.id)) and state.code != "missing")
        folder.rmdir()
        (tmp_path / "elsewhere").rename(folder)
        world.indexer.read_again(source.id)
        await until(lambda: world.indexer.state_of(source.id).code == "ok")  # type: ignore[union-attr]
        assert list(await world.settled(source, "a.md")) == ["a.md"]
        assert not world.problems()
        (folder / "a.md").unlink()
        await world.settled(source)


async def test_an_empty_folder_of_which_nothing_is_known_since_the_start_keeps_its_documents(tmp_path: Path) -> None:
    old(tmp_path / "docs" / "a.md", TEXT)
    async with knowledge_world(tmp_path) as world:
        source = await world.folder()
        await world.settled(source, "a.md")
    (tmp_path / "docs" / "a.md").unlink()
    async with knowledge_world(tmp_path) as world:
        await until(lambda: (state := world.indexer.state_of(source.id)) and state.code == "empty")
        assert list(await world.documents(source)) == ["a.md"]
        world.indexer.read_again(source.id)
        await world.settled(source)


async def test_a_folder_in_it_that_is_empty_since_the_start_keeps_its_documents(tmp_path: Path) -> None:
    """As a mount point is without its disk. What is emptied while it is watched goes."""
    nas = tmp_path / "docs" / "nas"
    for path in ("a.md", "nas/b.md", "nas/deep/c.md", "there/d.md"):
        old(tmp_path / "docs" / path, TEXT)
    async with knowledge_world(tmp_path) as world:
        source = await world.folder()
        await world.settled(source, "a.md", "nas/b.md", "nas/deep/c.md", "there/d.md")
        (tmp_path / "docs" / "there" / "d.md").unlink()
        await world.settled(source, "a.md", "nas/b.md", "nas/deep/c.md")
        nas.rename(tmp_path / "disk")
        nas.mkdir()
    async with knowledge_world(tmp_path) as world:
        await until(lambda: (state := world.indexer.state_of(source.id)) and state.code == "partly_empty")
        assert "kb_partly_empty" in world.problems()
        old(tmp_path / "docs" / "a.md", "Changed.")
        await until(lambda: _says(world, source, "a.md", "Changed."))
        assert set(await world.documents(source)) == {"a.md", "nas/b.md", "nas/deep/c.md"}
        nas.rmdir()
        (tmp_path / "disk").rename(nas)
        await until(lambda: not world.problems())
        (nas / "b.md").unlink()
        await world.settled(source, "a.md", "nas/deep/c.md")
        shutil.rmtree(nas)  # a folder that is gone is no empty one
        await world.settled(source, "a.md")


async def _says(world: Any, source: Any, name: str, text: str) -> bool:
    return any(text in each.text for each in await world.passages((await world.documents(source))[name]))


def test_a_disk_that_is_unmounted_while_it_is_watched_keeps_its_documents() -> None:
    found = scan.FolderScan(most=10)
    found.folders |= {"": 1, "nas": 1, "own": 1}
    found.empty += ["nas", "own"]

    def knowing(*names: str, state: DocumentState = DocumentState.READ) -> dict[str, KnownDocument]:
        return {name: KnownDocument(DocumentId(name), "1", "a", state) for name in names}

    known = knowing("nas/b.md", "nas/deep/c.md", "own/d.md", "nas2/e.md")
    assert scan.emptied(found, known, {"": 1, "nas": 2, "own": 1}) == {"nas"}
    assert scan.emptied(found, knowing("a.md"), {}) == set()
    assert scan.emptied(found, knowing("nas/b.jpg", state=DocumentState.FAILED), {}) == set()
    assert scan.compare(found, known, kept={"nas"}) == ([], ["own/d.md", "nas2/e.md"])


async def test_small_documents_are_read_before_large_ones(tmp_path: Path) -> None:
    old(tmp_path / "docs" / "a.md", "Слово. " * 40_000)
    old(tmp_path / "docs" / "z.md", "Small.")
    async with knowledge_world(tmp_path) as world:
        found = await world.settled(await world.folder(), "a.md", "z.md")
        assert found["z.md"].read_at < found["a.md"].read_at


async def test_nobodys_document_and_no_large_one_keep_those_of_others_waiting(tmp_path: Path) -> None:
    """26.A6: the process that reads the first document is stopped, as if it took hours."""
    async with knowledge_world(tmp_path) as world:
        boris, clara = await world.base_of("boris"), await world.base_of("clara")
        large = b"word " * (LARGE_BYTES // 4)
        await world.upload("large.txt", large)
        async with stopped("klaw.knowledge.reading.child"):
            await world.upload("larger.txt", large, clara)
            await world.upload("small.txt", b"Behind the large one of the same user.")
            small = await world.upload("boris.md", TEXT.encode(), boris)
            assert (await world.settled(small, "boris.md"))["boris.md"].passages
            assert await world.count(WAITING) == 3
        await world.done()
        assert await world.count(WAITING) == 0


async def test_too_many_files_klaws_own_folders_and_forbidden_ones(tmp_path: Path) -> None:
    for number in range(12):
        old(tmp_path / "docs" / f"{number:02}.md", f"Text number {number}.")
    old(tmp_path / "docs" / "own" / "chat.md", CANARY)
    old(tmp_path / "secret" / "a.md", CANARY)
    async with knowledge_world(tmp_path, max_files=10, private=(tmp_path / "docs" / "own",)) as world:
        source, secret = await world.folder(), await world.folder("secret")
        await world.settled(source, *(f"{number:02}.md" for number in range(10)))
        state = world.indexer.state_of(source.id)
        assert state is not None
        assert state.code == "too_many"
        await until(lambda: (state := world.indexer.state_of(secret.id)) and state.code == "not_allowed")
        assert not await world.documents(secret)
        assert set(world.problems()) == {"kb_too_many", "kb_not_allowed"}
        assert not any(CANARY in text or "docs" in text for text in world.problems().values())


async def test_a_document_that_fails_is_left_alone_until_it_changes(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    old(folder / "a.txt", b"")
    old(folder / "b.md", TEXT)
    async with knowledge_world(tmp_path) as world:
        source = await world.folder()
        first = await world.settled(source, "a.txt", "b.md")
        assert first["a.txt"].state is DocumentState.FAILED
        world.indexer.nudge()
        await world.done()
        assert await world.documents(source) == first
        world.indexer.read_again(source.id)
        await until(lambda: _read_after(world, source, first))
        old(folder / "a.txt", "Now there is something in it.")
        await until(lambda: _has_text(world, source, "a.txt"))


async def _read_after(world: Any, source: Any, first: Any) -> bool:
    now = await world.settled(source, *first)
    return all(now[name].read_at > first[name].read_at for name in first)


async def _has_text(world: Any, source: Any, name: str) -> bool:
    return bool((await world.documents(source))[name].passages)


@pytest.mark.parametrize("count", [3, 1_500])
async def test_a_document_is_replaced_by_what_it_is_now(tmp_path: Path, count: int) -> None:
    """With more passages than are stored at a time, too."""

    def text(words: str) -> str:
        return "# Книга\n\n" + "\n\n".join(f"Глава {number}. {words} " * 40 for number in range(count))

    path = old(tmp_path / "docs" / "книга.md", text("Начало."))
    async with knowledge_world(tmp_path) as world:
        source = await world.folder()
        first = (await world.settled(source, "книга.md"))["книга.md"]
        rows = {each.text: each.rowid for each in await _all(world, first)}
        old(path, text("Начало.").replace("Глава 1.", "Глава первая.") + "\n\nКонец.")

        async def changed() -> Any:
            now = (await world.settled(source, "книга.md"))["книга.md"]
            return now if now.sha256 != first.sha256 else None

        now = await until(changed)
        after = await _all(world, now)
        assert [each.ordinal for each in after] == list(range(now.passages))
        assert now.digest == stored_documents.digest([_plain(each) for each in after])
        assert all(each.rowid == rows[each.text] for each in after if each.text in rows)
        assert await world.count("SELECT count(*) FROM kb_passages") == len(after)
        old(path, text("Начало.").replace("# Книга", "# Другая книга"))
        world.indexer.read_again(source.id)
        await until(lambda: _titled(world, source, "Другая книга"))
        assert await world.count("SELECT count(*) FROM kb_passages_fts WHERE kb_passages_fts MATCH 'content: другая'")


async def _titled(world: Any, source: Any, title: str) -> bool:
    return bool((await world.settled(source, "книга.md"))["книга.md"].title == title)


async def _all(world: Any, document: Any) -> Any:
    return await world.store.readers.run(documents.passages, ANNA, document.id, limit=100_000)


def _plain(passage: Any) -> Any:
    import attrs

    from klaw.domain.knowledge import Passage

    return Passage(**{name: getattr(passage, name) for name in attrs.fields_dict(Passage)})


@pytest.mark.parametrize(("limit", "given"), [("max_inotify_watches", "1"), ("max_inotify_instances", "0")])
async def test_a_folder_that_the_system_does_not_watch_is_looked_at(tmp_path: Path, limit: str, given: str) -> None:
    """With the real limit of a user namespace; see ``unwatched``."""
    own = ["unshare", "--user", "--map-root-user"]
    command = [*own, sys.executable, "-m", "tests.support.unwatched", limit, given, str(tmp_path)]
    with trio.fail_after(2 * HANG_S):
        done = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)
    told = done.stderr.decode()
    if done.returncode == 3 or told.startswith("unshare:"):
        pytest.skip("this system gives no user namespaces or no watches")
    assert done.returncode == 0, told
