"""Search over a user's whole history, and in long chats: by codes and by words, never another user's row."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.actor.clock import iso
from klaw.domain.message import Message, Role
from klaw.domain.names import UserId, chat_id
from klaw.store import migrations
from klaw.store.engine import connect, meta
from klaw.store.kinds import messages
from klaw.store.search import fulltext, history_search, vector_codes, vector_search, vectors
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.chat_search import ChatScope, Depth, search_chat
from klaw.store.search.history_search import HistoryFilters, search_history
from klaw.store.search.ranked_lists import Lists
from tests.support.stores import START, new, running_store

DIMENSION = 64
ANN, BOB = UserId("ann"), UserId("bob")
SAMPLE = 100


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same paths with few rows."""
    monkeypatch.setattr(vector_codes, "CENTRE_SAMPLE", SAMPLE)
    monkeypatch.setattr(vector_codes, "STEP", 40)
    monkeypatch.setattr(vector_search, "EXACT_UNTIL", 50)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    made = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(made)
    migrations.migrate(made)
    vectors.prepare_at_once(made, "model", DIMENSION)
    yield made
    made.close()


def narrow_cone(count: int, seed: int = 1) -> np.ndarray:
    """Vectors as a model makes them: unit length, all in one direction, with topics."""
    numbers = np.random.default_rng(seed)
    topics = numbers.standard_normal((12, DIMENSION))[numbers.integers(0, 12, count)]
    spread = 0.5 * topics / 8 + 0.5 * numbers.standard_normal((count, DIMENSION)) / 8
    made = np.eye(DIMENSION)[0] + spread
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype("<f4")


def put(
    connection: apsw.Connection, made: np.ndarray, users: Sequence[UserId] = (ANN,), text: str = "hello there"
) -> list[Message]:
    """Store messages with vectors, of the users in turn, each in three chats, a minute apart."""
    stored = [
        messages.insert(
            connection,
            new(
                f"{text} {place}",
                user=users[place % len(users)],
                chat=f"chat{place // len(users) % 3}",
                role=Role.USER if place // 2 % 2 else Role.ASSISTANT,
                at=START + 60 * place,
            ),
        )
        for place in range(len(made))
    ]
    vectors.put(connection, [(message.rowid, row.tobytes()) for message, row in zip(stored, made, strict=True)])
    return stored


def encode_all(connection: apsw.Connection) -> None:
    while vector_codes.advance(connection):
        pass


def nearest_of(made: np.ndarray, query: np.ndarray, allowed: Sequence[int], count: int) -> list[int]:
    return sorted(allowed, key=lambda place: -float(made[place] @ query))[:count]


def test_the_nearest_of_a_user_are_found_by_their_codes(connection: apsw.Connection) -> None:
    made = narrow_cone(600)
    stored = put(connection, made, (ANN, BOB))
    encode_all(connection)
    state = vector_codes.state(connection)
    assert state is not None
    assert state.complete
    for place in range(0, 600, 37):
        user = stored[place].user
        found = search_history(connection, made[place].tobytes(), [], HistoryFilters(user=user), 10)
        own = [each for each in range(600) if stored[each].user == user]
        expected = {stored[each].rowid for each in nearest_of(made, made[place], own, 10)}
        assert len({each.rowid for each in found.neighbours} & expected) >= 9
        assert {stored[place.rowid - 1].user for place in found.places} == {user}
        assert found.vectors_complete


def test_a_hit_tells_how_many_of_the_words_it_has(connection: apsw.Connection) -> None:
    texts = ("the key of the garden", "a garden", "nothing of it")
    made = [messages.insert(connection, new(text, user=ANN)).rowid for text in texts]
    found = search_history(connection, None, ["key", "garden"], HistoryFilters(user=ANN), 10)
    assert {each.rowid: each.shared for each in found.hits} == {made[0]: 2, made[1]: 1}


