"""Sessions, staleness and chunks."""

from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.names import ChatId
from klaw.memory.topics.splitter import cut
from klaw.store.kinds.topics import UnarchivedMessage

PAUSE = 3600.0


def rows(*said: tuple[str, float], start: int = 1) -> list[UnarchivedMessage]:
    return [
        UnarchivedMessage(rowid=number, chat=ChatId(f"u:{chat}"), created_s=at, said=True)
        for number, (chat, at) in enumerate(said, start)
    ]


def rowids(found) -> list[tuple[int, ...]]:
    return [chunk.rowids for chunk in found.chunks]


def test_a_session_is_stale_after_a_pause_of_an_hour():
    said = rows(("a", 0), ("a", 3599), ("a", 7199))
    assert rowids(cut(said, 7199 + 3600, PAUSE, 400, more=False)) == [(1, 2), (3,)]
    found = cut(said, 7199 + 3599, PAUSE, 400, more=False)
    assert rowids(found) == [(1, 2)]
    assert found.open_since == 7199


def test_a_session_is_stale_at_400_messages_and_the_rest_waits():
    said = rows(*[("a", float(n)) for n in range(401)])
    assert [len(each) for each in rowids(cut(said, 401, PAUSE, 400, more=False))] == [400]
    assert [len(each) for each in rowids(cut(said, 9999, PAUSE, 400, more=False))] == [400, 1]


def test_two_chats_used_in_turns_are_two_chunks_of_one_session():
    said = rows(("a", 0), ("b", 10), ("a", 3000), ("b", 6000))
    assert rowids(cut(said, 99_999, PAUSE, 400, more=False)) == [(1, 3), (2, 4)]
    # The pause of one chat alone ends nothing: the person was there.
    assert cut(said, 6001, PAUSE, 400, more=False).chunks == ()


def test_a_clock_that_goes_back_neither_holds_a_session_open_nor_loses_one():
    said = rows(("a", 1_000_000), ("a", 5), ("a", 6))
    found = cut(said, 7, PAUSE, 400, more=False)
    assert rowids(found) == [(1,)]
    assert rowids(cut(rows(("a", 1_000_000)), 5, PAUSE, 400, more=False)) == [(1,)]


def test_a_page_that_goes_on_leaves_its_last_session_open():
    said = rows(("a", 0), ("a", 9000), ("a", 9001))
    found = cut(said, 999_999, PAUSE, 400, more=True)
    assert rowids(found) == [(1,)]
    assert found.open_since is None


def test_nothing():
    assert cut([], 0, PAUSE, 400, more=False).chunks == ()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1e6, 1e6)), max_size=60),
    st.floats(-1e6, 1e6),
    st.integers(1, 7),
    st.booleans(),
)
def test_no_message_is_in_two_chunks_and_no_chunk_mixes_chats(said, now, limit, more):
    made = rows(*said)
    chat_of = {row.rowid: row.chat for row in made}
    found = cut(made, now, PAUSE, limit, more=more)
    all_rows = [rowid for chunk in found.chunks for rowid in chunk.rowids]
    assert len(all_rows) == len(set(all_rows))
    for chunk in found.chunks:
        assert {chat_of[rowid] for rowid in chunk.rowids} == {chunk.chat}
        assert list(chunk.rowids) == sorted(chunk.rowids)
        assert len(chunk.rowids) <= limit
