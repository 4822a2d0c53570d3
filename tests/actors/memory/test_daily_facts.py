"""The talk of a day is drawn into facts once for each user and date, with a scripted model and a real store."""

import datetime as dt
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import trio

from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import ActorSpec, Supervisor
from klaw.config.background import DailyFactsConfig
from klaw.domain.message import Kind, Role
from klaw.domain.names import UserId
from klaw.errors import OverBudget, ProviderTimeout
from klaw.llm.types import Request
from klaw.memory import daily as daily_actor
from klaw.memory.daily import Daily, DailyMetrics, DailyServices
from klaw.memory.facts import Facts
from klaw.memory.topics.drawer import FactDrawer
from klaw.store.sql import background, facts, people
from klaw.store.store import Store
from tests.actors.memory.test_archivist import off
from tests.actors.memory.test_drawing_facts import item, of_facts, said, scripted
from tests.support.making import new, running_store
from tests.support.people import people_drawer
from tests.support.scripted import Scripted, TestClock, archiving
from tests.support.topics import archive
from tests.support.waiting import HANG_S

BERLIN = "Europe/Berlin"
HOUR_S = 3600


def moment(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


DUE = moment("2026-11-22T03:30:00+01:00")
"""When 21 November is due."""
TALK = moment("2026-11-21T12:00:00+01:00")


async def tell(
    store: Store, *texts: str, at: float = TALK, user: str = "anna", chat: str = "main", **more: Any
) -> None:
    await store.writer.append([new(text, user=user, chat=chat, at=at + n, **more) for n, text in enumerate(texts)])


@asynccontextmanager
async def drawing(
    store: Store,
    model: Scripted,
    clock: TestClock,
    *,
    daily: Daily | None = None,
    topics: bool = False,
    catch_up_days: int = 7,
) -> AsyncIterator[Daily]:
    """The actor, when it has done what it could."""
    daily, numbers = daily or Daily(), count(1)
    kept = Facts(store.writer, store.readers, off(), clock, lambda: f"daily{clock.at:.0f}-{next(numbers)}")
    services = DailyServices(
        config=DailyFactsConfig(enabled=True, catch_up_days=catch_up_days),
        zone=BERLIN,
        with_topics=topics,
        readers=store.readers,
        writer=store.writer,
        drawer=FactDrawer(model.asker(), kept, people_drawer(store), store.readers),
        metrics=DailyMetrics(Metrics()),
        clock=clock,
    )
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, clock)
        spec = ActorSpec(
            name=daily_actor.ACTOR_NAME,
            run=partial(daily_actor.run, daily=daily, services=services),
            stop_budget_s=1,
        )
        await supervisor.start(spec)
        await settled(daily)
        yield daily
        await supervisor.stop(daily_actor.ACTOR_NAME, "test is over")


async def settled(daily: Daily) -> None:
    daily.nudge()
    with trio.fail_after(HANG_S):
        await daily.wait_idle()


def shown(model: Scripted) -> list[list[str]]:
    """What was said, as each question showed it."""
    asked = [request.messages[1].content for request in model.requests if of_facts(request)]
    return [[line.split(": ", 1)[1] for line in each.split("\n") if line.startswith("#")] for each in asked]


async def texts(store: Store, user: str = "anna") -> list[str]:
    return [each.text for each in await store.readers.run(facts.of_user, UserId(user))]


async def done(store: Store, user: str = "anna") -> set[str]:
    return await store.readers.run(background.done_days, UserId(user), "")


def nothing(_request: Request) -> str:
    return said()


