"""Knowledge bases through the operations of a real server: who may do what, what is added, and what goes again."""

import base64
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.app.app import App
from klaw.backup.create import _others
from klaw.cli.main import main
from klaw.doctor.places import check_files
from klaw.domain.knowledge import DocumentProblem, SourceId
from klaw.domain.names import chat_id
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, perform, read
from klaw.operations.slash import OperationCommands
from klaw.store import originals
from tests.support.admin import ANNA, BORIS, parts_of, served
from tests.support.admin import Commands as AdminCommands
from tests.support.kb import Doors, fill

EVE = "eve"


@pytest.fixture
async def app(app: App) -> App:
    """Without what reads files: documents are made by hand here."""
    await app.core.supervisor.stop("knowledge.indexer", "a test does its work")
    return app


@pytest.fixture
def anna(app: App) -> Doors:
    return Doors(app, ANNA)


@pytest.fixture
def boris(app: App) -> Doors:
    return Doors(app, BORIS)


def kept(app: App) -> dict[str, int]:
    return originals.every(app.core.paths.data_dir)


async def test_a_base_is_made_changed_shared_and_left(anna: Doors, boris: Doors, app: App) -> None:
    base = await anna.create(" Договоры\taренды ", description="Всё", language="ru")
    assert await anna.refused("kb_create", fields={"name": "Договоры aренды"}) == "base_exists"
    shown = (await anna("kb_show", base="Договоры aренды"))["base"]
    assert (shown["id"], shown["role"], shown["language"]) == (base, "owner", "ru")
    assert (await anna("kb_show", base=base[:8]))["base"]["id"] == base
    assert await boris.refused("kb_show", base=base) == "unknown_base"
    await anna("kb_share", base=base, member="boris")
    (listed,) = (await boris("kb_list"))["bases"]
    assert (listed["role"], listed["owner"], listed["members"]) == ("viewer", "anna", {})
    for name, args in {
        "kb_edit": {"fields": {"name": "x"}},
        "kb_share": {"member": EVE},
        "kb_delete": {},
        "kb_add": {"what": "https://8.8.8.8/"},
    }.items():
        assert await boris.refused(name, base=base, **args) == "not_allowed", name
    await anna("kb_edit", base=base, fields={"name": "Rent", "description": ""})
    assert (await boris("kb_show", base="Rent"))["base"]["description"] == ""
    await boris("kb_leave", base="Rent")
    assert (await boris("kb_list"))["bases"] == []
    assert await anna.refused("kb_leave", base=base) == "not_allowed"
    assert await anna.refused("kb_share", base=base, member="anna") == "not_allowed"
    await anna("kb_share", base=base, member=EVE, role="editor")
    await anna("kb_share", base=base, member=EVE, role="none")
    assert await Doors(app, EVE).refused("kb_show", base=base) == "unknown_base"


async def test_a_name_means_the_own_base_and_between_those_of_others_the_id(
    anna: Doors, boris: Doors, app: App
) -> None:
    eve = Doors(app, EVE)
    theirs = [await each.create("Notes") for each in (anna, boris)]
    for door, base in zip((anna, boris), theirs, strict=True):
        await door("kb_share", base=base, member=EVE)
    with pytest.raises(OperationError, match=f"{theirs[0]} .of anna., {theirs[1]} .of boris.") as caught:
        await eve("kb_show", base="Notes")
    assert caught.value.code == "several_bases"
    assert (await eve("kb_show", base=theirs[1]))["base"]["owner"] == "boris"
    own = await eve.create("Notes")
    assert (await eve("kb_show", base="Notes"))["base"]["id"] == own
    # A base called like another one's id takes nothing away from it.
    await boris.create(theirs[0])
    assert (await anna("kb_show", base=theirs[0]))["base"]["owner"] == "anna"


