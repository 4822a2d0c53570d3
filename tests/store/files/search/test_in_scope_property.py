"""Invariant in-scope, as a property: whatever users, chats, segments, deletions and merges there are, a search of the
store returns no row out of its scope, and finds what is in scope.

A new search is added to ``SEARCHES``: how it is asked, which rows it may give back, and which it has to find.
"""

import itertools
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date

import apsw
import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.domain.message import Message, MessageKind, Role, is_searchable
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.store import migrations
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import messages
from klaw.store.search import vectors
from klaw.store.search.chat_search import ChatScope, Depth, read_messages, search_chat
from klaw.store.search.history_search import HistoryFilters, search_history
from klaw.store.search.history_search import read_messages as read_history
from tests.support.stores import new

DIMENSION = 8
DEPTH = 50
"""More than a world has messages, so that a search has no reason to leave out one that matches."""
USERS = ("ann", "ан")
CHATS = ("main", "дача")
WORDS = ("alarm", "калитка", "猫", "🎂")

Vector = bytes


@attrs.frozen(kw_only=True)
class Said:
    """One step of a world: a message, or ``/new``."""

    user: str
    chat: str
    words: tuple[str, ...]
    role: Role
    kind: MessageKind
    seed: int
    embedded: bool


@attrs.frozen(kw_only=True)
class World:
    """Steps, and what is done to the rows afterwards."""

    said: tuple[Said, ...]
    deleted: frozenset[int]
    """Places of messages whose rows go, while their index entries stay, as after a crash in the middle."""
    merged: tuple[tuple[int, int], ...]
    """Messages that are put under topics: place and topic."""


@attrs.frozen(kw_only=True)
class Asked:
    """One query, from one chat of one user."""

    user: str
    chat: str
    words: tuple[str, ...]
    seed: int
    segment_only: bool
    window: int
    """How many of the newest messages the window shows."""
    depth: int


def said() -> st.SearchStrategy[Said]:
    kinds = [(Role.USER, MessageKind.TEXT)] * 4 + [(Role.ASSISTANT, MessageKind.TEXT)] * 3
    others = [
        (Role.SYSTEM, MessageKind.SESSION_BREAK),
        (Role.USER, MessageKind.COMMAND),
        (Role.ASSISTANT, MessageKind.SCHEDULED),
    ]
    return st.builds(
        lambda role_and_kind, **rest: Said(role=role_and_kind[0], kind=role_and_kind[1], **rest),
        st.sampled_from(kinds + others),
        user=st.sampled_from(USERS),
        chat=st.sampled_from(CHATS),
        words=st.lists(st.sampled_from(WORDS), max_size=3).map(tuple),
        seed=st.integers(0, 1000),
        embedded=st.booleans(),
    )


places = st.integers(0, 30)
worlds = st.builds(
    World,
    said=st.integers(0, 30).flatmap(lambda count: st.lists(said(), min_size=count, max_size=count)).map(tuple),
    deleted=st.frozensets(places, max_size=8),
    merged=st.lists(st.tuples(places, st.integers(1, 3)), max_size=6).map(tuple),
)
questions = st.builds(
    Asked,
    user=st.sampled_from(USERS),
    chat=st.sampled_from(CHATS),
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True).map(tuple),
    seed=st.integers(0, 1000),
    segment_only=st.booleans(),
    window=st.integers(0, 3),
    depth=st.sampled_from([1, 3, DEPTH]),
)


def vector_of(seed: int) -> Vector:
    source = random.Random(seed)
    return struct.pack(f"<{DIMENSION}f", *(source.gauss(0, 1) for _ in range(DIMENSION)))


@attrs.frozen(kw_only=True)
class Kept:
    """A message of the world that is still there, and whether it has a vector."""

    message: Message
    words: tuple[str, ...]
    embedded: bool


