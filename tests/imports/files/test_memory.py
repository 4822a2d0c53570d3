"""Facts and people of another Klaw: what is stored, a second import, what was changed here meanwhile, undoing."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from klaw.actor.clock import iso
from klaw.cli.imports import _shown
from klaw.domain.fact import Fact, FactId
from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.domain.person import Person, PersonId
from klaw.domain.task import MAX_TASK_MESSAGE_BYTES, At, Cron
from klaw.errors import KlawError
from klaw.imports import claude, klaw_export
from klaw.imports.export_files import opened
from klaw.imports.feed import ImportReport, feed
from klaw.operations.handler import OPERATOR
from klaw.operations.operation import OperationError
from klaw.operations.perform import operations, perform, read
from klaw.store.kinds import facts, imports, messages, people, tasks
from klaw.store.kinds.knowledge import bases, sources
from klaw.store.store import Store
from tests.support.asking import parts_to_forget
from tests.support.exports import CASES, FIRST, SECOND, THIRD, imported
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.people import people_of
from tests.support.reindexing import differing, digests_of, run
from tests.support.stores import START, new, running_store

AT = "2024-03-05T10:00:00.000Z"
SAFE, TEA = "Ключ от сейфа называется Kanarienvogel8842", "Likes tea with lemon and honey"
ANNA, BORIS = "Анна Петрова", "Boris"


def told(own: str, text: str, **more: Any) -> dict[str, Any]:
    """A fact as an export has it."""
    values = {"id": own, "user": "local", "text": text, "category": "other", "importance": 70, "source": "archivist"}
    values |= {"origin": "user", "chat": "local:Сад", "message": None, "turn": "t1", "topic": "7", "day": None}
    return {**values, "created_at": AT, "updated_at": AT, "superseded_by": None, "client": None, **more}


def somebody(own: str, name: str, *aliases: str, **more: Any) -> dict[str, Any]:
    values = {"id": own, "user": "local", "name": name, "aliases": [*aliases], "relation": "", "source": "archivist"}
    values |= {"said_at": AT, "created_at": AT, "updated_at": AT, "merged_into": None, "topics": 3, "last_at": AT}
    return {**values, **more}


FACTS = (told("f1", SAFE, message="m2"), told("f2", TEA, message="gone"), told("f3", "Has a boat", chat="local:x"))
PEOPLE = (somebody("who1", ANNA, "Аня", "Anna", relation="сестра"), somebody("who2", BORIS))


def export(folder: Path, facts: Any = FACTS, people: Any = PEOPLE, chats: bool = True) -> Path:
    folder = folder / "export"
    (folder / "chats").mkdir(parents=True, exist_ok=True)
    said = [
        {"id": f"m{n}", "role": "user", "type": "text", "content": f"said {n}", "created_at": AT} for n in range(1, 4)
    ]
    for name in ("Сад", "facts") if chats else ():
        mine = [{**each, "id": f"{each['id']}{'' if name == 'Сад' else name}"} for each in said]
        (folder / "chats" / f"{name}.json").write_text(json.dumps({"name": name, "title": "", "messages": mine}))
    (folder / "facts.json").write_text(json.dumps(facts))
    (folder / "people.json").write_text(json.dumps(people))
    return folder


async def moved(store: Store, path: Path, origin: str = FIRST, user: str = "local") -> ImportReport:
    return await imported(store, "klaw", path, origin, reader=klaw_export.read, user=user)


async def known(store: Store, user: UserId = LOCAL_USER) -> tuple[list[str], list[str]]:
    """What facts say, and how people are called."""
    there = await store.readers.run(facts.of_user, user)
    who = await store.readers.run(people.of_user, user)
    return sorted(each.text for each in there), sorted(each.person.name for each in who)


async def undo(store: Store, data: Path, origin: str = FIRST) -> dict[str, Any]:
    parts = parts_to_forget(forgetter(store, data))
    answer = await perform(read(operations()["import_undo"], {"origin": origin, "dry_run": False}), OPERATOR, parts)
    assert isinstance(answer, dict)
    return answer


def rebuilt(data: Path) -> None:
    live = digests_of(data / "klaw.db")
    assert differing(run(data)) == set()
    assert digests_of(data / "klaw.db") == live


@pytest.mark.parametrize("user", ["local", "anna"])
async def test_they_come_with_ids_times_and_links(tmp_path: Path, user: str) -> None:
    data, path, own = tmp_path / "data", export(tmp_path), UserId(user)
    with opened(str(path)) as given:
        report = feed(klaw_export.read(given), "klaw", None, lambda _done: None)
    assert (report.messages, report.kept, report.unread) == (6, {"facts": 3, "people": 2}, [])
    async with running_store(data) as store:
        await store.writer.run(messages.append, [new("mine", chat="Сад", user=user)])
        report = await moved(store, path, user=user)
        assert (report.chats, report.added, report.remembered) == (2, 6, 5)
        found = {each.id: each for each in await store.readers.run(facts.of_user, own)}
        garden = chat_id(own, "Сад 2")
        assert found == {
            f"f{n}": Fact(
                id=FactId(f"f{n}"),
                user=own,
                text=text,
                category="other",
                importance=70,
                source="archivist",  # type: ignore[arg-type]
                origin="user",  # type: ignore[arg-type]
                chat=chat,
                message=message,
                created_at=AT,
                updated_at=AT,
                imported=FIRST,  # type: ignore[arg-type]
            )
            for n, text, chat, message in (
                (1, SAFE, garden, "m2"),
                (2, TEA, garden, None),
                (3, "Has a boat", None, None),
            )
        }
        (who,) = await store.readers.run(people.by_names, own, ["аня"])
        assert (who.name, who.relation, who.said_at, who.imported) == (ANNA, "сестра", AT, FIRST)
        (listed,) = await store.readers.run(imports.listed, own)
        assert (listed.id, listed.messages, listed.facts, listed.people) == (FIRST, 6, 3, 2)
        assert await store.readers.run(imports.listed, UserId("boris")) == []
    rebuilt(data)


async def test_a_second_import_adds_nothing_whatever_was_done_meanwhile(tmp_path: Path) -> None:
    """Edited, removed and forgotten here, or known here before by another id and changed since."""
    data, path = tmp_path / "data", export(tmp_path)
    async with running_store(data) as store:
        await store.writer.run(facts.put, fact("has a BOAT!", id="mine"), "new")
        boris = await people_of(store).add(LOCAL_USER, BORIS, aliases=["Боря"], source="user")  # type: ignore[arg-type]
        assert (await moved(store, path)).remembered == 3
        assert await known(store) == ([TEA, "has a BOAT!", SAFE], [BORIS, ANNA])
        run_ = store.readers.run
        tea = await run_(facts.get, LOCAL_USER, FactId("f2"))
        assert tea is not None
        await store.writer.run(facts.put, fact("Likes coffee", id="f2", imported=FIRST), "existing")
        await store.writer.run(facts.put, fact("Has sold the boat", id="mine"), "existing")
        await people_of(store).edit(LOCAL_USER, boris.id, name="Борис", aliases=[])
        await people_of(store).remove(LOCAL_USER, PersonId("who1"))
        tool = forgetter(store, data)
        await tool.forget(await tool.find("fact:f1", LOCAL_USER))
        now = (["Has sold the boat", "Likes coffee"], ["Борис"])
        assert await known(store) == now
        report = await moved(store, path, SECOND)
        assert (report.kept, report.remembered) == ({"facts": 3, "people": 2}, 0)
        assert await known(store) == now
    assert holding(data, "Kanarienvogel8842") == {}
    rebuilt(data)


async def test_undoing_takes_all_of_it_and_it_may_come_again(tmp_path: Path) -> None:
    """Also what was changed or removed meanwhile; what was forgotten by itself stays forgotten, and whom somebody of it
    was merged with stays."""
    data, path = tmp_path / "data", export(tmp_path, facts=[*FACTS, told("f4", "Was born in Кёнигсберг, 1981")])
    async with running_store(data) as store:
        await moved(store, path)
        own = await people_of(store).add(LOCAL_USER, "Borya", source="user")  # type: ignore[arg-type]
        await people_of(store).merge(LOCAL_USER, own.id, PersonId("who2"))
        await store.writer.run(facts.put, fact("Likes coffee, not tea", id="f2", imported=FIRST), "existing")
        await store.writer.run(facts.remove, LOCAL_USER, FactId("f1"), iso(START))
        await store.writer.run(facts.put, fact("Is mine and stays", id="mine"), "new")
        tool = forgetter(store, data)
        await tool.forget(await tool.find("fact:f4", LOCAL_USER))
        answer = await undo(store, data)
        assert (answer["messages"], answer["facts"], answer["people"]) == (6, ["f1", "f2", "f3"], ["who1", "who2"])
        assert answer["still_held"] == []
        assert await known(store) == (["Is mine and stays"], ["Borya"])
        assert await store.readers.run(imports.listed, LOCAL_USER) == []
        with pytest.raises(KlawError, match="no such import"):
            await undo(store, data)
    assert holding(data, "Kanarienvogel8842", TEA, "Likes coffee", ANNA, "Has a boat") == {}
    async with running_store(data) as store:
        report = await moved(store, path, SECOND)
        assert (report.added, report.remembered) == (6, 5)
        assert await known(store) == (["Has a boat", "Is mine and stays", TEA, SAFE], [BORIS, "Borya", ANNA])
        safe = await store.readers.run(facts.get, LOCAL_USER, FactId("f1"))
        assert safe is not None
        assert (safe.message, safe.imported) == ("m2.2", SECOND)
        assert (await moved(store, path, THIRD)).remembered == 0
    rebuilt(data)


async def test_facts_alone(tmp_path: Path) -> None:
    """An export without chats, and one file of it."""
    data, path = tmp_path / "data", export(tmp_path, chats=False)
    async with running_store(data) as store:
        assert (await moved(store, path / "people.json")).remembered == 2
        assert (await moved(store, path, SECOND)).remembered == 3
        assert [(each.facts, each.people) for each in await store.readers.run(imports.listed, LOCAL_USER)] == [
            (0, 2),
            (3, 0),
        ]
        assert (await undo(store, data, SECOND))["facts"] == ["f1", "f2", "f3"]
        assert await known(store) == ([], [BORIS, ANNA])


async def test_what_cannot_be_read_is_named_and_the_rest_comes(tmp_path: Path) -> None:
    bad = (
        7,
        told("f4", "  space "),
        told("f5", "x", created_at="yesterday"),
        told("../f6", "x"),
        told("f7", "x", importance=101),
        told("f8", "x", source="hearsay"),
        told("f9", 5),
        told("f10", "was so once", superseded_by="f1"),
        told("f11", "x", client="y" * 35_000),
        {"id": "f12"},
    )
    odd = (told("f20", "Without a chat", chat="nonsense", imported="klaw-20200101-000000-000", new_field=1),)
    path = export(tmp_path, (*bad, *odd), [somebody("who3", "I"), somebody("who4", "Ok", "ok"), *PEOPLE])
    async with running_store(tmp_path / "data") as store:
        report = await moved(store, path)
        assert await known(store) == (["Without a chat"], [BORIS, ANNA])
    assert report.left_out == {"facts and people that are history": 1}
    assert [f"{each.what}: {each.why}" for each in report.unread] == [
        "facts.json, entry 1: is no object",
        "facts.json, entry 2: text: has control characters, or space around it",
        "facts.json, entry 3: created_at: is not a possible time",
        "facts.json, entry 4: id: has 1 to 64 of A-Z, a-z, 0-9, '_', '.', ':' and '-'",
        "facts.json, entry 5: importance: must be 0 to 100",
        "facts.json, entry 6: source: must be one of tool, user, archivist, chat",
        "facts.json, entry 7: text: must be a text",
        "facts.json, entry 9: is too long",
        "facts.json, entry 10: text: is required",
        "people.json, entry 1: name: is not the name of another person",
        "people.json, entry 2: aliases: one of them is the name or another one, or is not one line",
    ]


TASK: dict[str, Any] = {
    "user_id": "local",
    "name": "water",
    "trigger": {"cron": "0 9 * * *", "zone": "Europe/Berlin"},
    "message": "Что сухо?",
    "model": None,
    "inject_into": "Сад",
    "enabled": True,
    "timeout_s": 300,
    "max_tokens": None,
    "daily_tokens": None,
    "created_at": AT,
    "updated_at": AT,
    "anchor_at": AT,
}
BASE = {"id": "base1", "user_id": "local", "name": "Garden", "description": "", "language": "ru"}
BASE |= {"members": {"anna": "viewer"}, "created_at": AT, "updated_at": AT}
SOURCE = {"id": "s1", "user_id": "local", "base_id": "base1", "kind": "folder", "name": "notes", "place": "/etc"}


async def test_tasks_come_in_disabled_and_bases_without_sources_and_the_rest_is_named(tmp_path: Path) -> None:
    """Topics and summaries as 52f6777d exported them: they hold numbers of messages."""
    data, path = tmp_path / "data", export(tmp_path, facts=[], people=[])
    bad: list[dict[str, Any]] = [
        {"name": "heartbeat"},
        {"name": "cron", "trigger": {"cron": "99 9 * * *", "zone": "UTC"}},
        {"name": "every", "trigger": {"every_s": 0}},
        {"name": "blank", "message": ""},
        {"name": "odd", "trigger": {"cron": 5}},
    ]
    late = {**TASK, "name": "late", "inject_into": "x", "message": '"' * MAX_TASK_MESSAGE_BYTES}
    late["trigger"] = {"at": " 2026-12-24T18:00 ", "zone": "Europe/Berlin"}
    there = {
        "tasks": [TASK, *({**TASK, **each} for each in bad), late],
        "bases": [BASE, {**BASE, "id": "base2"}, {**BASE, "id": "../base3"}],
        "sources": [SOURCE],
        "topics": [{"id": 7, "chat": "local:Сад", "summary": "Roses", "first_rowid": 1}] * 3,
        "summaries": [{"chat": "local:Сад", "first_seq": 1, "last_seq": 9, "text": "Roses"}],
    }
    for name, things in there.items():
        (path / f"{name}.json").write_text(json.dumps(things))
    async with running_store(data) as store:
        report = await moved(store, path)
        assert report.kept == {"tasks": 2, "bases": 2}
        assert report.remembered == 3
        water, last = sorted(await store.readers.run(tasks.of_user, LOCAL_USER), key=lambda each: each.name != "water")
        assert (water.enabled, water.inject_into, water.timeout_s) == (False, "Сад", 300)
        assert water.trigger == Cron(expression="0 9 * * *", zone="Europe/Berlin")
        assert (last.name, last.inject_into) == ("late", "x"), "its page says that there is no such chat"
        assert last.trigger == At(instant="2026-12-24T17:00:00.000Z", zone="Europe/Berlin"), "else it cannot be listed"
        (base,) = await store.readers.run(bases.of_user, LOCAL_USER)
        assert (base.base.id, base.base.name, base.base.members) == ("base1", "Garden", {})
        assert (await moved(store, path, SECOND)).remembered == 0
        assert (await moved(store, path / "bases.json", THIRD, user="anna")).remembered == 1, "base1 is another user's"
        for what in ("topic", "kb_source", "message", "nonsense"):
            call = read(operations()["import_remember"], {"origin": FIRST, "what": what, "values": [{}]})
            with pytest.raises(OperationError, match="things of this kind are not moved"):
                await perform(call, OPERATOR, store)
    assert report.left_out == {
        "topics: they name messages by numbers that differ here; --topics makes new ones": 3,
        "summaries: they name messages by numbers that differ here": 1,
    }
    unread = sorted(f"{each.what}: {each.why}" for each in report.unread)
    assert [each.partition(": ")[0] for each in unread] == [
        *["a task"] * 4,
        "bases.json, entry 3",
        "sources.json, entry 1 (notes)",
        "tasks.json, entry 6",
    ]
    assert [each.split(": ")[1] for each in unread[:4]] == ["blank", "cron", "every", "heartbeat"]
    assert "klaw kb add" in unread[5]
    rebuilt(data)


async def test_no_more_tasks_come_than_a_user_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klaw.operations.imports.MAX_TASKS", 1)
    path = export(tmp_path, facts=[], people=[])
    (path / "tasks.json").write_text(json.dumps([TASK, {**TASK, "name": "late"}]))
    async with running_store(tmp_path / "data") as store:
        for new_ones in (1, 0):
            report = await moved(store, path)
            assert report.remembered == new_ones
            assert [each.why for each in report.unread] == ["late: there are 1 tasks already"]
        assert [each.name for each in await store.readers.run(tasks.of_user, LOCAL_USER)] == ["water"]


def test_a_file_that_is_no_list_is_named(tmp_path: Path) -> None:
    path = export(tmp_path, facts=[], people=[])
    (path / "tasks.json").write_text("{}")
    (path / "chats/people.json").write_text((path / "chats/Сад.json").read_text())
    with opened(str(path)) as given:
        report = feed(klaw_export.read(given), "klaw", None, lambda _done: None)
    assert [(each.what, each.why) for each in report.unread] == [("tasks.json", "is no list")]


def test_undo_is_offered_for_what_it_takes_back() -> None:
    none = {"import": FIRST, "dry_run": False, "facts": 0, "people": 0}
    answer = {**none, **attrs.asdict(ImportReport(kept=Counter(tasks=1), remembered=1))}
    assert not any("import undo" in str(each) for each in _shown(answer).lines)
    assert any("import undo" in str(each) for each in _shown({**answer, "facts": 1}).lines)


async def test_two_of_one_name_in_an_export_stay_two(tmp_path: Path) -> None:
    path = export(tmp_path, [], [somebody("who1", "Anna"), somebody("who2", "Anna")])
    async with running_store(tmp_path / "data") as store:
        assert (await moved(store, path)).remembered == 2
        found: list[Person] = await store.readers.run(people.by_names, LOCAL_USER, ["anna"])
        assert [each.id for each in found] == ["who1", "who2"]


async def test_memories_of_claude_become_facts_of_the_import(tmp_path: Path) -> None:
    """26.C3"""
    path = CASES / "claude_memories_and_projects_ignored.zip"
    async with running_store(tmp_path / "data") as store:
        origin = FIRST.replace("source", "claude")
        report = await imported(store, "claude", path, origin, reader=claude.read)
        assert (report.added, report.remembered, report.projects) == (2, 2, {"p1": "Garden"})
        assert report.kept == {"facts": 1, "project documents": 1}
        (fact_,) = await store.readers.run(facts.of_user, LOCAL_USER)
        assert (fact_.text, fact_.origin, fact_.imported) == (
            "Anna lives in Riga and grows apples.",
            "assistant",
            origin,
        )
        again = await imported(store, "claude", path, SECOND, reader=claude.read)
        assert (again.added, again.remembered) == (0, 0)
        undone = await undo(store, tmp_path / "data", origin)
        assert await known(store) == ([], [])
        (staying,) = (each for each in undone["things"] if each["kind"] == "knowledge base")
        assert (staying["name"], staying["goes"]) == ("Garden", False)


async def test_odd_projects_stop_nothing(tmp_path: Path) -> None:
    """Names of nothing and of thousands of characters, and a document without a word."""
    docs = [("я" * 3_000, "1"), ("", "2"), ("empty.md", ""), ("\u202e\x1b", "3")]
    listed = [{"filename": name, "content": text} for name, text in docs]
    names = ("\u200b", "x" * 3_000, "a/b: “c” & d", "")
    projects = [{"uuid": f"{n}" * 900, "name": name, "docs": listed} for n, name in enumerate(names)]
    (tmp_path / "projects.json").write_text(json.dumps(projects))
    async with running_store(tmp_path / "data") as store:
        report = await imported(store, "claude", tmp_path / "projects.json", reader=claude.read)
        assert (report.remembered, report.kept, report.unread_count) == (12, {"project documents": 12}, 4)
        assert len(await store.readers.run(bases.of_user, LOCAL_USER)) == 4


async def test_documents_of_projects_go_into_a_base_of_each(tmp_path: Path) -> None:
    """26.C3: also where the name is taken; names lead nowhere; a second import adds what is new."""
    docs = [("plan.md", "1"), ("plan.md", "2"), ("../../x", "3"), (".bashrc", "4"), ("c\n\ud800d", "\ud800")]
    data, path = tmp_path / "data", tmp_path / "projects.json"

    def written(*more: tuple[str, str]) -> Path:
        listed = [{"filename": name, "content": text} for name, text in (*docs, *more)]
        projects = [{"uuid": f"p{n}", "name": "Garden", "docs": listed} for n in range(2)]
        path.write_text(json.dumps(projects))
        return path

    async with running_store(data) as store:
        report = await imported(store, "claude", written(), reader=claude.read)
        assert (report.remembered, report.projects) == (10, {"p0": "Garden", "p1": "Garden 2"})
        newer = await imported(store, "claude", written(("new.md", "5")), SECOND, reader=claude.read)
        assert (newer.kept, newer.remembered, newer.unread) == ({"project documents": 12}, 2, [])
        other = await imported(store, "claude", path, THIRD, reader=claude.read, user="anna")
        assert (other.remembered, other.projects) == (12, report.projects)
        found = await store.readers.run(bases.of_user, LOCAL_USER)
        assert [each.base.name for each in found] == ["Garden", "Garden 2"]
        kept = await store.readers.run(sources.of_base, LOCAL_USER, found[0].base.id)
        assert sorted(each.name for each in kept) == sorted([".bashrc", "c �d", "new.md", "plan.md", "plan.md", "x"])
    assert {each.name for each in data.rglob("*") if each.is_file()} >= {each.id for each in kept}
    rebuilt(data)
