"""``klaw doctor`` on a stopped installation: every fault has its finding, with what to do, and nothing is changed."""

import json
import os
import shutil
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import attrs
import pytest
import trio

from klaw.backup.create import create
from klaw.cli.main import main
from klaw.config.paths import Paths, ensure_private_dir
from klaw.doctor.checkup import Checkup, check_up
from klaw.doctor.judge import Finding, Level
from klaw.doctor.places import Server
from klaw.domain.message import MessageKind
from klaw.domain.names import UserId
from klaw.domain.task import RunStatus
from klaw.domain.text import listed
from klaw.gateway.tokens import add_token, tokens_file
from klaw.store.backup_mark import mark_offline
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import facts, messages, run_edits, tasks
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.conftest import CANARY
from tests.support.facts import fact
from tests.support.people import add, in_topic, people_of
from tests.support.runs.tasks import exchange, result, run_of, task
from tests.support.stores import new, running_store
from tests.support.topics import archive
from tests.support.turns import record

NOW = 1_770_000_000.0
CONFIG = '{"embedding": {"enabled": false}, "providers": {"p": {"baseUrl": "http://127.0.0.1:9/v1"}},'
CONFIG += ' "routing": {"default": "p/m"}, "context": {"slidingWindow": 2}}'


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Paths]:
    """An installation with two chats, stopped in order."""
    paths = Paths.resolve(tmp_path / "home", {})
    ensure_private_dir(paths.config_dir)
    ensure_private_dir(paths.data_dir)
    paths.config_file.write_text(CONFIG)

    async def fill(store: Store) -> None:
        stored = await store.writer.run(
            messages.append, [new(f"Тайна {CANARY} {n}", at=NOW - 50 + n) for n in range(6)]
        )
        await store.writer.run(messages.append, [new("...", at=NOW)], record(stored[0].message))
        await store.writer.run(messages.append, [new("/status", kind=MessageKind.COMMAND, chat="other", at=NOW)])
        await stored_vectors.prepare(store.writer, "model-1", 4)
        rowids = [each.message.rowid for each in stored]
        await store.writer.run(
            stored_vectors.store, "model-1", [(rowid, struct.pack("<4f", 1, 2, 3, rowid)) for rowid in rowids]
        )

    use(paths, fill)
    yield paths
    assert CANARY not in "".join(path.read_text() for path in paths.state_dir.rglob("*.log"))


def use(paths: Paths, function: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        async with running_store(paths.data_dir) as store:
            await function(store)

    trio.run(run)


def spoil(paths: Paths, *statements: str) -> None:
    connection = apsw.Connection(str(paths.database))
    prepare_writer(connection)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def look(paths: Paths, *, whole: bool = False, server: Server | None = None, now: float = NOW + 60) -> Checkup:
    return check_up(paths, server or Server(), whole=whole, version="1", now=now, environ={})


def one(done: Checkup, name: str) -> Finding:
    """The finding of a name that is worst."""
    order = [Level.PROBLEM, Level.WARNING, Level.OK]
    return min((each for each in done.findings if each.name == name), key=lambda each: order.index(each.level))


def worst(done: Checkup) -> dict[str, str]:
    return {each.name: each.level.value for each in done.findings if each.level is not Level.OK}


# -- all is well -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_all_is_well_and_nothing_is_changed(paths: Paths, whole: bool) -> None:
    def files() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for path in paths.data_dir.rglob("*")
            if path.is_file() and not path.name.endswith(("-shm", "-wal"))
        }

    before = files()
    done = look(paths, whole=whole)
    assert worst(done) == {}
    assert {"configuration", "folders", "disk", "schema", "integrity", "full_text", "vectors", "covered", "logs"} <= {
        finding.name for finding in done.findings
    }
    assert done.chats["local:main"] == {
        "messages": 7,
        "not_searchable": 0,
        "in_text": 6,
        "with_vector": 6,
        "wordless": 1,
        "uncovered": 0,
    }
    assert done.chats["local:other"]["not_searchable"] == 1
    assert "1 hold no word" in one(done, "covered").text
    assert files() == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE messages SET topic_id = 99 WHERE rowid = 1", "1 messages belong to a topic that is gone"),
        ("UPDATE topics SET user_id = 'boris'", "2 messages are in a topic of another user or chat"),
        (
            "UPDATE messages SET topic_id = 1 WHERE type = 'command'",
            "1 messages have a topic and are of a kind without",
        ),
        ("UPDATE topics SET last_rowid = 6", "1 topics do not say what their messages are"),
        ("UPDATE messages SET topic_id = NULL WHERE rowid = 1", "1 topics do not say what their messages are"),
        ("INSERT INTO vec_topics VALUES (7, 'local', 'model-1', x'00')", "1 vectors are of no topic"),
        ("DELETE FROM topics_fts_docsize", "1 topics are not in full text"),
        ("INSERT INTO topics_fts_docsize VALUES (8, x'00')", "1 rows of full text are of no topic"),
        ("INSERT INTO topic_ends VALUES (1, 1, 'local', NULL)", "1 topics are there and on the list"),
    ],
)
def test_topics_that_do_not_fit_their_messages(paths: Paths, statement: str, said: str) -> None:
    async def archived(store: Store) -> None:
        await archive(store, [1, 2], user="local")

    assert "there are none" in one(look(paths), "topics").text
    use(paths, archived)
    assert one(look(paths), "topics").text == "1 topic in order, 1 wait for a vector"
    spoil(paths, "PRAGMA foreign_keys = OFF", statement)
    found = one(look(paths), "topics")
    assert found.level is Level.PROBLEM
    assert said in found.text
    assert found.todo


