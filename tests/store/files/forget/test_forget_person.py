"""Forgetting a person: what goes, what stays and is told, and what a rebuild makes of it."""

import signal
from pathlib import Path

import attrs
import pytest

from klaw.domain.message import Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.task import RunStatus
from klaw.memory.forget.forget import NothingToForget
from klaw.store.forget import execute
from klaw.store.kinds import facts, messages, people, run_edits, topic_edits, topics
from klaw.store.store import Store
from tests.store.files.forget.test_forget import KILLED
from tests.support.facts import fact
from tests.support.forgetting import files_of, forgetter, holding, lose_database
from tests.support.people import add, in_topic, names, people_of
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import differing, digests_of, run
from tests.support.runs.tasks import run_of
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, AT, archive, draft, flaws_of, say
from tests.support.turns import record

NAME, ALIAS = "Цецилия", "Кукумбера"
FORMS = (NAME, "Цецилию", "Цецилии", ALIAS, "Кукумберу")


async def past(store: Store) -> list[int]:
    """Somebody is named everywhere. Returns the row ids of what was said."""
    rows = await say(store, "Сегодня хорошая погода для прогулки", f"Видел {NAME[:-1]}ю в магазине", "А что завтра")
    (answer,) = await store.writer.run(
        messages.append, [new(f"Кукумберу зовут {NAME}?", user="anna", role=Role.ASSISTANT)]
    )
    rows.append(answer.message.rowid)
    await say(store, f"{NAME} не твоя", user="boris")
    (topic, other) = await archive(store, rows[1:], rows[:1])
    await quoted(store, rows[0])
    person = await add(store, NAME, relation="тётя", mention=in_topic(topic.id, "m2"))
    twin = await add(store, ALIAS, mention=in_topic(other.id, "m1"))
    await people_of(store).merge(ANNA, twin.id, person.id)
    friend = await add(store, "Борис", mention=in_topic(topic.id, "m3"))
    await people_of(store).merge(ANNA, person.id, friend.id)  # a mistake
    await people_of(store).undo(ANNA, friend.id)
    await add(store, NAME, user="boris")
    for text in (f"{NAME} любит чай с вареньем", f"День рождения Цецилии в мае, {ALIAS} ждёт", "Погода важна"):
        await store.writer.run(facts.put, fact(text, user="anna"), "new")
    gone = await store.writer.run(facts.put, fact(f"{ALIAS} уехала в Тверь", user="anna"), "new")
    await store.writer.run(facts.remove, ANNA, gone.id, "2026-11-22T00:00:00.000Z")
    await store.writer.run(facts.put, fact(f"{NAME} чужая", user="boris"), "new")
    return rows


async def quoted(store: Store, rowid: int) -> None:
    """Names alone, too short to be looked for as texts: in a receipt, in a run's states and in a topic's past."""
    (asked,) = await store.readers.run(messages.by_rowids, [rowid])
    turn = record(asked)
    turn.receipt.update(recall=[{"why": f"слово {NAME.lower()}, и Кукумберой", "arguments": f'{{"q": "x\\n{ALIAS}"}}'}])
    await store.writer.run(messages.append, [new("Погода хорошая", user="anna", role=Role.ASSISTANT)], turn)
    run = run_of(user="anna", message=f"Напомни про {NAME}", details={"calls": [f"{ALIAS}?"], "rounds": 1})
    begun = (await store.writer.run(run_edits.begin, run)).run
    ended = attrs.evolve(begun, status=RunStatus.DONE, result=f"{ALIAS} звонила", note=f"о {NAME}", ended_at=AT)
    await store.writer.run(run_edits.save, ended)
    await store.writer.run(run_edits.begin, run_of(user="boris", message=f"{NAME} не твоя"))
    first, second = await archive(store, await say(store, "раз"), await say(store, "два"))
    changed = draft(f"Звонила {NAME}", first.first_rowid, consolidated=True)
    chat = chat_id(ANNA, "main")
    (named,) = await store.writer.run(topic_edits.store, ANNA, chat, [changed], AT, replaces=first.id, by="person")
    await store.writer.run(topic_edits.merge, second, named, "раз и два", AT, by="person")


@pytest.mark.parametrize("called", [f"person:{NAME.upper()}", f"person:{ALIAS}", ALIAS, NAME])
async def test_person_and_facts_go_and_messages_stay(tmp_path: Path, called: str) -> None:
    async with running_store(tmp_path) as store:
        await past(store)
        tool = forgetter(store, tmp_path)
        files = files_of(tmp_path)
        wanted = await tool.find(called, ANNA)
        before = await tool.preview(wanted, everywhere=True)
        assert files_of(tmp_path) == files
        assert before.named is not None
        assert (len(before.reach.people), len(before.reach.facts), len(before.reach.own)) == (2, 3, 0)
        assert [each.seq for each in before.naming] == [2, 4]
        assert len(before.named.messages) == 2
        proof = await tool.forget(wanted, everywhere=True)
        assert dict(proof.still_named) == {"messages": 2, "receipts": 1, "runs": 1, "topics": 1}
        assert await names(store) == ["Борис"]
        assert [each.text for each in await store.readers.run(facts.of_user, ANNA)] == ["Погода важна"]
        assert (await names(store, "boris"), await store.readers.run(facts.count, UserId("boris"))) == ([NAME], 1)
        assert holding(tmp_path, "тётя", "вареньем", "Тверь") == {}
        with pytest.raises(NothingToForget):
            await tool.find(f"person:{NAME}", ANNA)
        with pytest.raises(NothingToForget, match="already"):
            await tool.find(f"person:{before.reach.people[0]}", ANNA)
    await _same_after_rebuilds(tmp_path)


