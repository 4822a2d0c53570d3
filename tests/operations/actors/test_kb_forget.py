"""A base or a source that is deleted is in no log, index, receipt or file any more, whenever a kill comes; and its
proof says where it was cited."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.app.app import App, running
from klaw.config.load import parse
from klaw.config.paths import Paths
from klaw.domain.knowledge import BaseId
from klaw.domain.message import Role
from klaw.knowledge import removal
from klaw.operations.operation import OperationError
from klaw.store.kinds import messages
from klaw.store.kinds.knowledge.removal import look
from tests.support.admin import ANNA, BORIS, SETTINGS
from tests.support.forgetting import holding, lose_database
from tests.support.kb import Doors, fill
from tests.support.stores import new
from tests.support.turns import record
from tests.support.waiting import HANG_S

SECRET = "Секретный рецепт настойки барбариса на перегородках"
NAMES = ("Тайная библиотека деда", "настойки-и-наливки.pdf", "О том, что никому не надо знать")


@pytest.fixture
async def app(app: App) -> App:
    """With nobody who reads what is added."""
    await app.knowledge.stop()
    return app


async def answer(app: App, user: str, base: str, source: str, document: str, *, cited: bool = True) -> int:
    """An answer that was given a passage, as the dialogue stores it."""
    run = app.core.writer.run
    (asked,) = await run(messages.append, [new("Как её делать?", user=user, chat="main")])
    used = {"number": 1, "base": base, "source": source, "document": document, "name": "x", "cited": cited}
    told = {"query": "q", "bases": [base], "passages": [{**used, "text": SECRET}]}
    turn = attrs.evolve(record(asked.message), receipt={"version": 2, "context_used": told})
    said = new(
        "Долго [1].", user=user, chat="main", role=Role.ASSISTANT, turn=turn.id, context_used={"passages": [used]}
    )
    stored = await run(messages.append, [said], turn)
    seq = int(stored[0].message.seq)
    row = (document, base, stored[0].message.chat, seq, cited)

    def note(tx: Any) -> None:
        tx.connection.execute(
            "INSERT OR REPLACE INTO kb_used (document_id, base_id, chat_id, seq, cited) VALUES (?, ?, ?, ?, ?)", row
        )

    columns = await app.core.readers.run(lambda c: [r[1] for r in c.execute("PRAGMA table_info(kb_used)")])
    if "turn_id" not in columns:
        await run(note)
    return seq


async def library(app: App) -> tuple[str, dict[str, Any], str]:
    """A base with a file of Anna's that was cited in answers of hers and of Boris's."""
    anna = Doors(app, ANNA)
    base = await anna.create(NAMES[0], description=NAMES[2])
    await anna("kb_share", base=base, member="boris")
    source = (await anna.add_file(base, NAMES[1], SECRET.encode()))["source"]
    made = await fill(app, source, NAMES[1], *[f"{SECRET}, часть {at}" for at in range(60)])
    for user in (ANNA, ANNA, BORIS):
        await answer(app, user, base, source["id"], made.id)
    return base, source, made.id


async def receipts(app: App) -> list[str]:
    found = await app.core.readers.run(lambda c: [json.loads(r) for (r,) in c.execute("SELECT receipt FROM turns")])
    return [each.get("text", "") for one in found for each in one["context_used"]["passages"]]


async def test_a_deleted_base_is_nowhere_any_more(app: App) -> None:
    base, source, _ = await library(app)
    stays = await Doors(app, ANNA).create("Остаётся")
    operator = Doors(app, "")
    data = app.core.paths.data_dir
    would = await operator("kb_delete", base=base, user="anna")
    assert (would["removed"], would["documents"], would["passages"], would["cited_by_others"]) == (False, 1, 60, 1)
    assert would["cited"] == [{"chat": "main", "seq": seq, "cited": True} for seq in (4, 2)]
    assert {each.removesuffix("-wal") for each in holding(data, SECRET)} > {"klaw.db", f"knowledge/{source['id']}"}
    done = await operator("kb_delete", base=base, user="anna", dry_run=False)
    assert (done["removed"], done["still_held"], done["looked_for"] > 5, done["lines"] > 5) == (True, [], True, True)
    assert holding(data, SECRET) == {}
    assert holding(data, *NAMES) == {}
    assert await receipts(app) == ["", "", ""]
    assert (await Doors(app, ANNA)("kb_show", base=stays))["base"]["name"] == "Остаётся"
    assert len(list((data / "memory").glob("*.jsonl"))) == 1


async def test_an_answer_between_looking_and_removing_keeps_no_passages(app: App) -> None:
    base, source, document = await library(app)
    going = await app.core.readers.run(lambda c: look(c, ANNA, base=BaseId(base)))
    await answer(app, BORIS, base, source["id"], document)
    (of_anna, of_boris) = await app.core.writer.run(removal.take_out, ANNA, going, "2026-11-20T10:00:00.000Z")
    assert (len(of_anna.entry.used), len(of_boris.entry.used)) == (2, 2)


async def test_a_removed_source_leaves_the_others(app: App) -> None:
    base, source, _ = await library(app)
    anna = Doors(app, ANNA)
    other = (await anna.add_file(base, "другая-книга-о-вине.txt", b"wine"))["source"]
    kept = await fill(app, other, "другая-книга-о-вине.txt", "Вино пьют зимой")
    await answer(app, ANNA, base, other["id"], kept.id, cited=False)
    done = await anna("kb_remove", source=source["id"], dry_run=False)
    assert ("still_held" in done, [each["seq"] for each in done["cited"]]) == (True, [4, 2])
    assert sorted(await receipts(app)) == ["", "", "", SECRET]
    shown = await anna("kb_show", base=base)
    assert [each["name"] for each in shown["sources"]] == ["другая-книга-о-вине.txt"]
    assert shown["base"]["name"] == NAMES[0]
    memory = next((app.core.paths.data_dir / "memory").glob("*.jsonl")).read_text("utf-8")
    assert (NAMES[0] in memory, NAMES[1] in memory, "другая-книга" in memory) == (True, False, True)


async def test_a_forgotten_answer_keeps_no_passages(app: App) -> None:
    await library(app)
    done = await Doors(app, "")("forget", what="main#2", user="anna", dry_run=False)
    assert done["forgotten"]
    assert sorted(await receipts(app)) == ["", SECRET, SECRET]
    turns = "".join(path.read_text("utf-8") for path in (app.core.paths.data_dir / "turns").rglob("*.jsonl"))
    assert turns.count(SECRET) == 2


async def test_what_a_kill_interrupts_the_next_start_finishes(home: Path) -> None:
    config, _ = parse(SETTINGS, {})
    paths = Paths.resolve(home, {})
    with trio.fail_after(HANG_S):
        async with running(config, paths) as app:
            base, _, _ = await library(app)
            going = await app.core.readers.run(lambda c: look(c, ANNA, base=BaseId(base)))
            assert await app.core.writer.run(removal.take_out, ANNA, going, "2026-11-20T10:00:00.000Z")
            assert await receipts(app) == [SECRET] * 3  # and there it ends
        async with running(config, paths) as app:
            assert await receipts(app) == [""] * 3
            turns = "".join(path.read_text("utf-8") for path in (paths.data_dir / "turns").rglob("*.jsonl"))
            assert SECRET not in turns
            memory = next((paths.data_dir / "memory").glob("*.jsonl")).read_text("utf-8")
            assert not [each for each in NAMES if each in memory]
            assert (await Doors(app, ANNA)("kb_list"))["bases"] == []
        lose_database(paths.data_dir)
        async with running(config, paths) as app:
            assert (await Doors(app, ANNA)("kb_list"))["bases"] == []
            assert await receipts(app) == [""] * 3


async def test_only_the_owner_deletes_and_nobody_during_a_reindex(app: App) -> None:
    base, source, _ = await library(app)
    boris = Doors(app, BORIS)
    assert await boris.refused("kb_delete", base=base, dry_run=False) == "not_allowed"
    assert await boris.refused("kb_remove", source=source["id"], dry_run=False) == "not_allowed"
    app.memory.forgetter.reindexing = lambda: True
    with pytest.raises(OperationError, match="reindex"):
        await Doors(app, ANNA)("kb_delete", base=base, dry_run=False)
    assert len((await boris("kb_list"))["bases"]) == 1
