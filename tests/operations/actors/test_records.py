"""A noun that is declared here only: its class with notes, its kind, its operations. Nothing of klaw/ names it."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import attrs
import pytest

from klaw.app.app import App, running
from klaw.cli.main import main
from klaw.cli.output import written
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.convert import Bounds, Wire
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.notes import Column, Edit, MadeFrom, Quotes
from klaw.operations import perform as table
from klaw.operations.operation import Noun, OperationError
from klaw.operations.records import Records
from klaw.store.changes import Kind
from klaw.store.kinds import inventory, messages, records
from klaw.store.kinds.records import KINDS
from tests.support.admin import SETTINGS, Commands, parts_of
from tests.support.asking import ask
from tests.support.stores import new
from tests.support.topics import AT


@attrs.frozen(kw_only=True)
class Plant:
    id: Annotated[str, Column("plant")]
    user: Annotated[UserId, Wire("user_id")]
    name: Annotated[str, Bounds(1, 40), Quotes(), Edit("what it is called"), Column(wide=True)]
    height: Annotated[int, Bounds(0, 1000), Edit("centimetres"), Column(right=True)] = 0
    light: Annotated[str | None, Edit("where it stands"), Column()] = None
    message: Annotated[str | None, Wire("message_id"), MadeFrom("message")] = None
    created_at: str
    updated_at: Annotated[str, Column("changed", alone=True)]


KIND: Kind[Plant] = Kind(
    what="plant",
    plural="plants",
    cls=Plant,
    table="plants",
    past="plant_changes",
    on_purpose=True,
    ops={"put": Plant, "remove": None},
    beside=("user_id", "id"),
    counted="facts",
)
NOUN = Noun("plants", "keep plants", invalid="bad_plant")
PLANTS = Records(NOUN, Plant, "plant", "plants", kind=lambda: KIND)
PLANTS.declare("list", offline=True)
PLANTS.declare("show", "add", "edit", "delete", "history", "undo")

TABLES = """
CREATE TABLE plants (
    rowid INTEGER PRIMARY KEY, entry INTEGER NOT NULL, id TEXT NOT NULL, user_id TEXT NOT NULL, name TEXT NOT NULL,
    height INTEGER NOT NULL, light TEXT, message_id TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE plant_changes (
    entry INTEGER PRIMARY KEY, user_id TEXT NOT NULL, plant_id TEXT NOT NULL, at TEXT NOT NULL, value TEXT);
"""


def make_tables(tx: Any) -> None:
    tx.connection.execute(TABLES)


@pytest.fixture
async def app(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    module = ModuleType("klaw.operations.plants")
    module.__dict__["NOUN"] = NOUN
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = table.modules()
    caches = (table.nouns, table.operations)
    monkeypatch.setattr(table, "modules", lambda: (*before, "plants"))
    KINDS.append(KIND)
    for cache in caches:
        cache.cache_clear()
    async with running(parse_config(SETTINGS, {})[0], Paths.resolve(home, {})) as app:
        await app.core.writer.run(make_tables)
        yield app
    KINDS.remove(KIND)
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def commands(app: App) -> Commands:
    return Commands(parts_of(app))


async def test_a_noun_has_its_operations_by_its_declaration(commands: Commands) -> None:
    oak = (await ask(commands, "plant_add", fields={"name": "Дуб", "height": 300}))["plant"]
    assert (oak["name"], oak["height"], oak["light"]) == ("Дуб", 300, None)
    fern = (await ask(commands, "plant_add", fields={"name": "Fern"}, user="anna"))["plant"]
    listed = await ask(commands, "plant_list")
    assert (listed["count"], listed["next"], [each["id"] for each in listed["plants"]]) == (1, None, [oak["id"]])
    changed = await ask(commands, "plant_edit", plant=oak["id"][:12], fields={"light": "by the window"})
    assert changed["plant"] == {**oak, "light": "by the window", "updated_at": changed["plant"]["updated_at"]}
    assert (await ask(commands, "plant_show", plant=oak["id"]))["plant"] == changed["plant"]
    emptied = await ask(commands, "plant_edit", plant=oak["id"], fields={"light": ""})
    assert emptied["plant"]["light"] is None, "an empty text empties an optional field"
    assert (await ask(commands, "plant_undo", plant=oak["id"]))["plant"]["light"] == "by the window"
    past = await ask(commands, "plant_history", plant=oak["id"])
    lights = [each["plant"]["light"] for each in past["changes"]]
    assert lights == [None, "by the window", None, "by the window"]
    assert (await ask(commands, "plant_undo", plant=oak["id"]))["plant"]["light"] is None
    assert (await ask(commands, "plant_delete", plant=oak["id"]))["removed"]["name"] == "Дуб"
    assert (await ask(commands, "plant_list"))["plants"] == []
    assert (await ask(commands, "plant_undo", plant=oak["id"]))["plant"]["name"] == "Дуб"
    for name, given in (("plant_show", {}), ("plant_edit", {"fields": {"height": 1}}), ("plant_history", {})):
        with pytest.raises(OperationError) as caught:
            await ask(commands, name, plant=fern["id"], **given)
        assert caught.value.code == "unknown_plant", "it is another user's"
    with pytest.raises(OperationError, match=r"height: must be 0 to 1000") as caught:
        await ask(commands, "plant_edit", plant=oak["id"], fields={"height": 1001})
    assert caught.value.code == "bad_plant"


async def test_a_beginning_of_an_id_that_several_have_is_ambiguous(commands: Commands) -> None:
    ids = [(await ask(commands, "plant_add", fields={"name": name}))["plant"]["id"] for name in ("Oak", "Elm")]
    with pytest.raises(OperationError, match=f"several ids begin so: {min(ids)}, {max(ids)}") as caught:
        await ask(commands, "plant_show", plant=ids[0][:4])
    assert caught.value.code == "ambiguous_id"


async def test_what_a_terminal_shows_follows_the_class(commands: Commands) -> None:
    plant = (await ask(commands, "plant_add", fields={"name": "Oak", "height": 3}))["plant"]
    shown = table.operations()
    listed = await ask(commands, "plant_list")
    head, row = written(shown["plant_list"].show(listed))
    assert (head.split(), row.split()) == (["plant", "height", "name"], [plant["id"], "3", "Oak"])
    await ask(commands, "plant_edit", plant=plant["id"], fields={"light": "shade"})
    one = written(shown["plant_show"].show(await ask(commands, "plant_show", plant=plant["id"])))
    assert [line.split()[0] for line in one] == ["plant", "name", "height", "light", "changed"]
    past = written(shown["plant_history"].show(await ask(commands, "plant_history", plant=plant["id"])))
    assert past[0].split() == ["entry", "at", "light", "name"], "only what was not always the same"
    gone = written(shown["plant_delete"].show(await ask(commands, "plant_delete", plant=plant["id"])))
    assert gone == [f"removed {plant['id']}: Oak", f"to undo this: klaw plants undo {plant['id']}"]


async def test_it_is_exported(commands: Commands, app: App, home: Path) -> None:
    import trio

    await ask(commands, "plant_add", fields={"name": "Oak", "height": 3})
    command = ["export", "--to", str(home / "out"), "--home", str(home)]
    assert await trio.to_thread.run_sync(main, command) == 0
    assert (home / "out" / "plants.md").read_text() == "# Plants\n\n- Oak *(3)*\n"


async def test_it_is_counted_and_checked(commands: Commands, app: App) -> None:
    plant = (await ask(commands, "plant_add", fields={"name": "Oak"}))["plant"]
    assert (await app.readers.run(inventory.counts))["plants"] == 1
    assert KIND in inventory.checked()
    assert await app.readers.run(inventory.check, KIND) == inventory.Soundness(count=1, faults={})

    def damage(tx: Any) -> None:
        tx.connection.execute("UPDATE plants SET name = 'Elm' WHERE id = ?", (plant["id"],))

    await app.core.writer.run(damage)
    found = await app.readers.run(inventory.check, KIND)
    assert [*found.faults.values()] == [1]


async def test_it_is_forgotten_with_the_message_that_it_was_made_from(commands: Commands, app: App) -> None:
    (said,) = await app.core.writer.run(messages.append, [new("Buy a Kanarienbaum for the garden")])
    plant = Plant(
        id="0190abcd", user=LOCAL_USER, name="Oak", message=said.message.id, created_at=AT, updated_at=AT
    )  # its name says nothing of the message
    await app.core.writer.run(records.put, KIND, plant, AT)
    await ask(commands, "plant_edit", plant=plant.id, fields={"name": "Old oak"})
    await ask(commands, "forget", what="main#1", with_facts=True, dry_run=False)
    assert (await ask(commands, "plant_list"))["plants"] == []
    files = [path for path in app.core.paths.data_dir.rglob("*") if path.is_file()]
    assert [path.name for path in files if b"ld oak" in path.read_bytes() or b"Kanarienbaum" in path.read_bytes()] == []