UNFIT = [
    ("facts", "UPDATE facts SET text = 'another'", "1 facts do not say what their history says"),
    ("facts", "DELETE FROM fact_changes", "1 facts do not say what their history says"),
    ("facts", "DELETE FROM facts", "1 facts are only in their history"),
    ("facts", "DELETE FROM facts_fts_docsize", "1 facts are not in full text"),
    ("facts", "INSERT INTO facts_fts_docsize VALUES (80, x'00')", "1 rows of full text are of no fact"),
    ("facts", "INSERT INTO vec_facts VALUES (80, x'00')", "1 vectors are of no fact"),
    ("people", "UPDATE people SET name = 'Another'", "2 people do not say what their history says"),
    ("people", "UPDATE person_changes SET user_id = 'boris'", "2 people do not say what their history says"),
    ("people", "DELETE FROM people WHERE merged_into IS NULL", "1 people are only in their history; 2 names are of"),
    ("people", "DELETE FROM person_names", "1 people are not found by a name"),
    ("people", "UPDATE person_names SET user_id = 'boris'", "2 names are of nobody"),
    ("people", "UPDATE person_mentions SET person_id = 'nobody'", "1 mentions are of nobody"),
    ("people", "UPDATE person_mentions SET user_id = 'boris'", "1 mentions are by no message of their user"),
]


@pytest.mark.parametrize(("name", "statement", "said"), UNFIT)
def test_facts_and_people_that_do_not_fit_their_history(paths: Paths, name: str, statement: str, said: str) -> None:
    async def kept(store: Store) -> None:
        await store.writer.run(facts.put, fact(f"Тайна {CANARY}"), "new")
        past = await store.writer.run(facts.put, fact("old"), "new")
        await store.writer.run(facts.put, fact("new"), "new", supersedes=past.id)
        for gone in (past.id, (await store.readers.run(facts.of_user, UserId("local")))[0].id):
            await store.writer.run(facts.remove, UserId("local"), gone, "2026-11-22T10:00:00.000Z")
        (message,) = await store.readers.run(messages.by_rowids, [1])
        anna = await add(store, f"Анна {CANARY}", user="local", mention=in_topic(1, message.id))
        anya = await add(store, "Аня", user="local")
        gone = await add(store, "Gone", user="local")
        await people_of(store).merge(UserId("local"), anya.id, anna.id)
        await people_of(store).remove(UserId("local"), gone.id)

    assert [one(look(paths), each).text for each in ("facts", "people")] == ["there are none"] * 2
    use(paths, kept)
    assert one(look(paths), "facts").text == "1 fact, in order"
    assert one(look(paths), "people").text == "2 known, in order"
    spoil(paths, "PRAGMA foreign_keys = OFF", statement)
    found = one(look(paths), name)
    assert found.level is Level.PROBLEM
    assert said in found.text
    assert CANARY not in found.text
    assert found.todo