def test_all_filters_act_before_the_cut(connection: apsw.Connection) -> None:
    made = narrow_cone(500)
    stored = put(connection, made, (ANN, BOB))
    encode_all(connection)
    since, until = iso(START + 60 * 100), iso(START + 60 * 220)
    filters = HistoryFilters(user=ANN, chat=chat_id(ANN, "chat1"), since=since, until=until, role=Role.USER)
    allowed = {
        message.rowid
        for message in stored
        if message.user == ANN
        and message.chat == filters.chat
        and since <= message.created_at < until
        and message.role is Role.USER
    }
    assert len(allowed) == 10
    # The query is nearest to messages outside.
    found = search_history(connection, made[400].tobytes(), ["hello"], filters, 100)
    assert {each.rowid for each in found.neighbours} == allowed
    assert {each.rowid for each in found.hits} == allowed


def test_a_range_ends_within_a_second(connection: apsw.Connection) -> None:
    made = narrow_cone(SAMPLE + 4)
    put(connection, made[:SAMPLE])
    late = [
        messages.insert(connection, new("late words here", user=ANN, at=START + 9_000_000 + tenth / 10))
        for tenth in range(4)
    ]
    vectors.put(connection, [(m.rowid, row.tobytes()) for m, row in zip(late, made[SAMPLE:], strict=True)])
    encode_all(connection)
    filters = HistoryFilters(user=ANN, since=late[1].created_at, until=late[3].created_at)
    found = search_history(connection, made[0].tobytes(), ["late"], filters, 10)
    assert {each.rowid for each in found.neighbours} == {late[1].rowid, late[2].rowid}
    assert {each.rowid for each in found.hits} == {late[1].rowid, late[2].rowid}


def test_without_codes_all_vectors_are_measured(connection: apsw.Connection) -> None:
    made = narrow_cone(SAMPLE - 1)
    stored = put(connection, made, (ANN, BOB))
    encode_all(connection)
    assert vector_codes.state(connection) is None
    found = search_history(connection, made[4].tobytes(), [], HistoryFilters(user=ANN), 5)
    own = [each for each in range(len(made)) if stored[each].user == ANN]
    assert [n.rowid for n in found.neighbours] == [stored[each].rowid for each in nearest_of(made, made[4], own, 5)]
    assert found.vectors_complete


