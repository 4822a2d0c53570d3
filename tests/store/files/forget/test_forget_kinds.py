"""What is forgotten follows from what the kinds say of themselves: a preview and its forgetting take the same, and a
noun that is declared here only is forgotten like any other."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import apsw
import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from klaw.convert import OMIT, Wire
from klaw.domain.forget import MARK
from klaw.domain.message import Role
from klaw.domain.names import UserId
from klaw.domain.notes import MadeFrom, Quotes
from klaw.memory.forget.forget import Preview
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages
from klaw.store.kinds.records import KINDS
from tests.support.forgetting import forgetter, holding
from tests.support.memory.derived import TOOLS, turn_of
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, AT, archive

WORDS = [f"q{letter * 6}q" for letter in "abcdef"]
TURNS = st.lists(
    st.tuples(st.lists(st.sampled_from(TOOLS), max_size=5, unique=True), st.booleans()), min_size=1, max_size=len(WORDS)
)
_STATE = {
    "messages": "SELECT rowid FROM messages WHERE metadata ->> '$.forgotten' IS NULL",
    "facts": "SELECT id FROM facts",
    "people": "SELECT id FROM people",
    "topics": "SELECT id FROM topics",
    "runs": "SELECT id FROM runs WHERE message <> '[forgotten]'",
    "tasks": "SELECT name FROM tasks",
}


def state_of(connection: apsw.Connection) -> dict[str, set[Any]]:
    """What is there."""
    return {name: {row[0] for row in connection.execute(query)} for name, query in _STATE.items()}


def taken_by(preview: Preview) -> dict[str, set[Any]]:
    """What a preview says that goes."""
    reach = preview.reach
    return {
        "messages": set(reach.rowids),
        "facts": set(reach.facts),
        "people": set(reach.people),
        "topics": set(reach.topics),
        "runs": set(reach.runs),
        "tasks": {each.name for each in preview.things if each.kind == "task" and each.goes},
    }


@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(TURNS, st.booleans(), st.data())
def test_a_forgetting_takes_what_its_preview_showed(
    turns: list[tuple[list[str], bool]], with_facts: bool, data: st.DataObject
) -> None:
    chosen = data.draw(st.sampled_from(range(len(turns))))
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_live, Path(folder), turns, chosen, with_facts)


async def _live(root: Path, turns: list[tuple[list[str], bool]], chosen: int, with_facts: bool) -> None:
    async with running_store(root) as store:
        await store.writer.run(messages.append, [new("hello", user="anna", chat="other")])
        said = []
        for word, (tools, archived) in zip(WORDS, turns, strict=False):
            said.append(await turn_of(store, root, word, tools))
            if archived:
                await archive(store, [said[-1].rowid])
        tool = forgetter(store, root)
        wanted = await tool.find(said[chosen].id, ANNA)
        preview = await tool.preview(wanted, with_facts=with_facts)
        before = await store.readers.run(state_of)
        proof = await tool.forget(wanted, with_facts=with_facts)
        after = await store.readers.run(state_of)
        taken = taken_by(preview)
        assert taken_by(proof.before) == taken
        assert {name: before[name] - after[name] for name in before} == {
            name: taken[name] & before[name] for name in before
        }
        (line,) = [
            json.loads(line)
            for path in (root / "memory").glob("*.jsonl")
            for line in path.read_text("utf-8").splitlines()
            if '"what":"forget"' in line and '"op":"put"' in line
        ]
        assert line["value"]["facts"] == sorted(taken["facts"])
        assert line["value"]["topics"] == sorted(taken["topics"])
        assert line["value"].get("ran", []) == sorted(taken["runs"])


# -- a noun that only this test knows ---------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Wish:
    """Something that somebody would like to have."""

    id: str
    user: Annotated[UserId, Wire("user_id")]
    text: Annotated[str, Quotes()]
    mood: Annotated[str | None, OMIT, Quotes()] = None
    message: Annotated[str | None, Wire("message_id"), MadeFrom("message")] = None


_PUT = rows.insert("wishes", Wish, "entry").replace("INSERT", "INSERT OR REPLACE", 1)
_TABLES = """
CREATE TABLE wishes (entry INTEGER, id TEXT, user_id TEXT, text TEXT, mood TEXT, message_id TEXT, PRIMARY KEY (id));
CREATE TABLE wish_changes (entry INTEGER PRIMARY KEY, user_id TEXT, wish_id TEXT, at TEXT, value TEXT);
"""


def _apply(connection: apsw.Connection, change: Change[Wish]) -> None:
    WISH.note(connection, change)
    assert change.value is not None
    connection.execute(_PUT, {**rows.values(change.value), "entry": change.entry})


WISH: Kind[Wish] = Kind(
    what="wish",
    plural="wishes",
    cls=Wish,
    table="wishes",
    past="wish_changes",
    on_purpose=True,
    ops={"put": Wish, "remove": None},
    counted="facts",
    beside=("user_id", "id"),
    apply=_apply,
)


@pytest.fixture
def wishes() -> Iterator[None]:
    KINDS.append(WISH)
    yield
    KINDS.remove(WISH)


def _keep(tx: Transaction, wish: Wish) -> None:
    tx.journal(WISH.put(ANNA, wish.id, wish, AT))


_LEFT = "SELECT id, text, mood FROM wishes UNION ALL SELECT wish_id, value, '' FROM wish_changes WHERE value <> ''"


@pytest.mark.usefixtures("wishes")
@pytest.mark.parametrize("how", ["made from it", "says it", "says it by its mood", "something else"])
async def test_a_noun_is_forgotten_by_its_declaration(tmp_path: Path, how: str) -> None:
    secret, mine = "I long for the Kanarienvogel of aunt Olga", WISH.cls
    async with running_store(tmp_path) as store:
        await store.writer.run(lambda tx: tx.connection.execute(_TABLES).fetchall())
        (said,) = await store.writer.run(messages.append, [new(secret, user="anna")])
        wish = {
            "made from it": mine(id="w1", user=ANNA, text="A bird", mood="yearning", message=said.message.id),
            "says it": mine(id="w1", user=ANNA, text=secret),
            "says it by its mood": mine(id="w1", user=ANNA, text="A bird", mood=f"sad: {secret}"),
            "something else": mine(id="w1", user=ANNA, text="A garden"),
        }[how]
        await store.writer.run(_keep, wish)
        await store.writer.run(messages.append, [new("Yearning? I see: yearning", user="anna", role=Role.ASSISTANT)])
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("main#1", ANNA)
        preview = await tool.preview(wanted)
        goes = how != "something else"
        assert preview.reach.kept["wish"] == (("w1",) if goes else ())
        assert [(each.kind, each.goes) for each in preview.things if each.name == "w1"] == [("wish", False)] * goes
        await tool.forget(wanted, with_facts=True)
        left = await store.readers.run(lambda connection: connection.execute(_LEFT).fetchall())
        assert [row[0] for row in left] == ([] if goes else ["w1", "w1"])
        assert holding(tmp_path, "Kanarienvogel", "A bird", '"yearning"') == {}
    written = [line for path in (tmp_path / "memory").glob("*.jsonl") for line in path.read_text().splitlines()]
    (line,) = [json.loads(line) for line in written if '"what":"wish"' in line]
    assert ("value" in line) != goes


@pytest.mark.usefixtures("wishes")
async def test_what_is_kept_and_quotes_is_reported(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(lambda tx: tx.connection.execute(_TABLES).fetchall())
        await store.writer.run(messages.append, [new("I long for the bird of aunt Olga", user="anna")])
        wish = Wish(id="w1", user=ANNA, text="A bird", mood="I long for the bird of aunt Olga")
        await store.writer.run(_keep, wish)
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find("main#1", ANNA))
        assert proof.after.kept["wishes"] == 1
        assert (await store.readers.run(lambda c: c.execute("SELECT mood FROM wishes").get)) == wish.mood


async def test_what_was_not_made_on_purpose_is_redacted_with_its_history(tmp_path: Path) -> None:
    made = attrs.evolve(WISH, on_purpose=False)
    KINDS.append(made)
    try:
        async with running_store(tmp_path) as store:
            await store.writer.run(lambda tx: tx.connection.execute(_TABLES).fetchall())
            await store.writer.run(messages.append, [new("I long for the Kanarienvogel of Olga", user="anna")])
            for mood in ("I long for the Kanarienvogel of Olga", "sad"):
                wish = Wish(id="w1", user=ANNA, text="She said: I long for the Kanarienvogel of Olga", mood=mood)
                await store.writer.run(lambda tx, wish=wish: tx.journal(made.put(ANNA, "w1", wish, AT)))
            tool = forgetter(store, tmp_path)
            await tool.forget(await tool.find("main#1", ANNA))
            left = await store.readers.run(lambda connection: connection.execute(_LEFT).fetchall())
            assert left[0] == ("w1", f"She said: {MARK}", "sad")
            assert len(left) == 3
            assert holding(tmp_path, "Kanarienvogel") == {}
    finally:
        KINDS.remove(made)
