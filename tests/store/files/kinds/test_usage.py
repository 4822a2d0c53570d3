"""Usage in a real store: sums add up whatever they are made for, survive a reindex, and never mix users."""

import json
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.actor.clock import iso
from klaw.domain.message import TurnRecord, TurnStatus
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.domain.task import Run, RunKind, RunStatus, TaskName
from klaw.domain.usage import FIELDS, UsageSum, add, record
from klaw.store import migrations
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import messages, runs, turns, usage
from klaw.store.kinds.usage import UsageFilters
from tests.support.stores import START, new

DAY_S = 86_400
SMALL = st.integers(0, 10_000)
SPENT = st.builds(UsageSum, **(dict.fromkeys(FIELDS, SMALL) | {"calls": st.integers(1, 9)}))
CALLS = st.dictionaries(st.sampled_from(["local/m", "cloud/a", "router/б/в"]), SPENT, max_size=3)
WORK = st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from(["main", "дача", None]), st.integers(0, 3), CALLS)
"""Whose; which chat, None for a run; on which day; the calls."""


def database(path: Path | str = ":memory:") -> apsw.Connection:
    connection = apsw.Connection(str(path))
    prepare_writer(connection)
    prepare_writer(connection)
    migrations.migrate(connection)
    return connection


def a_turn(number: int, chat: ChatId, day: int, kept: dict[str, Any], **more: Any) -> TurnRecord:
    at = iso(START + day * DAY_S)
    given_ = {"status": TurnStatus.DONE, "model": "cloud/a", "receipt": {}} | more
    return TurnRecord(
        id=f"t{number:06}", chat=chat, user=UserId(chat.partition(":")[0]), segment=0, first_seq=1, last_seq=1,
        started_at=at, ended_at=at, error=None, usage=kept, timings={}, **given_,
    )  # fmt: skip


def a_run(number: int, user: str, day: int, **more: Any) -> Run:
    at = iso(START + day * DAY_S)
    given_ = {"status": RunStatus.DONE, "ended_at": at, "model": "cloud/a"} | more
    return Run(
        id=f"r{number}", user=UserId(user), task=TaskName("news"), kind=RunKind.MANUAL, due=iso(START + number),
        message="", started_at=at, **given_,
    )  # fmt: skip


def put_chat(connection: apsw.Connection, user: str, name: str) -> ChatId:
    messages.insert(connection, new(user=user, chat=name))
    return chat_id(UserId(user), name)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORK, max_size=12))
def test_sums_add_up_for_every_question(work: list[tuple[str, str | None, int, dict[str, UsageSum]]]) -> None:
    connection = database()
    chats = {(user, name): put_chat(connection, user, name) for user in ("ann", "bob") for name in ("main", "дача")}
    for number, (user, name, day, calls) in enumerate(work):
        if name is None:
            runs.put(connection, a_run(number, user, day, status=RunStatus.RUNNING, ended_at=None))
            runs.put(connection, a_run(number, user, day, details={"usage": record(calls)}))
        else:
            turns.insert(connection, a_turn(number, chats[user, name], day, record(calls)))
            turns.insert(connection, a_turn(number, chats[user, name], day, record(calls)))  # a repetition

    def expected(keep: Any) -> UsageSum:
        return add(spent for each in work if keep(each) for spent in each[3].values())

    assert usage.total(connection, UsageFilters()) == expected(lambda _each: True)
    for by in ("chat", "model", "day", "task"):
        assert add(group.spent for group in usage.groups(connection, UsageFilters(), by)) == expected(lambda _: True)
    for user in ("ann", "bob"):
        mine = UsageFilters(user=UserId(user))
        assert usage.total(connection, mine) == expected(lambda each, user=user: each[0] == user)
        keys = {group.key for group in usage.groups(connection, mine, "chat")} - {None}
        assert all(key.startswith(f"{user}:") for key in keys)
        seen = usage.of_chat(connection, chats[user, "дача"], iso(START + 3 * DAY_S)[:10])
        assert seen.chat == expected(lambda each, user=user: each[:2] == (user, "дача"))
        assert seen.today == expected(lambda each, user=user: each[0] == user and each[2] == 3)
    days = {group.key: group.spent for group in usage.groups(connection, UsageFilters(), "day")}
    assert all(
        days.get(iso(START + day * DAY_S)[:10], UsageSum()) == expected(lambda e, d=day: e[2] == d) for day in range(4)
    )
    connection.execute("DELETE FROM turns; DELETE FROM runs")
    assert usage.total(connection, UsageFilters()) == UsageSum()
    connection.close()