async def test_with_messages_nothing_of_the_user_names_them(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        rows = await past(store)
        # Not another user's, who may say what they like.
        boris = await store.readers.run(people.by_names, UserId("boris"), [NAME])
        await forgetter(store, tmp_path).forget(
            await forgetter(store, tmp_path).find(f"person:{boris[0].id}", UserId("boris"), with_messages=True),
            everywhere=True,
        )
        tool = forgetter(store, tmp_path)
        wanted = await tool.find(f"person:{NAME}", ANNA, with_messages=True)
        proof = await tool.forget(wanted, everywhere=True)
        assert [each.seq for each in proof.before.reach.own] == [2, 4]
        assert (dict(proof.still_named), proof.held) == ({}, ())
        assert holding(tmp_path, *FORMS) == {}
        left = await store.readers.run(messages.by_rowids, rows)
        assert sorted(each.content for each in left) == ["", "", "А что завтра", "Сегодня хорошая погода для прогулки"]
        # The topic that held the messages ended, the other one stays.
        assert await store.readers.run(topics.count, ANNA) == 1
        (boris_row,) = await store.readers.run(people.of_user, ANNA)
        assert (boris_row.person.name, boris_row.topics) == ("Борис", 0)
    await _same_after_rebuilds(tmp_path)


async def _same_after_rebuilds(root: Path) -> None:
    assert flaws_of(root / "klaw.db") == {}
    digests = digests_of(root / "klaw.db")
    assert differing(run(root)) == set()
    assert digests_of(root / "klaw.db") == digests
    lose_database(root)
    async with running_store(root):
        pass
    assert digests_of(root / "klaw.db") == digests


async def test_summaries_of_topics_that_name_them_go_with_the_messages(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        (row,) = await say(store, "она звонила вчера вечером")
        drafts = [draft(f"Звонок: {NAME}", row)]
        await store.writer.run(topic_edits.store, ANNA, chat_id(ANNA, "main"), drafts, AT)
        await add(store, NAME)
        tool = forgetter(store, tmp_path)
        found = await tool.find(f"person:{NAME}", ANNA)
        assert found.named is not None
        assert found.named.topics == (1,)
        await tool.forget(await tool.find(f"person:{NAME}", ANNA, with_messages=True), everywhere=True)
        assert await store.readers.run(topics.count, ANNA) == 0
        assert holding(tmp_path, *FORMS) == {}
        assert (await store.readers.run(messages.by_rowids, [row]))[0].content == "она звонила вчера вечером"
    await _same_after_rebuilds(tmp_path)


async def test_forgetting_a_message_tells_who_is_known_by_it_only(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        (message,) = await store.writer.run(
            messages.append, [new("Мой сосед Борис купил трактор", user="anna", id="m1")]
        )
        (topic,) = await archive(store, [message.message.rowid])
        by_it = await add(store, "Борис", source="archivist", mention=in_topic(topic.id, "m1"))
        await add(store, "Commanded", mention=in_topic(topic.id, "m1"))
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("m1", ANNA)
        assert (await tool.preview(wanted, everywhere=True)).reach.kept["person"] == (by_it.id,)
        proof = await tool.forget(wanted, with_facts=True, everywhere=True)
        assert proof.before.reach.people == (by_it.id,)
        assert await names(store) == ["Commanded"]
        assert await store.readers.run(people.history, ANNA, by_it.id) != []
    await _same_after_rebuilds(tmp_path)


async def test_who_is_no_person_of_this_user_is_not_found(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await add(store, NAME, user="boris")
        one, two = await add(store, "Anna"), await add(store, "anna", relation="boss")
        tool = forgetter(store, tmp_path)
        for called in (f"person:{NAME}", NAME, "person:", "person:…", "person:nobody", "%", "person:%", "person:_nna"):
            with pytest.raises(NothingToForget):
                await tool.find(called, ANNA)
        with pytest.raises(NothingToForget, match="several") as caught:
            await tool.find("person:ANNA", ANNA)
        assert one.id in str(caught.value)
        assert (await tool.find(f"person:{two.id}", ANNA)).named is not None
        assert await names(store) == ["Anna", "anna"]


@pytest.mark.parametrize("after", ["start", "lost database", "reindex"])
@pytest.mark.parametrize("point", range(0, 40, 5))
async def test_a_kill_at_any_point(tmp_path: Path, point: int, after: str) -> None:
    async with running_store(tmp_path) as store:
        await past(store)
        (strange,) = await store.readers.run(people.by_names, UserId("boris"), [NAME])
        whole = await forgetter(store, tmp_path).find(f"person:{strange.id}", UserId("boris"), with_messages=True)
        await forgetter(store, tmp_path).forget(whole, everywhere=True)
    script = KILLED.replace('find("main#2", ANNA)', f'find("person:{NAME}", ANNA, with_messages=True)')
    done = await completed([*SCRIPT, script, str(tmp_path), str(point)])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    if after == "lost database":
        lose_database(tmp_path)
    elif after == "reindex":
        run(tmp_path, accept=True)
        (tmp_path / "klaw.db.old").unlink()
    async with running_store(tmp_path) as store:
        assert await store.readers.run(execute.pending) == []
        if NAME in await names(store):  # never acknowledged: all of it is there
            found = await forgetter(store, tmp_path).find(f"person:{NAME}", ANNA, with_messages=True)
            assert (len(found.rowids), len(found.facts)) == (2, 3)
            await forgetter(store, tmp_path).forget(found, everywhere=True)
        assert holding(tmp_path, *FORMS) == {}
    await _same_after_rebuilds(tmp_path)
