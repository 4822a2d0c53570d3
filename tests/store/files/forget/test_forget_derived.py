"""Whatever a conversation with tools was: of a forgotten message nothing is left in any row, log, file or index, all
that was not made of it is there, and a rebuild is the same."""

import tempfile
from pathlib import Path

import apsw
import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from klaw.domain.names import UserId, chat_id
from klaw.store.kinds import core_memory, facts, messages, tasks
from klaw.store.kinds.core_memory import read_core
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.memory.derived import TOOLS, turn_of
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, run, unit
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, archive, flaws_of

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""An example takes a second."""
MAIN = chat_id(ANNA, "main")
WORDS = [f"q{letter * 6}q" for letter in "abcdefgh"]
RUSSIAN = [f"щ{letter * 6}щ" for letter in "абвгдежз"]

_ALL = """
SELECT 'message', rowid, content || metadata FROM messages UNION ALL SELECT 'fact', id, text FROM facts
UNION ALL SELECT 'task', name, message FROM tasks UNION ALL SELECT 'run', id, message || result || details FROM runs
UNION ALL SELECT 'change', entry, value FROM fact_changes WHERE value IS NOT NULL
UNION ALL SELECT 'core', e.key, e.value FROM core_memory AS c, json_each(c.document, '$.people') AS e
ORDER BY 1, 2
"""


def rows_of(connection: apsw.Connection, words: list[str]) -> list[tuple[object, ...]]:
    """Every row that has one of the words."""
    return [tuple(row) for row in connection.execute(_ALL) if any(word in str(row[2]) for word in words)]


TURNS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(TOOLS), max_size=6, unique=True),
        st.sampled_from(["", "", "failed", "killed"]),
        st.booleans(),
    ),
    min_size=2,
    max_size=len(WORDS),
)


@settings(max_examples=15, deadline=None, phases=NO_SHRINKING, suppress_health_check=list(HealthCheck))
@given(TURNS, st.booleans(), st.booleans(), st.data())
def test_nothing_derived_is_left_and_all_else_stays(
    turns: list[tuple[list[str], str, bool]], russian: bool, with_vectors: bool, data: st.DataObject
) -> None:
    words = (RUSSIAN if russian else WORDS)[: len(turns)]
    gone = data.draw(st.lists(st.sampled_from(words), min_size=1, max_size=2, unique=True))
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_live, Path(folder), turns, words, gone, with_vectors)
        assert flaws_of(Path(folder) / "klaw.db") == {}
        before = digests_of(Path(folder) / "klaw.db")
        assert differing(run(Path(folder))) == set()
        assert digests_of(Path(folder) / "klaw.db") == before
        check_gone(Path(folder), gone)


def check_gone(root: Path, gone: list[str]) -> None:
    """``notes/all.md`` has the words of all: it stays, and is told."""
    assert set(holding(root, *gone)) <= {"workspace/users/anna/notes/all.md"}


async def _live(
    root: Path, turns: list[tuple[list[str], str, bool]], words: list[str], gone: list[str], with_vectors: bool
) -> None:
    notes = root / "workspace" / "users" / "anna" / "notes"
    notes.mkdir(parents=True)
    (notes / "all.md").write_text("\n".join(words))
    said = {}
    async with running_store(root) as store:
        await store.writer.run(messages.append, [new("hello", user="anna", chat="other")])
        if with_vectors:
            await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        for word, (tools, cut, archived) in zip(words, turns, strict=True):
            said[word] = await turn_of(store, root, word, tools, cut=cut)
            if with_vectors:
                await store.writer.run(stored_vectors.store, MODEL, [(said[word].rowid, unit(said[word].rowid))])
            if archived:
                await archive(store, [said[word].rowid])
        left = [word for word in words if word not in gone]
        before = await store.readers.run(rows_of, left)
        core = await store.readers.run(read_core, ANNA)
        tool = forgetter(store, root)
        for word in gone:
            proof = await tool.forget(await tool.find(said[word].id, ANNA), with_facts=True, everywhere=True)
            assert not any(proof.after.rows.values())
        assert await store.readers.run(rows_of, left) == before
        kept = (await store.readers.run(read_core, ANNA)).get("people", {})
        assert kept == {
            key: value
            for key, value in core.get("people", {}).items()
            if key not in {f"k{said[word].rowid}" for word in gone}
        }
        files = {path.name for path in (root / "workspace").rglob("*") if path.is_file()}
        assert files >= {
            f"{said[word].rowid}.md" for word, (tools, _, _) in zip(words, turns, strict=True) if "written" in tools
        } - {f"{said[word].rowid}.md" for word in gone}


@pytest.mark.parametrize("word", ["qaaaaaaq", "щаааааащ"])
async def test_without_facts_what_was_kept_on_purpose_stays(tmp_path: Path, word: str) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello", user="anna", chat="other")])
        secret = await turn_of(store, tmp_path, word, TOOLS)
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find(secret.id, ANNA), everywhere=True)
        kept = {each.kind for each in proof.before.things if not each.goes}
        assert kept == {"fact", "task", "core memory", "file"}
        assert word in str(await store.readers.run(read_core, ANNA))
        assert await store.readers.run(facts.count, ANNA) == 3  # the turn's, and those of two runs
        assert [each.message for each in await store.readers.run(tasks.of_user, ANNA)] == [f"Remind of {word}"]
        assert (tmp_path / "workspace/users/anna/notes").is_dir()
        assert not any("tool-output" in name for name in holding(tmp_path, word))
        where = {name.split("/")[0] for name in holding(tmp_path, word)}
        assert where <= {"klaw.db", "memory", "runs", "workspace", "users", "conversations"}, where
        again = await tool.forget(await tool.find(f"fact:{proof.before.reach.kept['fact'][0]}", ANNA), everywhere=True)
        assert again.entry > proof.entry


async def test_what_somebody_changed_since_is_theirs(tmp_path: Path) -> None:
    """A task, a value of core memory and a file that are not what the call made any more stay, as they are."""
    word = "qaaaaaaq"
    async with running_store(tmp_path) as store:
        secret = await turn_of(store, tmp_path, word, ["task", "core", "written"])
        (made,) = await store.readers.run(tasks.of_user, ANNA)
        await store.writer.run(tasks.put, attrs.evolve(made, message="Water the flowers"), "existing")
        await store.writer.run(core_memory.change, ANNA, "people", f"k{secret.rowid}", "is my aunt", made.updated_at)
        file = tmp_path / "workspace/users/anna/notes" / f"{secret.rowid}.md"
        file.write_text("* my own words\n")
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find(secret.id, ANNA), with_facts=True, everywhere=True)
        assert [each.message for each in await store.readers.run(tasks.of_user, ANNA)] == ["Water the flowers"]
        assert await store.readers.run(read_core, ANNA) == {"people": {f"k{secret.rowid}": "is my aunt"}}
        assert file.read_text() == "* my own words\n"
        assert [(each.kind, each.goes) for each in proof.before.things if each.kind == "file"] == [("file", False)]
        assert holding(tmp_path, f"says {word}", f"Remind of {word}", f"* {word}") == {}
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before


async def test_a_fact_of_the_same_topic_that_another_message_said_stays(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        one, two = (
            each.message
            for each in await store.writer.run(
                messages.append, [new("I sing on Mondays", user="anna"), new("I paint", user="anna")]
            )
        )
        (topic,) = await archive(store, [one.rowid, two.rowid])
        for said, text in ((one, "She sings"), (two, "She paints")):
            await store.writer.run(
                facts.put, fact(text, user="anna", message=said.id, turn=None, topic=str(topic.id)), "new"
            )
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find(one.id, ANNA), with_facts=True)
        assert [each.text for each in await store.readers.run(facts.of_user, ANNA)] == ["She paints"]


async def test_what_another_user_did_is_out_of_reach(tmp_path: Path) -> None:
    """The same ids of calls, names of tasks and texts: links never lead to another user."""
    word = "qaaaaaaq"
    async with running_store(tmp_path) as store:
        for user in ("anna", "boris"):
            await store.writer.run(messages.append, [new("hello", user=user, chat="other")])
        mine = await turn_of(store, tmp_path, word, TOOLS)
        await _his(store, tmp_path, word)
        before = await store.readers.run(_of_boris)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find(mine.id, ANNA), with_facts=True)
        assert await store.readers.run(_of_boris) == before
        assert (tmp_path / "workspace/users/boris/notes").is_dir()


async def _his(store: Store, root: Path, word: str) -> None:
    await turn_of(store, root, word, TOOLS, user="boris")


def _of_boris(connection: apsw.Connection) -> list[tuple[object, ...]]:
    user = UserId("boris")
    tables = ("messages", "facts", "tasks", "runs", "fact_changes", "core_memory", "turns")
    return [
        tuple(row) for each in tables for row in connection.execute(f"SELECT * FROM {each} WHERE user_id = ?", (user,))
    ]