OLD = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": None}


def test_records_of_earlier_versions_count_with_an_unknown_price() -> None:
    connection = database()
    chat = put_chat(connection, "ann", "main")
    turns.insert(connection, a_turn(1, chat, 0, OLD))
    turns.insert(connection, a_turn(2, chat, 0, OLD, model="local/m"))
    turns.insert(connection, a_turn(3, chat, 0, {}))
    runs.put(connection, a_run(4, "ann", 0, prompt_tokens=7, completion_tokens=3))
    found = {group.key: group.spent for group in usage.groups(connection, UsageFilters(), "model")}
    assert set(found) == {"cloud/a", "local/m"}
    assert (found["cloud/a"].calls, found["cloud/a"].unpriced_calls, found["cloud/a"].unpriced_tokens) == (2, 2, 130)
    assert (found["local/m"].prompt_tokens, found["local/m"].unpriced_calls, found["local/m"].cost_nano) == (100, 0, 0)
    connection.close()


@pytest.mark.parametrize(
    "kept",
    [
        {"models": "no list"},
        {"models": [1, None, "text", []]},
        {"models": [{"model": None, "prompt_tokens": "много", "cost_nano": {"a": 1}}]},
        {"models": [{"model": "x/y", "calls": 1e300, "cost_nano": -5}, {"model": "x/y"}]},
        {"prompt_tokens": "12"},
    ],
)
def test_a_broken_record_of_the_logs_stops_nothing(kept: dict[str, Any]) -> None:
    connection = database()
    chat = put_chat(connection, "ann", "main")
    assert turns.insert(connection, a_turn(1, chat, 0, kept))
    assert usage.total(connection, UsageFilters()).prompt_tokens == 0
    connection.close()


def test_a_database_of_an_earlier_schema_gets_its_usage(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    prepare_writer(connection)
    prepare_writer(connection)
    for number in (1, 2, 3):
        connection.execute(migrations.scripts()[number])
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', '3')")
    chat = put_chat(connection, "ann", "main")
    turns.insert(connection, a_turn(1, chat, 0, OLD))
    runs.put(connection, a_run(2, "ann", 0, details={"usage": record({"cloud/b": UsageSum(calls=1, cost_nano=9)})}))
    migrations.migrate(connection)
    found = {group.key: group.spent.cost_nano for group in usage.groups(connection, UsageFilters(), "model")}
    assert found == {"cloud/a": 0, "cloud/b": 9}
    connection.close()


def test_corrections_are_those_of_the_newest_turns() -> None:
    connection = database()
    chat = put_chat(connection, "ann", "main")
    for number, (model, ratio) in enumerate([("a/b", 1.5), ("c/d", "junk"), ("a/b", 1.25), ("e/f", None), ("g/h", 2)]):
        receipt = {"budget": {"correction": ratio}}
        turns.insert(connection, a_turn(number, chat, 0, {}, model=model, receipt=receipt))
    assert usage.corrections(connection, 200) == {"a/b": 1.25, "g/h": 2.0}
    assert usage.corrections(connection, 1) == {"g/h": 2.0}
    connection.close()


CHOICES = st.lists(st.sampled_from(["cloud/a", "облако/б", None, 5, "none"]), max_size=8)


@settings(max_examples=40, deadline=None)
@given(CHOICES, st.randoms())
def test_the_last_choice_of_a_model_counts_in_whatever_order_the_logs_bring_it(choices: list[Any], random: Any) -> None:
    connection, other = database(), database()
    stored = []
    for choice in choices:
        metadata = {} if choice == "none" else {"model": choice}
        system = {"role": messages.Role.SYSTEM, "kind": messages.MessageKind.COMMAND}
        stored.append(messages.insert(connection, new("ok", **system, **metadata)))
        stored.append(messages.insert(connection, new("/model нет/такой")))
    chosen = [choice for choice in choices if choice not in ("none", 5)]
    random.shuffle(stored)
    for message in stored:
        messages.restore(other, message)
    for each in (connection, other):
        session = messages.session(each, chat_id(UserId("local"), "main"))
        assert (session.model if session else None) == (chosen[-1] if chosen else None)
        each.close()


def test_fields_of_the_table_are_those_of_the_value() -> None:
    connection = database()
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('charges')")]
    assert tuple(columns[7:]) == FIELDS
    assert json.loads(json.dumps(record({"a/b": UsageSum(calls=1)})))["models"][0].keys() == {
        "model",
        *attrs.asdict(UsageSum()),
    }
    connection.close()