def build(connection: apsw.Connection, world: World) -> list[Kept]:
    """Make the world's rows; returns those that are left in the end."""
    kept = []
    for step in world.said:
        text = " ".join(step.words) or "…"
        message = messages.insert(connection, new(text, user=step.user, chat=step.chat, role=step.role, kind=step.kind))
        embedded = step.embedded and is_searchable(step.role, step.kind)
        if embedded:
            vectors.put(connection, [(message.rowid, vector_of(step.seed))])
        kept.append(Kept(message=message, words=step.words, embedded=embedded))
    for place, topic in world.merged:
        if place < len(kept):
            connection.execute("UPDATE messages SET topic_id = ? WHERE rowid = ?", (topic, kept[place].message.rowid))
    for place in world.deleted:
        if place < len(kept):
            connection.execute("DELETE FROM messages WHERE rowid = ?", (kept[place].message.rowid,))
    return [each for place, each in enumerate(kept) if place not in world.deleted]


_CLEAN = """
DELETE FROM vec_messages;
INSERT INTO messages_fts (messages_fts) VALUES ('delete-all');
DELETE FROM messages;
DELETE FROM sessions;
"""


@contextmanager
def in_database(connection: apsw.Connection, world: World) -> Iterator[list[Kept]]:
    """The world's rows, committed, and gone afterwards."""
    with connection:
        kept = build(connection, world)
    try:
        yield kept
    finally:
        with connection:
            connection.execute(_CLEAN)


@attrs.frozen(kw_only=True)
class Search:
    """A search of the store under test."""

    run: Callable[[apsw.Connection, ChatScope, Asked], Sequence[int]]
    """Asks the store; the rowids of the messages that it gave back."""
    in_scope: Callable[[Message, ChatScope, Asked], bool]
    """Whether it may give a message back."""
    matches: Callable[[Kept, Asked], bool]
    """Whether it must find a message that is in scope, as long as its lists have room."""


EVER = (date(2000, 1, 1), date(2100, 1, 1))


def recalled(connection: apsw.Connection, vector: Vector | None, scope: ChatScope, asked: Asked) -> Sequence[int]:
    """What recall asks the store before a reply."""
    words = asked.words if vector is None or asked.seed % 2 else ()
    depth = Depth(vectors=asked.depth, words=asked.depth, spreading=asked.depth)
    found = search_chat(connection, vector, words, (EVER,), scope, depth, seconds=60.0)
    assert not found.vectors_failed
    assert not found.text_failed
    assert not found.cut
    assert len(found.neighbours) <= asked.depth
    assert len(found.hits) <= asked.depth
    assert len(found.dated) <= asked.depth
    rowids = [place.rowid for place in found.places]
    assert [message.rowid for message in read_messages(connection, rowids, scope)] == rowids
    return rowids


def searched(connection: apsw.Connection, vector: Vector | None, asked: Asked) -> Sequence[int]:
    """What ``memory_search`` asks the store: over all chats, or with the filter of one."""
    filters = filters_of(asked)
    found = search_history(connection, vector, asked.words if vector is None else (), filters, asked.depth)
    assert not found.vectors_failed
    assert not found.text_failed
    assert len(found.neighbours) <= asked.depth
    assert len(found.hits) <= asked.depth
    rowids = [place.rowid for place in found.places]
    assert {each.rowid for each in (*found.neighbours, *found.hits)} <= set(rowids)
    assert [message.rowid for message in read_history(connection, rowids, filters.user)] == rowids
    beside = {rowid for place in found.places for rowid in (place.previous, place.next)}
    assert set(rowids) <= {each.rowid for each in (*found.neighbours, *found.hits)} | beside
    return rowids


def filters_of(asked: Asked) -> HistoryFilters:
    user = UserId(asked.user)
    chat = chat_id(user, asked.chat) if asked.segment_only else None
    role = (None, Role.USER, Role.ASSISTANT)[asked.seed % 3]
    return HistoryFilters(user=user, chat=chat, role=role)


def of_the_user(message: Message, _scope: ChatScope, asked: Asked) -> bool:
    filters = filters_of(asked)
    return (
        message.user == filters.user and filters.chat in (None, message.chat) and filters.role in (None, message.role)
    )


def before_the_window(message: Message, scope: ChatScope, _asked: Asked) -> bool:
    return message.chat == scope.chat and scope.first_seq <= message.seq < scope.end_seq