def test_what_has_no_code_yet_is_measured_and_the_result_says_when_that_is_not_all(
    connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = narrow_cone(300)
    stored = put(connection, made)
    vector_codes.advance(connection)
    newest = search_history(connection, made[299].tobytes(), [], HistoryFilters(user=ANN), 1)
    assert newest.neighbours[0].rowid == stored[299].rowid
    assert newest.vectors_complete
    monkeypatch.setattr(history_search, "MAX_UNCODED", 50)
    assert not search_history(connection, made[299].tobytes(), [], HistoryFilters(user=ANN), 1).vectors_complete


def test_vectors_that_come_while_older_ones_are_encoded_are_encoded_once(connection: apsw.Connection) -> None:
    made = narrow_cone(400)
    first = [messages.insert(connection, new("some words", user=ANN, chat="a")) for _ in range(400)]
    order = list(range(400))
    random.Random(5).shuffle(order)  # long messages get their vectors later than short ones
    for start in range(0, 400, 25):
        part = order[start : start + 25]
        vectors.put(connection, [(first[place].rowid, made[place].tobytes()) for place in part])
        vector_codes.advance(connection)
    encode_all(connection)
    state = vector_codes.state(connection)
    assert state is not None
    wanted = vector_codes.Filters(user=ANN)
    coded = [rowid for rowid, _ in vector_codes.candidates(connection, state, made[0].tobytes(), wanted, 1000, 1000)]
    assert sorted(coded) == [message.rowid for message in first]


def test_a_database_of_the_version_before_gets_its_codes_without_embedding(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(connection)
    migrations.migrate(connection)
    connection.execute("DROP TABLE vec_messages")
    connection.execute(vectors.table(DIMENSION, chunk_size=256))
    meta.put(connection, "embedding_model", "model")
    meta.put(connection, "embedding_dimension", str(DIMENSION))
    made = narrow_cone(300)
    for place, row in enumerate(made):
        message = messages.insert(connection, new(f"words {place}", user=ANN, chat="a"))
        connection.execute("UPDATE messages SET embedded = 1 WHERE rowid = ?", (message.rowid,))
        connection.execute(
            "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (?, 1, ?, ?)",
            (message.rowid, message.seq, row.tobytes()),
        )
    before = search_history(connection, made[7].tobytes(), [], HistoryFilters(user=ANN), 10)
    assert not vectors.prepare_at_once(connection, "model", DIMENSION)
    encode_all(connection)
    after = search_history(connection, made[7].tobytes(), [], HistoryFilters(user=ANN), 10)
    state = vector_codes.state(connection)
    assert state is not None
    assert state.complete
    assert [each.rowid for each in after.neighbours] == [each.rowid for each in before.neighbours]
    connection.close()


def test_another_model_drops_the_codes(connection: apsw.Connection) -> None:
    put(connection, narrow_cone(200))
    encode_all(connection)
    assert vectors.prepare_at_once(connection, "another", 32)
    assert vector_codes.state(connection) is None
    assert vector_codes.count(connection, 1) == 0
    found = search_history(connection, bytes(4 * 32), ["hello"], HistoryFilters(user=ANN), 5)
    assert len(found.hits) == 5
    assert not found.neighbours


def test_a_long_chat_is_searched_by_codes_within_its_bounds(connection: apsw.Connection) -> None:
    made = narrow_cone(600)
    stored = put(connection, made, (ANN, BOB))
    encode_all(connection)
    chat = chat_id(ANN, "chat0")
    own = [place for place, message in enumerate(stored) if message.chat == chat]
    assert len(own) > vector_search.EXACT_UNTIL
    for place in own[::20]:
        scope, depth = ChatScope(chat=chat, first_seq=11, end_seq=91), Depth(vectors=10, words=10, spreading=10)
        found = search_chat(connection, made[place].tobytes(), [], (), scope, depth, 60.0)
        inside = [each for each in own if 11 <= stored[each].seq < 91]
        expected = {stored[each].rowid for each in nearest_of(made, made[place], inside, 10)}
        assert len({each.rowid for each in found.neighbours} & expected) >= 9
        assert all(11 <= place.seq < 91 for place in found.places)
        distances = [each.distance for each in found.neighbours]
        assert distances == sorted(distances)


def test_a_message_that_is_gone_is_not_found(connection: apsw.Connection) -> None:
    made = narrow_cone(300)
    stored = put(connection, made)
    encode_all(connection)
    gone = stored[7]
    connection.execute("DELETE FROM messages WHERE rowid = ?", (gone.rowid,))
    found = search_history(connection, made[7].tobytes(), ["hello"], HistoryFilters(user=ANN), 300)
    assert gone.rowid not in {each.rowid for each in [*found.neighbours, *found.hits]}
    assert len(found.hits) == 299


def test_a_damaged_vector_spoils_nothing_else(connection: apsw.Connection) -> None:
    made = narrow_cone(300)
    made[3] = np.nan
    stored = put(connection, made)
    encode_all(connection)
    found = search_history(connection, made[7].tobytes(), [], HistoryFilters(user=ANN), 5)
    assert found.neighbours[0].rowid == stored[7].rowid
    assert stored[3].rowid not in {each.rowid for each in found.neighbours}


@pytest.mark.parametrize(("word", "filler"), [("needle", "hay"), ("иголка", "сено")])
def test_many_matches_of_other_users_hide_nothing(connection: apsw.Connection, word: str, filler: str) -> None:
    for number in range(300):
        messages.insert(connection, new(f"{word} {word} {number}", user=BOB))
    (mine,) = [messages.insert(connection, new(f"{word} {filler} {filler} {filler}", user=ANN))]
    found = search_history(connection, None, [word], HistoryFilters(user=ANN), 5)
    assert [each.rowid for each in found.hits] == [mine.rowid]


def test_the_user_who_owns_almost_everything_gets_no_row_of_others(connection: apsw.Connection) -> None:
    for number in range(50):
        messages.insert(connection, new(f"needle {number}", user=BOB))
    theirs = messages.insert(connection, new("needle", user=ANN))
    found = search_history(connection, None, ["needle"], HistoryFilters(user=BOB), 100)
    assert len(found.hits) == 50
    assert theirs.rowid not in {each.rowid for each in found.hits}


def test_another_users_chat_is_nothing(connection: apsw.Connection) -> None:
    messages.insert(connection, new("needle", user=ANN, chat="a"))
    filters = HistoryFilters(user=BOB, chat=chat_id(ANN, "a"))
    assert search_history(connection, None, ["needle"], filters, 5) == Lists()


def test_frequent_words_are_left_out_beside_a_rare_one(
    connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulltext, "MAX_RANKED", 50)
    for number in range(200):
        messages.insert(connection, new("often said", user=ANN))
        if number == 90:
            rare = messages.insert(connection, new("seldom heard", user=ANN))
    found = search_history(connection, None, ["often", "seldom"], HistoryFilters(user=ANN), 5)
    assert list(found.words_left_out) == ["often"]
    assert [each.rowid for each in found.hits] == [rare.rowid]
    only = search_history(connection, None, ["often"], HistoryFilters(user=ANN), 100)
    assert only.newest_only
    assert min(each.rowid for each in only.hits) >= 145


@pytest.mark.parametrize(
    "word",
    [
        "",
        '"',
        "'",
        "NEAR(",
        "*",
        "^",
        "-",
        "content:",
        "scope : x",
        "OR",
        "😀",
        "\0",
        "'; DROP TABLE messages",
        "u616e6e",
    ],
)
def test_no_word_is_syntax(connection: apsw.Connection, word: str) -> None:
    stored = messages.insert(connection, new("plain text", user=ANN))
    found = search_history(connection, None, [word, "plain"], HistoryFilters(user=ANN), 5)
    assert [each.rowid for each in found.hits] == [stored.rowid]


@attrs.frozen
class _World:
    connection: apsw.Connection
    made: np.ndarray
    stored: list[Message]


@pytest.fixture
def world(connection: apsw.Connection) -> _World:
    made = narrow_cone(400, seed=9)
    stored = put(connection, made, (ANN, BOB, UserId("боб")))
    encode_all(connection)
    return _World(connection, made, stored)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_search_leaves_its_scope(world: _World, data: st.DataObject) -> None:
    user = data.draw(st.sampled_from([ANN, BOB, UserId("боб"), UserId("nobody")]))
    times = st.none() | st.integers(-5, 405).map(lambda minute: iso(START + 60 * minute + 0.5))
    filters = HistoryFilters(
        user=user,
        chat=data.draw(st.none() | st.sampled_from([chat_id(u, c) for u in (ANN, BOB) for c in ("chat0", "chat1")])),
        since=data.draw(times),
        until=data.draw(times),
        role=data.draw(st.none() | st.sampled_from(Role)),
    )
    query = world.made[data.draw(st.integers(0, 399))]
    found = search_history(
        world.connection, query.tobytes(), ["hello"], filters, data.draw(st.sampled_from([1, 20, 500]))
    )
    allowed = {
        message.rowid
        for message in world.stored
        if message.user == filters.user
        and (filters.chat is None or message.chat == filters.chat)
        and (filters.since is None or message.created_at >= filters.since)
        and (filters.until is None or message.created_at < filters.until)
        and (filters.role is None or message.role is filters.role)
    }
    for rowids in ({each.rowid for each in found.neighbours}, {each.rowid for each in found.hits}):
        assert rowids <= allowed
        assert len(rowids) == min(len(allowed), len(rowids) or len(allowed))


async def test_the_writer_encodes_and_a_reader_searches(tmp_path: Path) -> None:
    made = narrow_cone(250)
    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, "model", DIMENSION)
        appended = await store.writer.run(messages.append, [new(f"слова {place}", user=ANN) for place in range(250)])
        rows = [(each.message.rowid, row.tobytes()) for each, row in zip(appended, made, strict=True)]
        assert await store.writer.run(stored_vectors.store, "model", rows) == 250
        assert await store.writer.run(stored_vectors.store, "model", rows[:3]) == 0
        while await store.writer.run(stored_vectors.encode):
            pass
        found = await store.readers.run(search_history, made[5].tobytes(), ["слово"], HistoryFilters(user=ANN), 5)
        assert found.neighbours[0].rowid == rows[5][0]
        assert len(found.hits) == 5
        assert found.vectors_complete