async def test_a_day_is_drawn_at_its_time_once_over_all_chats(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        name = "Аня" if "подругу" in request.messages[1].content else "Boris"
        return said(item(f"{name} is a friend of the user"))

    model, clock = scripted(answer), TestClock(DUE - 1)
    async with running_store(tmp_path) as store:
        await tell(store, "Мою подругу зовут Аня")
        await tell(store, "Boris is my friend", chat="work")
        await tell(store, "the day after", at=DUE - HOUR_S)
        async with drawing(store, model, clock) as daily:
            assert shown(model) == []
            assert daily.status.next_at == "2026-11-22T02:30:00.000Z"
            clock.at = DUE
            await settled(daily)
            assert shown(model) == [["Мою подругу зовут Аня"], ["Boris is my friend"]]
            assert sorted(await texts(store)) == ["Boris is a friend of the user", "Аня is a friend of the user"]
            assert (daily.status.days, daily.status.last_day) == (1, "2026-11-21")
            assert daily.status.next_at == "2026-11-23T02:30:00.000Z"
            kept = await store.readers.run(facts.of_user, UserId("anna"))
            assert {(fact.day, fact.topic) for fact in kept} == {("2026-11-21", None)}
            await settled(daily)
        async with drawing(store, model, clock):
            pass
    async with running_store(tmp_path) as store, drawing(store, model, clock):
        assert len(shown(model)) == 2
        assert await done(store) == {"2026-11-21"}


async def test_what_is_no_source_is_not_shown_and_days_without_the_user_cost_nothing(tmp_path: Path) -> None:
    model = scripted(nothing)
    async with running_store(tmp_path) as store:
        await tell(store, "Good morning!", role=Role.ASSISTANT, at=TALK - 86_400)
        await store.writer.append(
            [
                new("Find me a flat", user="anna", at=TALK),
                new("{}", user="anna", at=TALK, role=Role.TOOL, kind=Kind.TOOL_RESULT, turn="t1"),
                new("REPEATED the user is Mallory", user="anna", at=TALK, role=Role.ASSISTANT, turn="t1"),
                new("TASK weather", user="anna", at=TALK, role=Role.ASSISTANT, kind=Kind.SCHEDULED),
                new("Do you like Berlin?", user="anna", at=TALK, role=Role.ASSISTANT, turn="t2"),
                new("Yes, I live there", user="anna", at=TALK),
            ]
        )
        async with drawing(store, model, TestClock(DUE)):
            assert shown(model) == [["Find me a flat", "Do you like Berlin?", "Yes, I live there"]]


async def test_missed_days_are_made_up_for_and_older_ones_left_alone(tmp_path: Path) -> None:
    model = scripted(nothing)
    async with running_store(tmp_path) as store:
        for ago in (4, 3, 2, 0):
            await tell(store, f"{ago} days before", at=TALK - ago * 86_400)
        async with drawing(store, model, TestClock(DUE), catch_up_days=4):
            assert shown(model) == [["3 days before"], ["2 days before"], ["0 days before"]]
            assert await done(store) == {"2026-11-18", "2026-11-19", "2026-11-21"}


async def test_a_clock_that_is_put_back_does_no_day_twice(tmp_path: Path) -> None:
    model, clock = scripted(nothing), TestClock(DUE + 60)
    async with running_store(tmp_path) as store:
        await tell(store, "hello")
        async with drawing(store, model, clock) as daily:
            for now in (DUE - HOUR_S, DUE - 5 * 86_400, DUE, DUE + 30, DUE + 86_400):
                clock.at = now
                await settled(daily)
            assert shown(model) == [["hello"]]


async def test_the_hour_that_comes_twice_does_no_day_twice_and_loses_nothing(tmp_path: Path) -> None:
    model = scripted(nothing)
    clock = TestClock(moment("2026-10-25T03:30:00+01:00"))
    async with running_store(tmp_path) as store:
        await tell(store, "before", at=moment("2026-10-24T23:59:00+02:00"))
        await tell(store, "first", at=moment("2026-10-25T02:30:00+02:00"))
        await tell(store, "second", at=moment("2026-10-25T02:30:00+01:00"))
        await tell(store, "late", at=moment("2026-10-25T23:59:00+01:00"))
        async with drawing(store, model, clock) as daily:
            assert shown(model) == [["before"]]
            clock.at += 86_400
            await settled(daily)
            assert shown(model) == [["before"], ["first", "second", "late"]]


async def test_a_failing_day_waits_by_itself_and_others_go_on(tmp_path: Path) -> None:
    broken = [ProviderTimeout("slow"), OverBudget("used up"), ProviderTimeout("slow")]

    def answer(request: Request) -> str:
        if "trouble" in request.messages[1].content and broken:
            raise broken.pop(0)
        return said()

    model, daily = scripted(answer), Daily()
    async with running_store(tmp_path) as store:
        await tell(store, "trouble")
        await tell(store, "the day before", at=TALK - 86_400)
        await tell(store, "another user", user="boris")
        async with drawing(store, model, TestClock(DUE), daily=daily):
            assert sorted(map(str, shown(model))) == ["['another user']", "['the day before']", "['trouble']"]
            assert daily.status.failing == 1
            assert await done(store) == {"2026-11-20"}
            assert await done(store, "boris") == {"2026-11-21"}
            await settled(daily)
            assert len(shown(model)) == 3  # it waits
            now = trio.current_time()
            assert now + 290 < (daily.backoff.next(now) or 0) <= now + 300
        async with drawing(store, model, TestClock(DUE), daily=daily):
            assert len(shown(model)) == 3  # also over a restart of the actor
        async with drawing(store, model, TestClock(DUE)):  # of the process
            assert len(shown(model)) == 4
        broken.clear()
        async with drawing(store, model, TestClock(DUE)) as again:
            assert await done(store) == {"2026-11-20", "2026-11-21"}
            assert (again.status.failing, again.status.error) == (0, None)


async def test_nonsense_ends_the_day_without_a_fact(tmp_path: Path) -> None:
    model = scripted(lambda _request: "I cannot help with that.")
    async with running_store(tmp_path) as store:
        await tell(store, "hello")
        async with drawing(store, model, TestClock(DUE)):
            assert len(shown(model)) == 2  # asked once more, with the error
            assert await texts(store) == []
            assert await done(store) == {"2026-11-21"}


async def test_a_crash_between_the_pages_asks_about_the_rest_only(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(daily_actor, "PAGE", 2)
    seen = 0

    def answer(_request: Request) -> str:
        nonlocal seen
        seen += 1
        if seen == 2:
            raise ProviderTimeout("slow")
        return said(item("The user has a cat"))

    model = scripted(answer)
    async with running_store(tmp_path) as store:
        await tell(store, "one", "two", "three")
        async with drawing(store, model, TestClock(DUE)):
            assert await done(store) == set()
    async with running_store(tmp_path) as store, drawing(store, model, TestClock(DUE)):
        assert shown(model) == [["one", "two"], ["three"], ["three"]]
        assert await texts(store) == ["The user has a cat"]  # the second time it was known
        assert await done(store) == {"2026-11-21"}


async def test_with_topics_nothing_is_paid_for_twice(tmp_path: Path) -> None:
    model = scripted(nothing)
    async with running_store(tmp_path) as store:
        await tell(store, "in a topic")
        await archive(store, [1], facts=True)
        await tell(store, "not in one yet", at=TALK + HOUR_S)
        async with drawing(store, model, TestClock(DUE), topics=True):
            assert shown(model) == [["not in one yet"]]
        clock, numbers = TestClock(DUE + 86_400), count(1)
        kept = Facts(store.writer, store.readers, off(), clock, lambda: f"topic{next(numbers)}")
        hook = FactDrawer(model.asker(), kept, people_drawer(store), store.readers)
        async with archiving(store, model, clock, off(), on_topic=[hook]) as (archivist, _):
            archivist.nudge()
            with trio.fail_after(HANG_S):
                await archivist.wait_idle()
            assert shown(model) == [["not in one yet"]]


async def test_facts_that_topics_left_undrawn_are_drawn_when_topics_are_off(tmp_path: Path) -> None:
    model = scripted(nothing)
    async with running_store(tmp_path) as store:
        await tell(store, "drawn", "left")
        await archive(store, [1], facts=True)
        await archive(store, [2])
        async with drawing(store, model, TestClock(DUE)):
            assert shown(model) == [["left"]]


async def test_nothing_of_another_user_is_shown_or_kept(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        material = request.messages[1].content
        assert ("mine" in material) != ("yours" in material)
        return said(item("The user said mine" if "mine" in material else "The user said yours"))

    async with running_store(tmp_path) as store:
        await tell(store, "mine")
        await tell(store, "yours", user="boris")
        async with drawing(store, scripted(answer), TestClock(DUE)):
            assert await texts(store) == ["The user said mine"]
            assert await texts(store, "boris") == ["The user said yours"]


async def test_people_are_drawn_too(tmp_path: Path) -> None:
    anya = {"action": "add", "person": 0, "into": 0, "name": "Аня", "aliases": [], "relation": "сестра", "message": 1}
    model = scripted(lambda _request: json.dumps({"facts": [], "people": [anya]}))
    async with running_store(tmp_path) as store:
        await tell(store, "Моя сестра Аня звонила")
        async with drawing(store, model, TestClock(DUE)) as daily:
            await settled(daily)
        (known,) = await store.readers.run(people.of_user, UserId("anna"))
        assert (known.person.name, known.person.relation, known.topics) == ("Аня", "сестра", 1)
        (spoken,) = await store.readers.run(people.mentions, UserId("anna"), known.person.id)
        assert (spoken.topic, spoken.day) == (None, "2026-11-21")
        assert await store.readers.run(people.of_user, UserId("boris")) == []


async def test_the_journal_alone_brings_the_days_back(tmp_path: Path) -> None:
    model = scripted(lambda _request: said(item("The user has a dog")))
    async with running_store(tmp_path) as store:
        await tell(store, "I have a dog")
        async with drawing(store, model, TestClock(DUE)):
            (before,) = await store.readers.run(facts.of_user, UserId("anna"))
    remove_database(tmp_path)
    async with running_store(tmp_path) as store, drawing(store, model, TestClock(DUE)):
        assert len(shown(model)) == 1
        assert await store.readers.run(facts.of_user, UserId("anna")) == [before]
        assert await store.readers.run(background.drawn_with_day, UserId("anna"), [1]) == {1}
        assert await store.readers.run(background.drawn_with_day, UserId("boris"), [1]) == set()


def remove_database(root: Path) -> None:
    for file in root.glob("klaw.db*"):
        file.unlink()


def journal_lines(root: Path) -> list[dict[str, Any]]:
    """All of the memory journal."""
    files = sorted((root / "memory").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def rows(file: Path, table: str) -> list[Any]:
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(f"SELECT * FROM {table}"))
    finally:
        connection.close()


async def test_the_journals_lines_hold_nothing_that_was_said(tmp_path: Path) -> None:
    model = scripted(nothing)
    async with running_store(tmp_path) as store:
        await tell(store, "PLANTED")
        async with drawing(store, model, TestClock(DUE)):
            pass
    lines = journal_lines(tmp_path)
    assert [(line["what"], line["key"], line["value"]) for line in lines] == [
        ("day", "2026-11-21", {"messages": [[1, 1]], "done": True})
    ]
    assert rows(tmp_path / "klaw.db", "day_entries")[0][2] == "2026-11-21"