def has_vector(kept: Kept, _asked: Asked) -> bool:
    return kept.embedded


def has_word(kept: Kept, asked: Asked) -> bool:
    return bool(set(kept.words) & set(asked.words))


SEARCHES = {
    "recall by vector": Search(
        run=lambda connection, scope, asked: recalled(connection, vector_of(asked.seed), scope, asked),
        in_scope=before_the_window,
        matches=has_vector,
    ),
    "recall by words": Search(
        run=lambda connection, scope, asked: recalled(connection, None, scope, asked),
        in_scope=before_the_window,
        matches=has_word,
    ),
    "history by vector": Search(
        run=lambda connection, _scope, asked: searched(connection, vector_of(asked.seed), asked),
        in_scope=of_the_user,
        matches=has_vector,
    ),
    "history by words": Search(
        run=lambda connection, _scope, asked: searched(connection, None, asked), in_scope=of_the_user, matches=has_word
    ),
}


def scope_of(connection: apsw.Connection, asked: Asked) -> ChatScope:
    """The scope as a turn makes it: the segment, or all of the chat, up to the window."""
    chat = ChatId(f"{asked.user}:{asked.chat}")
    session = messages.session(connection, chat)
    first = session.segment_start if session and asked.segment_only else 1
    last = session.last_seq if session else 0
    return ChatScope(chat=chat, first_seq=first, end_seq=max(first, last + 1 - asked.window))


_database: list[apsw.Connection] = []


@pytest.fixture(scope="module", autouse=True)
def database(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    """One real file for all worlds, one after the other."""
    connection = apsw.Connection(str(tmp_path_factory.mktemp("scope") / "klaw.db"))
    prepare_writer(connection)
    migrations.migrate(connection)
    vectors.prepare_at_once(connection, "random", DIMENSION)
    _database[:] = [connection]
    return connection


@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds, asked=st.lists(questions, min_size=1, max_size=4))
def test_a_search_returns_nothing_out_of_scope_and_finds_what_is_in_it(
    name: str, world: World, asked: list[Asked]
) -> None:
    search = SEARCHES[name]
    connection = _database[0]
    with in_database(connection, world) as kept:
        for each in asked:
            scope = scope_of(connection, each)
            found = search.run(connection, scope, each)
            assert len(found) == len(set(found)), "nothing twice"
            by_rowid = {one.message.rowid: one.message for one in kept}
            for rowid in found:
                assert rowid in by_rowid, "a row that is gone"
                assert is_searchable(by_rowid[rowid].role, by_rowid[rowid].type)
                assert search.in_scope(by_rowid[rowid], scope, each), "a row out of scope"
            matching = {
                one.message.rowid
                for one in kept
                if is_searchable(one.message.role, one.message.type)
                and search.in_scope(one.message, scope, each)
                and search.matches(one, each)
            }
            if each.depth == DEPTH:
                assert matching <= set(found), "a row in scope that matches was not found"
            elif len(kept) == len(world.said):
                # Entries of deleted rows may fill a short list; without them, rows of other scopes must not.
                assert found or not matching, "something matches, and nothing was found"


def test_the_worlds_hold_what_the_property_is_about() -> None:
    """The property would hold of empty worlds too: see that users, chats, segments and deletions do occur."""
    world = World(
        said=tuple(
            Said(user=user, chat=chat, words=("alarm",), role=Role.USER, kind=MessageKind.TEXT, seed=1, embedded=True)
            for user, chat in itertools.product(USERS, CHATS)
        ),
        deleted=frozenset({1}),
        merged=((0, 1),),
    )
    connection = _database[0]
    asked = Asked(user="ann", chat="main", words=("alarm",), seed=1, segment_only=True, window=0, depth=DEPTH)
    with in_database(connection, world) as kept:
        for search in SEARCHES.values():
            assert search.run(connection, scope_of(connection, asked), asked) == [kept[0].message.rowid]
            gone = attrs.evolve(asked, chat="дача")
            assert search.run(connection, scope_of(connection, gone), gone) == []
