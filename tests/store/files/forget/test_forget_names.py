"""26.B2: tasks, titles and descriptions can be forgotten, what they said before goes with any forgetting, and the proof
names what stays: names of chats and tasks."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from klaw.actor.clock import iso
from klaw.domain.forget import MARK
from klaw.domain.knowledge import Base, BaseId
from klaw.domain.names import UserId, chat_id
from klaw.domain.task import RunStatus
from klaw.errors import CannotUndo
from klaw.store.engine.transaction import Transaction
from klaw.store.forget import execute, reach
from klaw.store.forget.finding import NothingToForget
from klaw.store.forget.proof import names_left
from klaw.store.kinds import chats, facts, messages, run_edits, tasks
from klaw.store.kinds.core_memory import CORE, CorePut
from klaw.store.kinds.knowledge import bases
from klaw.store.store import Store
from tests.store.files.forget.test_forget_person import NAME, _same_after_rebuilds
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.people import add
from tests.support.runs.tasks import exchange, result, run_of, task
from tests.support.stores import START, new, running_store
from tests.support.topics import ANNA, AT

BORIS = UserId("boris")
ASKS, ASKED = "Remind me of the divorce lawyer", "Remind me of the marriage counsellor"
SAID = "Your lawyer Mister Krautwurst waits"
TITLES = ("How to leave my husband", "Plans for the winter")
ABOUT = ("Papers for the divorce court", "All sorts of papers")


async def scheduled(store: Store, user: UserId, name: str = "lawyer") -> None:
    """A task that was changed once and ran once, with a result in a chat and an answer that quotes what it asks."""
    write = store.writer.run
    await write(messages.append, [new("What is planned?", user=user)])
    await write(tasks.put, task(name, user=user, message=ASKED), "new")
    await write(tasks.put, task(name, user=user, message=ASKS, at=START + 1), "existing")
    run = (await write(run_edits.begin, run_of(name, user=user, message=ASKS))).run
    await write(run_edits.append_transcript, run, 1, exchange(run))
    done = attrs.evolve(run, status=RunStatus.DONE, result=SAID, delivered=1, ended_at=iso(START + 9))
    await write(run_edits.save, done, delivery=result(run, SAID))
    await write(messages.append, [new(f"It asks: {ASKS}", user=user, role="assistant")])


async def forget(store: Store, root: Path, what: str, user: UserId = ANNA, **more: Any) -> Any:
    tool = forgetter(store, root)
    return await tool.forget(await tool.find(what, user, **more), everywhere=True)


@pytest.mark.parametrize("removed", [False, True])
async def test_a_task_goes_with_its_runs_and_all_it_ever_asked(tmp_path: Path, removed: bool) -> None:
    async with running_store(tmp_path) as store:
        await scheduled(store, ANNA)
        if removed:
            await store.writer.run(tasks.remove, ANNA, "lawyer", iso(START + 20))
        tool = forgetter(store, tmp_path)
        before = await tool.preview(await tool.find("task:lawyer", ANNA))
        assert {each.text for each in before.things if each.kind == "task"} == {ASKS, ASKED}
        done = await forget(store, tmp_path, "task:lawyer")
        assert done.held == ()
        assert holding(tmp_path, ASKS, ASKED, SAID, "Всё спокойно") == {}
        assert await store.readers.run(tasks.of_user, ANNA) == []
        (left,) = names_left(before.reach)
        assert (left["name"], left["folder"]) == ("lawyer", "conversations/scheduler_lawyer@anna")
        named = {path for path in holding(tmp_path, "lawyer") if not path.startswith(("klaw.db", "memory/", "runs/"))}
        assert all(path.startswith(left["folder"]) for path in named)
    await _same_after_rebuilds(tmp_path)


async def test_another_users_task_of_the_same_name_stays(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await scheduled(store, BORIS)
        with pytest.raises(NothingToForget):
            await forgetter(store, tmp_path).find("task:lawyer", ANNA)
        await scheduled(store, ANNA)
        await forget(store, tmp_path, "task:lawyer")
        assert [each.message for each in await store.readers.run(tasks.of_user, BORIS)] == [ASKS]
        assert all("anna" not in path for path in holding(tmp_path, SAID))


async def test_a_removed_task_that_never_ran_is_found(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(tasks.put, task("lawyer", user="anna", message=ASKS), "new")
        await store.writer.run(tasks.remove, ANNA, "lawyer", AT)
        await forget(store, tmp_path, "task:lawyer")
        assert holding(tmp_path, ASKS) == {}
        with pytest.raises(NothingToForget):
            await forgetter(store, tmp_path).find("task:lawyer", ANNA)


async def test_a_task_without_history_is_found(tmp_path: Path) -> None:
    """As in a home of before it had one, of which an old log is gone."""
    async with running_store(tmp_path) as store:
        await store.writer.run(tasks.put, task("lawyer", user="anna", message=ASKS), "new")
        await store.writer.run(lambda tx: tx.connection.execute("DELETE FROM task_changes") and None)
        await forget(store, tmp_path, "task:lawyer")
        assert await store.readers.run(tasks.of_user, ANNA) == []
        assert holding(tmp_path, ASKS) == {}


async def test_a_task_that_a_kill_interrupted_the_next_start_forgets(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await scheduled(store, ANNA)
        wanted = await forgetter(store, tmp_path).find("task:lawyer", ANNA)
        plan = await store.readers.run(reach.plan, wanted, with_facts=False)
        await store.writer.run(execute.forget, plan, AT)
    assert holding(tmp_path, ASKS, ASKED, SAID)
    async with running_store(tmp_path):
        pass
    assert holding(tmp_path, ASKS, ASKED, SAID) == {}


def remember(tx: Transaction, document: Any) -> None:
    tx.journal(CORE.put(ANNA, "", CorePut(document=document, replaces=""), AT))


async def titled(store: Store, name: str = "plans") -> None:
    """What has a title, a description and core memory, each changed once; a task that was removed."""
    write = store.writer.run
    await write(messages.append, [new("The first words here", user="anna", chat=name)])
    for number, (title, about) in enumerate(zip(TITLES, ABOUT, strict=True)):
        await write(chats.rename, ANNA, chat_id(ANNA, name), title, AT)
        base = Base(
            id=BaseId("b1"), user=ANNA, name=f"{about} {number}", description=about, created_at=AT, updated_at=AT
        )
        await (write(bases.put, base) if not number else
               write(bases.change, ANNA, base.id, AT, {"name": base.name, "description": about}))  # fmt: skip
        await write(remember, {"about": {"home": title}})
    await write(tasks.put, task("gone", user="anna", message=ASKED), "new")
    await write(tasks.remove, ANNA, "gone", AT)
    await write(tasks.put, task("kept", user="anna", message=ASKED), "new")
    await write(tasks.put, task("kept", user="anna", message=ASKS), "existing")


async def test_what_titles_tasks_and_bases_said_before_goes_with_any_forgetting(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await titled(store)
        assert holding(tmp_path / "memory", TITLES[0], ABOUT[0], ASKED)
        said = await store.writer.run(facts.put, fact("A fact of no weight", user="anna"), "new")
        await forget(store, tmp_path, f"fact:{said.id}")
        assert holding(tmp_path, TITLES[0], ABOUT[0], ASKED) == {}
        assert (await store.readers.run(chats.get, ANNA, chat_id(ANNA, "plans"))).title == TITLES[1]
        assert (await store.readers.run(bases.get, ANNA, BaseId("b1"))).base.description == ABOUT[1]
        assert {each.message for each in await store.readers.run(tasks.of_user, ANNA)} == {ASKS}
    await _same_after_rebuilds(tmp_path)


async def test_what_a_task_asked_before_cannot_come_back_after_a_forgetting(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await titled(store)
        said = await store.writer.run(facts.put, fact("A fact of no weight", user="anna"), "new")
        await forget(store, tmp_path, f"fact:{said.id}")
        past = await store.readers.run(tasks.history, ANNA, "kept")
        assert [change.value.message for change in past] == [MARK, ASKS]
        for name in ("kept", "gone"):
            with pytest.raises(CannotUndo, match="forgotten"):
                await store.writer.run(tasks.undo, ANNA, name, None, AT)
    await _same_after_rebuilds(tmp_path)


async def test_a_chat_leaves_its_name_where_the_proof_says(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await titled(store, "krautwurst")
        await store.writer.run(messages.append, [new("Something else", user="anna")])
        done = await forget(store, tmp_path, "chat:krautwurst")
        (left,) = names_left(done.before.reach)
        assert (left["kind"], left["name"], left["folder"]) == ("chat", "krautwurst", "conversations/anna%3Akrautwurst")
        assert holding(tmp_path, *TITLES[:1]) == {}
        inside = {path for path in holding(tmp_path, "krautwurst") if not path.startswith(("klaw.db", "memory/"))}
        assert all(path.startswith(left["folder"]) for path in inside)


async def test_a_forgotten_person_is_looked_for_in_titles_bases_and_tasks(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        write = store.writer.run
        await add(store, NAME)
        await write(messages.append, [new("Хорошая погода сегодня", user="anna")])
        await write(chats.rename, ANNA, chat_id(ANNA, "main"), f"Письмо для {NAME} завтра", AT)
        await write(messages.append, [new("Хорошая погода сегодня", user="anna", chat=NAME)])
        about = Base(id=BaseId("b1"), user=ANNA, name="Письма", description=f"от {NAME}", created_at=AT, updated_at=AT)
        await write(bases.put, about)
        await write(tasks.put, task("write", user="anna", message=f"Написать {NAME}"), "new")
        done = await forget(store, tmp_path, f"person:{NAME}")
        assert dict(done.before.named.others) == {"titles": 1, "bases": 1, "tasks": 1, "chats": 1}
        assert dict(done.still_named) == {"titles": 1, "bases": 1, "tasks": 1, "chats": 1}


async def test_with_messages_titles_name_a_forgotten_person_no_more(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await add(store, NAME)
        await store.writer.run(messages.append, [new("Хорошая погода сегодня", user="anna")])
        for title in (f"{NAME} приедет", f"Письмо для {NAME} завтра"):
            await store.writer.run(chats.rename, ANNA, chat_id(ANNA, "main"), title, AT)
        done = await forget(store, tmp_path, f"person:{NAME}", with_messages=True)
        assert dict(done.still_named) == {}
        assert (await store.readers.run(chats.get, ANNA, chat_id(ANNA, "main"))).title == f"Письмо для {MARK} завтра"
        assert holding(tmp_path, NAME) == {}
    await _same_after_rebuilds(tmp_path)