def test_the_command(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 and a table; JSON for programs; 1 when something is wrong. No content in either."""
    command = ["doctor", "--home", str(paths.data_dir.parent)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "All is well."
    assert "local:main" in printed
    spoil(paths, "DELETE FROM messages_fts_docsize WHERE id = 2", "DELETE FROM vec_messages WHERE rowid = 2")
    assert main([*command, "--json", "--full"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["problems"] == sum(each["level"] == "problem" for each in answer["findings"])
    assert answer["chats"]["local:main"]["uncovered"] == 1
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert "local:main#2" in printed
    assert "-> " in printed
    assert CANARY not in json.dumps(answer, ensure_ascii=False) + printed


def test_every_fault_says_what_to_do(paths: Paths) -> None:
    spoil(paths, "DELETE FROM messages_fts_docsize", "DELETE FROM vec_messages")
    done = look(paths)
    assert all(each.todo for each in done.findings if each.level is not Level.OK)


# -- the database ------------------------------------------------------------------------------------------------------


def test_uncovered_messages_are_named(paths: Paths) -> None:
    """Those in the window are not among them."""
    spoil(paths, "DELETE FROM messages_fts_docsize WHERE id <= 6", "DELETE FROM vec_messages WHERE rowid <= 6")
    done = look(paths)
    assert one(done, "covered").text.startswith(
        "5 messages are neither seen by the model nor found by search: local:main#1"
    )
    assert worst(done) == {"covered": "problem", "full_text": "problem", "vectors": "problem"}
    assert "6 messages have no row" in one(done, "full_text").text
    assert "6 marked as made and not there" in one(done, "vectors").text


@pytest.mark.parametrize(
    ("statement", "name", "level", "text"),
    [
        ("UPDATE messages SET embedded = 0 WHERE rowid = 1", "vectors", "problem", "1 there and not marked"),
        ("DELETE FROM messages WHERE rowid = 1", "vectors", "problem", "1 of no message"),
        ("DELETE FROM messages WHERE rowid = 7", "full_text", "warning", "1 row belong to no message"),
        ("DROP TABLE vec_messages", "vectors", "problem", "their table is gone"),
        ("UPDATE messages SET chat_id = 'local:other', seq = 70 WHERE rowid = 1", "vectors", "problem", "another chat"),
        ("UPDATE messages SET chat_id = 'local:other', seq = 70 WHERE rowid = 1", "full_text", "problem", "another"),
        ("DELETE FROM messages_fts_data", "full_text", "problem", "its structure is damaged"),
        ("UPDATE meta SET value = '99' WHERE key = 'schema_version'", "schema", "problem", "has schema 99"),
        ("UPDATE meta SET value = '0' WHERE key = 'schema_version'", "schema", "warning", "has schema 0"),
    ],
)
def test_faults_of_the_database(paths: Paths, statement: str, name: str, level: str, text: str) -> None:
    spoil(paths, statement)
    found = one(look(paths), name)
    assert (found.level, text in found.text) == (level, True), found
    assert found.todo


def test_a_file_that_is_no_database(paths: Paths) -> None:
    paths.database.write_bytes(b"no database " * 1000)
    found = one(look(paths), "database")
    assert found.level is Level.PROBLEM
    assert "NotADBError" in found.text


def test_a_database_with_damaged_pages(paths: Paths) -> None:
    """Whatever SQLite then says, it becomes findings and no traceback."""
    data = bytearray(paths.database.read_bytes())
    for start in range(8192, len(data), 12_288):
        data[start : start + 2048] = bytes(2048)
    paths.database.write_bytes(data)
    done = look(paths, whole=True)
    assert done.count(Level.PROBLEM)
    assert all(each.todo for each in done.findings if each.level is Level.PROBLEM)


def test_a_lost_database_beside_its_logs(paths: Paths) -> None:
    paths.database.unlink()
    assert "it is made from the logs" in str(one(look(paths), "database").todo)


# -- the logs ----------------------------------------------------------------------------------------------------------


def log_of(paths: Paths) -> Path:
    return next((paths.data_dir / "conversations").glob("*main/*.jsonl"))


def test_malformed_and_torn_lines(paths: Paths) -> None:
    log = log_of(paths)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + b'{"rowid": 1}\n[]\n\xff\xfe\n' + b"".join(lines[1:]))
    found = one(look(paths), "logs")
    assert (found.level, "3 lines cannot be stored" in found.text) == (Level.WARNING, True)
    assert log.name in found.text
    log.write_bytes(b"".join(lines) + b'{"rowid": 9, "id": "to')
    found = one(look(paths), "logs")
    assert (found.level, "the last line is torn" in found.text) == (Level.WARNING, True)


def test_all_lines_are_read_only_if_asked_for(paths: Paths) -> None:
    log = log_of(paths)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"malformed\n" + lines[0] * 200 + b"".join(lines[1:]))
    assert one(look(paths), "logs").level is Level.OK
    assert one(look(paths, whole=True), "logs").level is Level.WARNING


def test_logs_that_are_ahead_of_the_database(paths: Paths) -> None:
    """As after a power cut: the next start puts the rest in."""
    log = log_of(paths)
    last = json.loads(log.read_bytes().splitlines()[-1])
    with log.open("a") as file:
        file.write(json.dumps({**last, "id": "later", "seq": last["seq"] + 1, "rowid": 900}) + "\n")
    found = one(look(paths), "log_tails")
    assert found.level is Level.WARNING
    assert "1 message and 0 turns of the logs are not in the database yet (local:main)" in found.text


def test_a_database_that_is_ahead_of_the_logs(paths: Paths) -> None:
    log = log_of(paths)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-2]))
    found = one(look(paths), "log_tails")
    assert (found.level, "newer messages than the logs of local:main" in found.text) == (Level.PROBLEM, True)


async def with_tasks(store: Store) -> None:
    """A task, and a run of it with a transcript and a result."""
    await store.writer.run(tasks.put, task(message=CANARY), "new")
    begun = (await store.writer.run(run_edits.begin, run_of())).run
    await store.writer.run(run_edits.append_transcript, begun, 1, exchange(begun))
    final = attrs.evolve(begun, status=RunStatus.DONE, delivered=1)
    await store.writer.run(run_edits.save, final, delivery=result(begun, chat="other"))


def test_a_clock_that_went_back_is_no_loss(paths: Paths) -> None:
    """The newest messages stand in the oldest of many logs."""

    async def write(store: Store) -> None:
        for day in (30, 29, 28, 27, 26, 3, 2):
            await store.writer.run(messages.append, [new(f"day {day}", at=NOW - 86_400 * (40 - day))])

    use(paths, write)
    assert one(look(paths), "log_tails").level is Level.OK


def log_in(paths: Paths, folder: str) -> Path:
    return next(paths.data_dir.glob(f"{folder}/*.jsonl"))


@pytest.mark.parametrize("whole", [False, True])
def test_tasks_runs_and_transcripts_are_in_order(paths: Paths, *, whole: bool) -> None:
    """A transcript is no damage, and no chat that the database lacks."""
    use(paths, with_tasks)
    done = look(paths, whole=whole)
    assert (one(done, "logs").level, one(done, "log_tails").level) == (Level.OK, Level.OK)


@pytest.mark.parametrize("folder", ["memory", "runs", "conversations/scheduler_news"])
def test_malformed_lines_of_tasks_and_runs(paths: Paths, folder: str) -> None:
    use(paths, with_tasks)
    log = log_in(paths, folder)
    log.write_text('{"id": 1}\n' + log.read_text())
    found = one(look(paths), "logs")
    assert found.level is Level.WARNING
    assert f"1 line cannot be stored: {folder}/{log.name} (1)" in found.text


def test_tasks_and_runs_that_the_database_lacks(paths: Paths) -> None:
    use(paths, with_tasks)
    for folder, number in (("memory", "entry"), ("runs", "change")):
        log = log_in(paths, folder)
        last = json.loads(log.read_text().splitlines()[-1])
        with log.open("a") as file:
            file.write(json.dumps({**last, number: last[number] + 1}) + "\n")
    found = one(look(paths), "log_tails")
    assert found.level is Level.WARNING
    assert "0 messages, 0 turns, 1 run and 1 memory change of the logs are not in the database yet" in found.text


@pytest.mark.parametrize("folder", ["memory", "runs"])
def test_tasks_and_runs_that_the_logs_lack(paths: Paths, folder: str) -> None:
    use(paths, with_tasks)
    log_in(paths, folder).unlink()
    found = one(look(paths), "log_tails")
    assert (found.level, "newer tasks or runs" in found.text) == (Level.PROBLEM, True)


# -- around the data ---------------------------------------------------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    paths = Paths.resolve(tmp_path / "nowhere", {})
    done = look(paths)
    assert "Klaw has never run here" in one(done, "folders").text
    assert not paths.data_dir.exists()


def test_a_wrong_configuration_names_the_keys(paths: Paths) -> None:
    paths.config_file.write_text('{"autoRag": {"topK": "many", "maxTokens": -1}}')
    texts = [each.text for each in look(paths).findings if each.name == "configuration"]
    assert len(texts) == 2
    assert any("autoRag.topK" in text for text in texts)


def test_models_that_are_missing(paths: Paths) -> None:
    paths.config_file.write_text("{}")
    done = look(paths)
    assert one(done, "embedding_model").todo == "klaw models pull"
    assert one(done, "local_model").level is Level.PROBLEM


def test_a_model_that_is_whole_and_not_the_stored_one(paths: Paths, embedding_model_dir: Path) -> None:
    paths.config_file.write_text(json.dumps({**json.loads(CONFIG), "embedding": {"path": str(embedding_model_dir)}}))
    found = one(look(paths, whole=True), "embedding_model")
    assert (found.level, "the vectors are of model-1" in found.text) == (Level.WARNING, True)


def test_open_folders_and_tokens(paths: Paths) -> None:
    paths.data_dir.chmod(0o755)
    assert one(look(paths), "folders").level is Level.WARNING
    paths.data_dir.chmod(0o700)
    add_token(tokens_file(paths.config_dir), "anna", "2026-01-01T00:00:00Z")
    assert one(look(paths), "tokens").text == "1 token of 1 user"
    tokens_file(paths.config_dir).chmod(0o644)
    assert one(look(paths), "tokens").level is Level.WARNING
    tokens_file(paths.config_dir).write_text("{}")
    assert one(look(paths), "tokens").level is Level.PROBLEM


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_folders_that_cannot_be_written(paths: Paths) -> None:
    paths.database.chmod(0o400)
    assert one(look(paths), "folders").level is Level.PROBLEM


def test_the_clock(paths: Paths) -> None:
    assert one(look(paths, now=NOW - 3600), "clock").level is Level.WARNING
    assert one(look(paths, now=86_400.0), "clock").level is Level.PROBLEM


def test_a_full_disk(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 50 << 20
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free, total=32 << 30))
    assert one(look(paths), "disk").level is Level.PROBLEM
    free = 500 << 20
    assert one(look(paths), "disk").level is Level.WARNING


# -- with a server -----------------------------------------------------------------------------------------------------

STATUS: dict[str, Any] = {
    "version": "1",
    "pid": 7,
    "address": "ws://127.0.0.1:1/ws",
    "degraded": [],
    "llm": {"providers": []},
}


def test_a_server_that_runs(paths: Paths) -> None:
    assert worst(look(paths, server=Server(status=STATUS, health={"state": "ok"}))) == {}
    status = {**STATUS, "degraded": [{"code": "no_llm", "text": "no model"}]}
    found = one(look(paths, server=Server(status=status, health={"state": "failing"})), "server")
    assert found.level is Level.PROBLEM
    found = one(look(paths, server=Server(status=status, health={"state": "degraded"})), "server")
    assert (found.level, "no_llm" in found.text) == (Level.WARNING, True)
    found = one(look(paths, server=Server(status={**STATUS, "version": "2"})), "server")
    assert found.level is Level.WARNING


def test_a_server_whose_socket_does_not_answer(paths: Paths) -> None:
    """The folder is held by a process; the kernel says so."""
    seen: list[Finding] = []

    async def hold(_store: Store) -> None:
        seen.append(one(look(paths, server=Server(error="it is silent")), "server"))

    use(paths, hold)
    assert (seen[0].level, "does not answer: it is silent" in seen[0].text) == (Level.PROBLEM, True)
    assert one(look(paths), "server").level is Level.OK


def test_lists_are_shortened() -> None:
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
    assert listed(["a"]) == "a"
    assert time.time() > NOW  # the fixture's messages are not of the future


def test_backups_are_looked_at_where_there_are_some(paths: Paths) -> None:
    def found() -> list[Finding]:
        return [each for each in look(paths, now=time.time()).findings if each.name == "backups"]

    assert found() == []
    root, made = create(paths, paths.backups_dir, lambda _logs: mark_offline(paths.database), secrets=False)
    assert (found()[0].level, found()[0].text) == (
        Level.OK,
        f"1 backup in {root.parent}, the last one made at {made.time}",
    )
    later = look(paths, now=time.time() + 9 * 86_400)
    assert (one(later, "backups").level, one(later, "backups").todo[:18]) == (Level.WARNING, "klaw backup create")
    (root / "manifest.json").write_text("{}")
    assert (found()[0].level, found()[0].text) == (Level.WARNING, f"broken: {root.name}")
