"""A home that commit 5dcae64 wrote, with every kind of journal line, opens and gives the same rows; lines keep their
form to the byte."""

from pathlib import Path

from klaw.store import changes
from klaw.store.engine import meta
from klaw.store.kinds import core_memory, messages, records, runs, tasks, turns
from tests.support.forgetting import forgetter
from tests.support.old_home import lines_of, old_data, old_digests
from tests.support.reindexing import differing, digests_of, run
from tests.support.runs.tasks import task
from tests.support.stores import running_store
from tests.support.topics import ANNA, AT

KINDS = {"task", "fact", "core", "summary", "topic", "person", "mention", "forget", "day", "spent"}
NOT_IN_LOGS = {"vectors"}
"""Tables that are made by the model."""
SINCE = {"changes of tasks", "chats", "knowledge bases", "sources of knowledge bases", "traits"}
SINCE |= {"uses of documents", "user settings", "branches", "replaced messages", "replaced turns", "hidden things"}
SINCE |= {"browsers that are notified", "linked conversations", "read positions"}
"""Tables that this home does not have yet."""
WIDER = {"sessions", "tasks"}
"""Tables with a column that this home does not have yet."""


def test_every_kind_of_line_is_in_it() -> None:
    assert {record["what"] for _, record in lines_of("memory")} == KINDS
    removed = {record["what"] for _, record in lines_of("memory") if record["op"] == "remove"}
    assert removed == {"task", "fact", "topic", "person", "forget"}
    topics = {record["op"] for _, record in lines_of("memory") if record["what"] == "topic"}
    assert topics == {"put", "merge", "mark", "remove", "rebuild", "undo"}
    assert {record["type"] for _, record in lines_of("conversations")} == {
        "text",
        "tool_call",
        "tool_result",
        "session_break",
        "command",
        "scheduled",
    }


async def test_with_its_database(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data")
    async with running_store(data) as store:
        assert store.opened.reconciled.changes() == 0
        assert store.opened.reconciled.malformed == 0
        for task in await store.readers.run(tasks.everybodys, enabled_only=False):
            *_, last = await store.readers.run(tasks.history, task.user, task.name)
            assert last.value == task
    digests = digests_of(data / "klaw.db")
    assert {name: digests[name] for name in _without(old_digests(), WIDER)} == _without(old_digests(), WIDER)
    assert set(digests) - set(old_digests()) == SINCE
    assert differing(run(data)) == set()
    assert _without(digests_of(data / "klaw.db"), NOT_IN_LOGS) == _without(digests, NOT_IN_LOGS)


async def test_the_history_of_tasks_is_filled_whatever_else_lines_say(tmp_path: Path) -> None:
    """Core memory is kept as JSON, so its line may look like one of a task."""
    async with running_store(tmp_path) as store:
        await store.writer.run(tasks.put, task("kept", user=ANNA), "new")
        for value in ("task", "forget"):
            await store.writer.run(core_memory.change, ANNA, value, "what", value, AT)
        await store.writer.run(lambda tx: meta.put(tx.connection, meta.NO_TASK_HISTORY, ""))
    digests = digests_of(tmp_path / "klaw.db")
    async with running_store(tmp_path) as store:
        assert await store.readers.run(meta.get, meta.NO_TASK_HISTORY) is None
    assert digests_of(tmp_path / "klaw.db") == digests


async def test_from_the_logs_alone(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data", database=False)
    async with running_store(data) as store:
        tally = store.opened.reconciled
        assert (tally.malformed, tally.conflicts) == (0, 0)
    digests = _without(digests_of(data / "klaw.db"), NOT_IN_LOGS | SINCE | WIDER)
    assert digests == _without(old_digests(), NOT_IN_LOGS | WIDER)
    assert not list(data.rglob("*set_aside*"))


async def test_something_is_forgotten_and_a_reindex_gives_the_same(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data")
    async with running_store(data) as store:
        tool = forgetter(store, data)
        for wanted in ("topics#3", "fact:fact3", "person:Мария"):
            proof = await tool.forget(await tool.find(wanted, ANNA))
            assert proof.held == ()
    digests = digests_of(data / "klaw.db")
    assert differing(run(data)) == set()
    assert _without(digests_of(data / "klaw.db"), NOT_IN_LOGS) == _without(digests, NOT_IN_LOGS)


def test_lines_that_are_read_and_written_again_are_the_same_bytes() -> None:
    for line, record in lines_of("memory"):
        until = record.pop("until", None)
        written = changes.line(records.read(record))
        assert line == (written if until is None else f'{written[:-1]},"until":{until}}}')
    for line, record in lines_of("turns"):
        assert turns.line(turns.parse(record)) == line
    for line, record in lines_of("runs"):
        assert runs.run_line(runs.parse_run(record)) == line
    spoken = 0
    for line, record in lines_of("conversations"):
        if record["rowid"] is None:
            spoken += 1
            assert runs.parse_transcript(record).content == record["content"]
        else:
            assert messages.message_line(messages.parse_message(record)) == line
    assert spoken == 28


def _without(digests: dict[str, str], tables: set[str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if name not in tables}