async def test_a_file_is_kept_as_it_came_and_once(anna: Doors, boris: Doors, app: App) -> None:
    base = await anna.create("Files")
    await anna("kb_share", base=base, member="boris", role="editor")
    upload = await anna.upload(b"one, ")
    assert await anna.upload(b"two", upload=upload, offset=5) == upload
    assert await anna.upload(b"two", upload=upload, offset=5) == upload  # sent again, whose answer was lost
    assert await anna.refused("kb_upload", upload=upload, offset=3, data="") == "bad_offset"
    assert await boris.refused("kb_upload", upload=upload, offset=8, data="YQ==") == "unknown_upload"
    assert await boris.refused("kb_add", base=base, upload=upload, name="x.txt") == "unknown_upload"
    added = await anna("kb_add", base=base, upload=upload, name="../../отчёт\x1b[31m\u202e.txt")
    source = added["source"]
    assert (source["name"], source["kind"], source["size"]) == ("отчёт [31m.txt", "file", 8)
    path = originals.path(app.core.paths.data_dir, source["id"])
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one, two", 0o600)
    assert source["sha256"] == hashlib.sha256(b"one, two").hexdigest()
    again = await boris.add_file(base, "отчёт [31m.txt", b"one, two")
    assert (again["added"], again["source"]["id"]) == (False, source["id"])
    assert (await boris.add_file(base, "other.txt", b"one, two"))["added"]
    assert (await anna.add_file(base, "graph.ttl"))["source"]["kind"] == "rdf"
    assert await anna.refused("kb_add", base=base, upload=await anna.upload(b""), name="x") == "empty_file"
    assert len(kept(app)) == 3
    assert list((app.core.paths.data_dir / originals.UPLOADS).iterdir()) == []


async def test_limits_of_files_and_users(anna: Doors, app: App) -> None:
    base = await anna.create("Files")
    config = attrs.evolve(app.core.config, kb=attrs.evolve(app.core.config.kb, max_file_bytes=10))
    doors = attrs.evolve(parts_of(app), core=attrs.evolve(app.core, config=config))

    async def upload(data: bytes, **args: Any) -> dict[str, Any]:
        call = read(operations()["kb_upload"], {"data": base64.b64encode(data).decode(), **args})
        return await perform(call, Caller(user=ANNA), doors)

    with pytest.raises(OperationError) as caught:
        await upload(b"x" * 11)
    assert caught.value.code == "file_too_large"
    for _ in range(4):
        await upload(b"x" * 10)
    with pytest.raises(OperationError) as caught:
        await upload(b"x")
    assert caught.value.code == "files_full"
    config = attrs.evolve(app.core.config, kb=attrs.evolve(app.core.config.kb, max_user_bytes=7))
    app = attrs.evolve(app, core=attrs.evolve(app.core, config=config))
    await Doors(app, EVE).create("Eve's")
    await anna("kb_share", base=base, member=EVE, role="editor")
    eve = Doors(app, EVE)
    await eve.add_file("Eve's", "a", b"1234")
    assert await eve.refused("kb_add", base=base, upload=await eve.upload(b"5678"), name="b") == "files_full"
    await Doors(app, "").create("Operator's")
    for name in "ab":
        await Doors(app, "").add_file("Operator's", name, b"12345")
    assert len(kept(app)) == 3


