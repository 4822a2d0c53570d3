"""What is forgotten together with something: what was made of it, and what says the same.

``reach`` follows the notes ``MadeFrom`` of all kinds in KINDS until nothing more is found. A preview shows what it
found, and a forgetting carries out what the same function found: see ``plan``. Every question names the user.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.fact import FactId
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName
from klaw.domain.topic import TopicId
from klaw.store.changes import Kind
from klaw.store.engine import meta
from klaw.store.engine.connect import snapshot
from klaw.store.forget import quotes
from klaw.store.forget.quotes import QuotesFound
from klaw.store.forget.trace import ForgetTarget, TaskMade, Trace, tasks_there, trace
from klaw.store.kinds import messages
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.forgetting import turn_links
from klaw.store.kinds.inventory import last_numbers
from klaw.store.kinds.memory_journal import KINDS
from klaw.store.kinds.people import PERSON
from klaw.store.kinds.summaries import SUMMARY
from klaw.store.kinds.topic_changes import TOPIC


@attrs.frozen(kw_only=True)
class Reach:
    """What a forgetting is about."""

    wanted: ForgetTarget
    with_facts: bool
    """Also what is kept on purpose goes, where it was made of the messages or says the same."""
    trace: Trace
    gone: Mapping[str, tuple[Any, ...]]
    """Keys of what goes, by the words of kinds."""
    kept: Mapping[str, tuple[Any, ...]]
    """Keys of what was made of it, or says the same, and stays because people keep it on purpose."""
    tasks: tuple[TaskMade, ...]
    """That are as a call made them; they go with the facts."""
    changed_tasks: tuple[TaskName, ...]
    """That a call made, and that are gone or other ones now: of what they were nothing stays."""
    texts: tuple[str, ...]
    """All that goes as it was said; of an import the longest. Content: never logged."""

    @property
    def user(self) -> UserId:
        return self.wanted.user

    @property
    def rowids(self) -> tuple[int, ...]:
        """Row ids of all messages that go."""
        return (*self.trace.rowids, *self.trace.shown)

    @property
    def facts(self) -> tuple[FactId, ...]:
        return self.gone.get(FACT.what, ())

    @property
    def people(self) -> tuple[PersonId, ...]:
        return self.gone.get(PERSON.what, ())

    @property
    def topics(self) -> tuple[TopicId, ...]:
        return self.gone.get(TOPIC.what, ())

    @property
    def summaries(self) -> tuple[tuple[ChatId, int], ...]:
        return self.gone.get(SUMMARY.what, ())

    @property
    def is_empty(self) -> bool:
        return not (self.trace.asked or any(self.gone.values()) or self.wanted.deleted or self.wanted.tasks)


def reach(connection: apsw.Connection, wanted: ForgetTarget, *, with_facts: bool, traced: Trace | None = None) -> Reach:
    """What was made of a user's messages, and what says the same. Others' messages are left out.

    Args:
        wanted: what goes in any case.
        with_facts: see ``Reach``.
        traced: read a moment ago, and still so (``is_current``).
    """
    user = wanted.user
    traced = traced or trace(connection, wanted, with_tasks=with_facts)
    rowids = traced.rowids
    named: dict[Kind[Any], tuple[Any, ...]] = {
        FACT: wanted.facts,
        PERSON: wanted.people,
        TOPIC: wanted.traces.topics,
        SUMMARY: wanted.traces.summaries,
    }
    makers: dict[str, Collection[Any]] = {
        "message": messages.ids_of(connection, user, rowids),
        "turn": (*traced.turns, *traced.runs),
        "run": traced.runs,
    }
    gone: dict[str, set[Any]] = {kind.what: set(keys) for kind, keys in named.items()}
    kept: dict[str, set[Any]] = {}
    followed: dict[str, set[Any]] = {}
    looked_at: dict[str, int] = {}
    while stale := [kind for kind in _followed() if looked_at.get(kind.what) != _size(kind, makers)]:
        for kind in stale:
            looked_at[kind.what] = _size(kind, makers)
            made, dead = _made(connection, user, kind, makers, traced)
            made |= kind.made_of(connection, user, rowids) if kind.made_of is not None else set()
            goes = with_facts or not kind.on_purpose
            makers[kind.what] = followed[kind.what] = made if goes else set()
            gone[kind.what] = {*gone.get(kind.what, ()), *dead, *followed[kind.what]}
            kept[kind.what] = made - gone[kind.what]
    texts = [*traced.texts]
    for kind in (kind for kind in _followed() if "message" in _makers(kind)):
        for key in sorted(followed[kind.what] - set(named.get(kind, ()))):
            texts += kind.texts(connection, user, key)
    tasks = tasks_there(connection, user, traced.effects)
    return Reach(
        wanted=wanted,
        with_facts=with_facts,
        trace=traced,
        gone={what: tuple(sorted(keys)) for what, keys in gone.items()},
        kept={what: tuple(sorted(keys)) for what, keys in kept.items()},
        tasks=tuple(tasks),
        changed_tasks=tuple(sorted({each.name for each in traced.effects.tasks} - {each.name for each in tasks})),
        texts=tuple(texts),
    )


def _followed() -> list[Kind[Any]]:
    """The kinds that can be made of something; what was made of topics comes behind them."""
    found = [kind for kind in KINDS if kind.made_of is not None or (kind.made_from and (kind.on_purpose or kind.past))]
    return sorted(found, key=lambda kind: kind.made_of is None)


def _makers(kind: Kind[Any]) -> set[str]:
    return {note.what for note in kind.made_from.values()}


def _size(kind: Kind[Any], makers: Mapping[str, Collection[Any]]) -> int:
    return sum(len(makers.get(maker, ())) for maker in _makers(kind))


def _made(
    connection: apsw.Connection, user: UserId, kind: Kind[Any], makers: Mapping[str, Collection[Any]], traced: Trace
) -> tuple[set[Any], set[Any]]:
    """The keys of a kind's things that were ever made of something that goes, or say the same: of those that are there,
    and of removed ones whose history is there."""
    said_by_call = traced.effects.facts if kind is FACT else ()
    exact = {name: note for name, note in kind.made_from.items() if note.what != "topic" and makers.get(note.what)}
    made, dead = _with(connection, user, kind, exact, makers, said_by_call)
    by_topic = {name: note for name, note in kind.made_from.items() if note.what == "topic" and makers.get("topic")}
    if by_topic:
        made |= _of_topics_only(connection, user, kind, list(by_topic), makers)
    if kind.on_purpose and "message" in _makers(kind):  # others only lose the words
        made |= set(quotes.quoting(connection, user, kind, traced.finder))
        dead |= set(quotes.once_quoting(connection, user, kind, traced.finder, gone=True))
    return made, dead


_AMONG = "IN (SELECT value FROM json_each(?))"


def _with(
    connection: apsw.Connection,
    user: UserId,
    kind: Kind[Any],
    notes: Mapping[str, Any],
    makers: Mapping[str, Collection[Any]],
    ids: Sequence[str],
) -> tuple[set[Any], set[Any]]:
    key, source, value = f"{kind.what}_id", kind.past, "value ->> '$.{}'"
    if not kind.past:
        key, source, value = kind.id, kind.table, "{}"
    bound = [user, *(json.dumps(list(makers[note.what])) for note in notes.values()), json.dumps(list(ids))]
    links = [f"{value.format(name)} {_AMONG}" for name in notes]
    there = f"EXISTS (SELECT 1 FROM {kind.table} AS t WHERE t.user_id = p.user_id AND t.{kind.id} = p.{key})"  # noqa: S608
    statement = (
        f"SELECT DISTINCT {key}, {there} FROM {source} AS p WHERE user_id = ?"  # noqa: S608 - constants
        f" AND ({' OR '.join([*links, f'{key} {_AMONG}'])})"
        f"{' AND value IS NOT NULL' if kind.past else ''}"
    )
    rows = connection.execute(statement, bound).fetchall() if notes or ids else []
    return {each for each, is_there in rows if is_there}, {each for each, is_there in rows if not is_there}


def _of_topics_only(
    connection: apsw.Connection,
    user: UserId,
    kind: Kind[Any],
    columns: Sequence[str],
    makers: Mapping[str, Collection[Any]],
) -> set[Any]:
    """What was made of a topic that goes, but not what was made of another message of it, which stays."""
    exact = [name for name, note in kind.made_from.items() if note.what == "message"]
    linked = " OR ".join(f"{column} {_AMONG.replace('value', 'CAST(value AS TEXT)', 1)}" for column in columns)
    statement = f"SELECT {', '.join([kind.id, *exact])} FROM {kind.table} WHERE user_id = ? AND ({linked})"  # noqa: S608
    bound = (user, *[json.dumps(list(makers["topic"]))] * len(columns))
    going = set(makers["message"])

    def stays(message: str | None) -> bool:
        found = messages.find(connection, user, message) if message and message not in going else None
        return found is not None and found.content != ""

    rows: list[Any] = connection.execute(statement, bound).fetchall()
    return {key for key, *of_messages in rows if not any(map(stays, of_messages))}


# -- a plan, and whether it still holds --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ForgetPlan:
    """What a forgetting reaches and what quotes that, of the same moment."""

    reach: Reach
    quotes: QuotesFound
    marks: tuple[Any, ...]
    """When it was made, by the numbers that grow with whatever the trace depends on."""
    last_rowid: int


def plan(connection: apsw.Connection, wanted: ForgetTarget, *, with_facts: bool) -> ForgetPlan:
    """Find out what a forgetting takes, and what quotes it."""
    with snapshot(connection):
        found = reach(connection, wanted, with_facts=with_facts)
        quoting = quotes.look(connection, wanted.user, found.texts, found.rowids, found.trace.asked)
        last = last_numbers(connection)["rowid"]
        return ForgetPlan(reach=found, quotes=quoting, marks=_marks(connection, found), last_rowid=last)


def _marks(connection: apsw.Connection, found: Reach) -> tuple[Any, ...]:
    wanted, traced = found.wanted, found.trace
    by_entry = wanted.facts or wanted.tasks or traced.effects.tasks
    return (
        last_numbers(connection)["change"],
        meta.last_entry(connection) if by_entry else None,
        turn_links.last_in(connection, {each.chat for each in traced.own}),
    )


def is_current(connection: apsw.Connection, plan: ForgetPlan) -> bool:
    """Whether the messages that a plan was made of are the same; facts, topics and the like may be others. Of other
    chats of the user only files, answers of commands, and what a turn or a run has sent there make a difference; to an
    import nothing does."""
    wanted = plan.reach.wanted
    if wanted.channel:
        return True
    if turn_links.linked_since(connection, wanted.user, plan.last_rowid):
        return False
    return _marks(connection, plan.reach) == plan.marks


def renewed(connection: apsw.Connection, plan: ForgetPlan) -> ForgetPlan:
    """A plan as it is now; for the writer, who reads little of it again while everybody waits."""
    found = plan.reach
    if found.wanted.channel:
        return plan
    traced = found.trace if is_current(connection, plan) else None
    return attrs.evolve(plan, reach=reach(connection, found.wanted, with_facts=found.with_facts, traced=traced))