async def test_which_folders_and_addresses_may_be_added(anna: Doors, app: App, tmp_path: Path) -> None:
    base, operator = await anna.create("Folders"), Doors(app, "")
    paths = app.core.paths
    own = paths.workspace / "users" / "anna" / "notes"
    other = paths.workspace / "users" / "boris"
    open_to_all = tmp_path / "shared"
    for folder in (own, other, open_to_all / "in", tmp_path / "closed"):
        folder.mkdir(parents=True)
    (open_to_all / "link").symlink_to(tmp_path / "closed")
    kb = attrs.evolve(app.core.config.kb, folders=(str(open_to_all),))
    anna.app = attrs.evolve(app, core=attrs.evolve(app.core, config=attrs.evolve(app.core.config, kb=kb)))
    for folder in (own, open_to_all, open_to_all / "in"):
        source = (await anna("kb_add", base=base, what=str(folder)))["source"]
        assert (source["kind"], source["where"], source["name"]) == ("folder", str(folder), folder.name)
    assert not (await anna("kb_add", base=base, what=f"{own}/"))["added"]
    wrong = [other, open_to_all / "link", tmp_path / "closed", open_to_all / "none", open_to_all / "in/../.."]
    for folder in [*wrong, paths.data_dir, paths.config_dir, "/", "/etc", "in", "x" * 1_990, f"/{'x' * 1_990}"]:
        assert await anna.refused("kb_add", base=base, what=str(folder)) == "not_allowed", folder
    await operator.create("All")
    for folder in (tmp_path / "closed", open_to_all / "link"):
        source = (await operator("kb_add", base="All", what=str(folder)))["source"]
        assert source["where"] == str(tmp_path / "closed")
    for folder in (paths.data_dir, paths.config_dir, other, paths.data_dir / "conversations"):
        assert await operator.refused("kb_add", base="All", what=str(folder)) == "not_allowed"
    local = ("10.0.0.1", "127.0.0.1", "localhost", "[::1]", "0x7f.1", "169.254.169.254", "a\r\nb", "a:b@8.8.8.8")
    for what in [*(f"http://{each}/" for each in local), "https://8.8.8.8:22/"]:
        assert await anna.refused("kb_add", base=base, what=what) == "bad_args", what
    page = (await anna("kb_add", base=base, what="https://8.8.8.8/a#b"))["source"]
    assert (page["kind"], page["where"]) == ("web", "https://8.8.8.8/a")
    for args in (
        {},
        {"what": "a", "upload": "0" * 20},
        {"what": "a.txt", "kind": "file"},
        {"what": ""},
        {"what": "a\0b"},
    ):
        assert await anna.refused("kb_add", base=base, **args) == "bad_args", args
    assert await anna.refused("kb_add", base=base, upload="../../../etc/passwd") == "bad_args"
    assert await anna.refused("kb_add", base=base, upload="0" * 20) == "unknown_upload"


@pytest.mark.parametrize("name", ["", " ", "\ud800", "\0", "x" * 81, "x" * 10_000_000, "\u202e", "\x1b[2J"])
async def test_hostile_names_are_refused_or_made_harmless(anna: Doors, name: str) -> None:
    with pytest.raises(OperationError) as caught:
        await anna.create(name)
    assert caught.value.code == "bad_args"
    assert len(str(caught.value)) < 200


async def test_what_is_deleted_is_gone_with_its_files(anna: Doors, boris: Doors, app: App) -> None:
    base, other = await anna.create("Вино"), await anna.create("Tea")
    sources = [(await anna.add_file(base, f"{at}.txt", b"x%d" % at))["source"] for at in range(2)]
    stays = (await anna.add_file(other, "0.txt", b"x0"))["source"]
    problem = DocumentProblem(code="encrypted", text="needs a password", page=3)
    await fill(app, sources[0], "0.txt", *[f"Вино номер {at}" for at in range(90)])
    await fill(app, sources[1], "1.txt", problems=(problem,))
    await fill(app, stays, "0.txt", "Вино и чай")
    shown = await anna("kb_show", base=base)
    assert [each["documents"] for each in shown["sources"]] == [1, 1]
    assert (shown["base"]["passages"], shown["with_problems"]) == (90, 1)
    assert shown["problems"][0]["problems"][0]["page"] == 3
    await anna("kb_share", base=base, member="boris")
    assert await boris.refused("kb_remove", source=sources[0]["id"]) == "not_allowed"
    assert await boris.refused("kb_remove", source=stays["id"]) == "unknown_source"
    would = await anna("kb_remove", source=sources[0]["id"])
    assert (would["removed"], would["documents"], would["passages"]) == (False, 1, 90)
    done = await anna("kb_remove", source=sources[0]["id"], dry_run=False)
    assert done["removed"]
    assert {each["id"] for each in (await anna("kb_sources", base=base))["sources"]} == {sources[1]["id"]}
    await anna("kb_delete", base=base, dry_run=False)
    assert await anna.refused("kb_show", base=base) == "unknown_base"
    assert (await boris("kb_list"))["bases"] == []
    assert set(kept(app)) == {stays["id"]}

    def rows(connection: Any) -> list[int]:
        counts = ("kb_sources", "kb_documents", "kb_passages", "kb_passages_fts WHERE kb_passages_fts MATCH 'вино'")
        return [connection.execute(f"SELECT count(*) FROM {each}").get for each in counts]

    assert await app.core.readers.run(rows) == [1, 1, 1, 1]


async def test_what_a_kill_left_is_swept(anna: Doors, app: App) -> None:
    base = await anna.create("Files")
    source = (await anna.add_file(base, "a.txt"))["source"]
    upload = await anna.upload(b"left")
    data = app.core.paths.data_dir
    orphan = originals.write(data, SourceId("0123456789abcdef"), b"orphan")
    assert orphan.size == 6
    (data / originals.FOLDER / f"0123456789abcdef{originals.GRAPH}").mkdir()
    assert originals.sweep(data, {source["id"]}, before=0) == 0
    assert originals.sweep(data, {source["id"]}, before=1e12) == 3
    assert set(kept(app)) == {source["id"]}
    assert await anna.refused("kb_add", base=base, upload=upload, name="b.txt") == "unknown_upload"


async def test_the_commands(
    app: App, home: Path, commands: AdminCommands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def klaw(*words: str) -> tuple[int, str]:
        code = await trio.to_thread.run_sync(main, ["kb", *words, "--home", str(home)])
        told = capsys.readouterr()
        return code, told.out + told.err

    large = tmp_path / "большой файл.txt"
    large.write_bytes(bytes(range(256)) * 1_000)
    (tmp_path / "empty.txt").touch()
    async with served(app, commands):
        assert await klaw("list") == (0, "no knowledge bases: `klaw kb create NAME` makes one\n")
        assert (await klaw("create", "Мои", "книги", "--language", "ru"))[0] == 0
        code, told = await klaw("add", "Мои книги", str(large), str(tmp_path))
        assert (code, told.splitlines()[0].startswith("added: file большой файл.txt")) == (0, True)
        assert told.splitlines()[1].startswith("added: folder ")
        code, told = await klaw("add", "Мои книги", str(tmp_path / "empty.txt"), str(large))
        assert (code, "the file is empty" in told, "there already" in told) == (1, True, True)
        assert (await klaw("add", "Мои книги", "nothing.txt"))[0] == 1
        (source,) = kept(app)
        assert originals.path(app.core.paths.data_dir, SourceId(source)).read_bytes() == large.read_bytes()
        assert "большой файл.txt" in (await klaw("show", "Мои книги"))[1]
        assert (await klaw("share", "Мои книги", "anna", "--role", "editor"))[1] == "anna is now editor of Мои книги\n"
        assert (await klaw("delete", "Мои книги"))[0] == 1
        code, told = await klaw("delete", "Мои книги", "--dry-run")
        assert (code, told) == (0, "would be removed: Мои книги, with 2 sources, 0 documents, 0 passages\n")
        assert (await klaw("remove", source, "--yes"))[0] == 0
        assert kept(app) == {}
        assert (await klaw("delete", "Мои книги", "--yes"))[0] == 0
        assert json.loads((await klaw("list", "--json"))[1])["bases"] == []


async def test_a_source_is_read_again_for_those_who_may_change_it(anna: Doors, boris: Doors, app: App) -> None:
    base = await anna.create("Книги")
    source = (await anna.add_file(base, "книга.txt"))["source"]
    assert await anna("kb_refresh", source=source["id"]) == {"source": source["id"], "name": "книга.txt", "problem": ""}
    assert await boris.refused("kb_refresh", source=source["id"]) == "unknown_source"
    await anna("kb_share", base=base, member=BORIS, role="viewer")
    assert await boris.refused("kb_refresh", source=source["id"]) == "not_allowed"


async def test_a_document_is_opened_where_it_was_cited(anna: Doors, boris: Doors, app: App) -> None:
    base = await anna.create("Книги")
    source = (await anna.add_file(base, "книга.pdf"))["source"]
    book = await fill(app, source, "книга.pdf", *[f"Страница {at + 1}" for at in range(60)], title="Книга", pages=60)

    async def opened(**args: Any) -> tuple[list[int], int | None, int | None]:
        told = await anna("kb_open", document=book.id[:6], **args)
        return [each["first_page"] for each in told["passages"]], told["previous"], told["next"]

    assert await opened() == (list(range(1, 51)), None, 5_000)
    assert await opened(start=5_000) == (list(range(50, 53)), 4_800, 5_200)
    assert await opened(start=305, end=405, around=0) == ([4, 5], 200, 500)
    assert await opened(page=60) == ([59, 60], 5_700, None)
    assert await opened(page=1, around=0) == ([1], None, 100)
    assert await anna.refused("kb_open", document=book.id, page=61) == "unknown_page"
    assert await anna.refused("kb_open", document=book.id, start=9_000) == "unknown_page"
    assert await boris.refused("kb_open", document=book.id) == "unknown_document"
    assert await boris.refused("kb_documents", base=base) == "unknown_base"
    await fill(app, source, "b.pdf", problems=(DocumentProblem(code="encrypted", text="needs a password"),))
    listed = await anna("kb_documents", base=base, limit=1)
    assert ([each["name"] for each in listed["documents"]], listed["count"], listed["next"]) == (["b.pdf"], 2, 2)
    assert (await anna("kb_documents", base=base, problems=True, source=source["id"]))["count"] == 1


async def test_a_chat_is_bound_to_bases_in_every_way(anna: Doors, boris: Doors, app: App) -> None:
    wine, tea = await anna.create("Вино, сыр"), await anna.create("Tea")
    await boris.create("Boris's")
    commands = OperationCommands()
    commands.parts = parts_of(app)

    async def kb(rest: str) -> str:
        return (await commands.run("/kb", chat_id(ANNA, "main"), rest, no_stop)).text

    async def no_stop(_reason: str) -> bool:
        return False

    assert "answers this chat" not in await kb("")
    assert "Вино, сыр  answers this chat" in await kb("use вино, сыр")
    assert [each["id"] for each in (await anna("kb_chat", chat="main"))["bases"]] == [wine]
    assert (await kb(f"use {tea}, Tea")).count("answers this chat") == 1
    assert "there is no knowledge base" in await kb("use Boris's")
    assert "/kb use NAME" in await kb("nonsense")
    assert "answers this chat" not in await kb("off")
    assert [each["id"] for each in (await anna("kb_use", bases=[tea, wine], chat="other"))["bases"]] == [tea, wine]
    await anna("kb_delete", base=tea, dry_run=False)
    told = await anna("kb_chat", chat="other")
    assert ([each["id"] for each in told["bases"]], told["gone"]) == ([wine], [tea])
    assert await anna.refused("kb_use", bases=[wine], chat="boris:main") == "bad_args"
    assert (await anna("kb_off", chat="other"))["bases"] == []


async def test_doctor_and_backup_know_the_files(anna: Doors, app: App) -> None:
    base = await anna.create("Files")
    ids = [(await anna.add_file(base, name, name.encode()))["source"]["id"] for name in ("a", "b", "c")]
    await anna.upload(b"begun")
    paths = app.core.paths
    folder = paths.data_dir / originals.FOLDER
    (folder / f"{ids[2]}{originals.GRAPH}").mkdir()
    (folder / f"{ids[2]}{originals.GRAPH}" / "x").touch()
    saved = {each.path for each in _others(paths, paths.backups_dir, secrets=False)}
    assert {each for each in saved if each.startswith("data/knowledge")} == {f"data/knowledge/{each}" for each in ids}

    async def told(*, whole: bool) -> list[str]:
        check = partial(check_files, paths, whole=whole, running=False, settled=True)
        return [each.text for each in await trio.to_thread.run_sync(check) if each.name == "knowledge"]

    assert (await told(whole=True))[0].startswith("3 files of knowledge bases in order")
    originals.path(paths.data_dir, SourceId(ids[0])).write_bytes(b"x")
    assert (await told(whole=False))[0].startswith("3 files of knowledge bases in order")
    assert f"1 file of knowledge bases not as they were sent: {ids[0]}" in (await told(whole=True))[0]
    originals.path(paths.data_dir, SourceId(ids[1])).rename(folder / "0123456789")
    missing, _, nobody = await told(whole=True)
    assert (ids[1] in missing, "0123456789" in nobody) == (True, True)


async def test_check_names_what_differs_and_repairs_it(anna: Doors, boris: Doors, app: App, tmp_path: Path) -> None:
    base, operator = await anna.create("Сверка"), Doors(app, "")
    (tmp_path / "notes").mkdir()
    here = (await operator("kb_add", base=base, user="anna", what=str(tmp_path / "notes")))["source"]
    kept_ = (await anna.add_file(base, "a.txt", b"12345"))["source"]
    for name in ("same.txt", "longer.txt", "other.txt", "gone.txt", "link.txt"):
        (tmp_path / "notes" / name).write_text("123")
        await fill(app, here, name, f"Текст {name}", size=3, sha256=hashlib.sha256(b"123").hexdigest())
    await fill(app, kept_, "a.txt", "Пять", size=5)
    whole = await anna("kb_check", base="Сверка", full=True)
    assert (whole["flaws"], whole["bases"][0]["documents"]) == (0, 6)
    (tmp_path / "notes" / "longer.txt").write_text("1234")
    (tmp_path / "notes" / "other.txt").write_text("124")
    (tmp_path / "notes" / "gone.txt").unlink()
    (tmp_path / "notes" / "link.txt").unlink()
    (tmp_path / "notes" / "link.txt").symlink_to("same.txt")
    found = (await anna("kb_check", base=base))["bases"][0]["flaws"]
    assert sorted((each["code"], each["text"].split()[0]) for each in found) == [
        ("file_differs", "longer.txt"),
        ("file_missing", "gone.txt"),
        ("file_unreadable", "link.txt"),
    ]
    assert (await anna("kb_check", base=base, full=True))["flaws"] == 4
    originals.path(app.core.paths.data_dir, SourceId(kept_["id"])).rename(tmp_path / "away")

    def spoil(tx: Any) -> None:
        tx.connection.execute("DELETE FROM kb_passages_fts_docsize")
        tx.connection.execute("UPDATE kb_documents SET passages = 9 WHERE name = 'same.txt'")
        tx.connection.execute("UPDATE kb_documents SET source_id = 'gone' WHERE name = 'other.txt'")

    await app.core.writer.run(spoil)
    told = await operator("kb_check", user="anna", repair=True)
    codes = [each["code"] for each in told["bases"][0]["flaws"]]
    assert (codes.count("not_indexed"), codes.count("incomplete"), "file_missing" in codes) == (6, 1, True)
    assert ([each["text"] for each in told["orphans"]], told["repairing"]) == (["1 document without a source"], 1)
    assert await boris.refused("kb_check", base=base) == "unknown_base"
    assert (await boris("kb_check"))["bases"] == []
    # 26.B3: only its owner has a base repaired, an editor not either.
    for role in ("viewer", "editor"):
        await anna("kb_share", base=base, member=BORIS, role=role)
        assert await boris.refused("kb_check", base=base, repair=True) == "not_allowed"
        found = await boris("kb_check", repair=True)
        assert (len(found["bases"]), found["repairing"]) == (1, 0)


@pytest.mark.parametrize(
    ("query", "name", "text"),
    [("сколько стоит барбарис?", "цены.txt", "Барбарис"), ("barberry price", "prices.txt", "Barberry")],
)
async def test_a_base_is_searched_as_a_bound_chat_does(
    anna: Doors, boris: Doors, app: App, query: str, name: str, text: str
) -> None:
    base = await anna.create("Цены")
    source = (await anna.add_file(base, "x"))["source"]
    made = await fill(app, source, "цены.txt", "Барбарис стоит сто рублей за килограмм", "Погода была хорошая")
    english = await fill(app, source, "prices.txt", "Barberry: the price is one euro", "The weather was fine")
    found = await anna("kb_search", base="Цены", query=query)
    assert found["passages"], found
    best = found["passages"][0]
    assert (best["name"], best["text"].startswith(text), best["kept"]) == (name, True, True)
    assert best["document"] in (made.id, english.id)
    nothing = await anna("kb_search", base=base, query="квантовая хромодинамика", all=True)
    assert nothing["nothing"] in ("no_passages", "too_far")
    assert await boris.refused("kb_search", base=base, query=query) == "unknown_base"
    await anna("kb_share", base=base, member="boris")
    assert (await boris("kb_search", base=base, query=query))["passages"]
