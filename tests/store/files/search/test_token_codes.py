"""Codes of tokens in the store: with the vectors, gone with them, and told only within their scope."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.kinds import messages
from klaw.store.search import token_codes, vectors
from tests.support.stores import new

VECTOR = b"\0\0\x80\x3f" + bytes(12)
MAIN, OTHER = chat_id(LOCAL_USER, "main"), chat_id(LOCAL_USER, "other")


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    opened = apsw.Connection(str(tmp_path / "klaw.db"))
    connect.prepare_writer(opened)
    migrations.migrate(opened)
    vectors.prepare_at_once(opened, "a", 4)
    token_codes.prepare(opened, "coder 1")
    return opened


def code(rowid: int) -> bytes:
    return bytes([rowid]) * 16


def fill(connection: apsw.Connection, count: int, *, chat: str = "main", coded: bool = True) -> list[int]:
    made = [
        messages.insert(connection, new(f"message {number} that is long enough", chat=chat)) for number in range(count)
    ]
    rowids = [message.rowid for message in made]
    codes = {rowid: code(rowid) for rowid in rowids} if coded else None
    assert vectors.put(connection, [(rowid, VECTOR) for rowid in rowids], codes=codes) == count
    return rowids


def stored(connection: apsw.Connection) -> list[int]:
    return [rowid for (rowid,) in connection.execute("SELECT rowid FROM token_codes ORDER BY rowid")]


def test_codes_are_told_of_the_scope_only(connection: apsw.Connection) -> None:
    mine, others = fill(connection, 4), fill(connection, 2, chat="other")
    everything = [*mine, *others, 99]
    assert token_codes.of_scope(connection, everything, MAIN, 2, 4) == {rowid: code(rowid) for rowid in mine[1:3]}
    assert token_codes.of_scope(connection, everything, OTHER, 1, 99) == {rowid: code(rowid) for rowid in others}
    assert token_codes.of_scope(connection, [], MAIN, 1, 99) == {}


def test_codes_are_told_of_the_user_only(connection: apsw.Connection) -> None:
    mine, bob = [*fill(connection, 1), *fill(connection, 1, chat="other")], UserId("bob")
    his = messages.insert(connection, new("a message of another user", user=bob)).rowid
    assert vectors.put(connection, [(his, VECTOR)], codes={his: code(his)}) == 1
    assert token_codes.of_user(connection, [*mine, his, 99], LOCAL_USER) == {rowid: code(rowid) for rowid in mine}
    assert token_codes.of_user(connection, [*mine, his], bob) == {his: code(his)}


def test_what_has_no_vector_gets_no_codes_and_codes_are_not_replaced(connection: apsw.Connection) -> None:
    (with_vector,) = fill(connection, 1)
    bare = messages.insert(connection, new("no vector yet")).rowid
    token_codes.put(connection, {with_vector: b"x" * 16, bare: b"x" * 16})
    assert stored(connection) == [with_vector]
    assert token_codes.read(connection, with_vector) == code(with_vector)
    assert token_codes.read(connection, bare) is None


def test_codes_go_with_their_vectors(connection: apsw.Connection) -> None:
    first, second, third = fill(connection, 3)
    connection.execute("UPDATE messages SET embedded = 0 WHERE rowid = ?", (second,))
    assert stored(connection) == [first, third]
    vectors.prepare_at_once(connection, "b", 4)
    assert stored(connection) == []
    fill(connection, 2)
    vectors.make_anew(connection, "b", 4)
    assert stored(connection) == []


def test_another_coder_drops_them_in_steps(connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_codes, "CLEAR_ROWS", 2)
    rowids = fill(connection, 5)
    token_codes.looked_through(connection, 0)
    assert token_codes.prepare_some(connection, "coder 1")
    assert stored(connection) == rowids
    assert not token_codes.prepare_some(connection, "coder 2")
    assert len(stored(connection)) == 3
    token_codes.prepare(connection, "coder 2")
    assert (stored(connection), token_codes.coder(connection)) == ([], "coder 2")
    assert vectors.count_embedded(connection) == 5
    assert lacking(connection) == [*reversed(rowids)]


def lacking(connection: apsw.Connection, most: int = 100) -> Sequence[int]:
    """All that lack codes, as the embedder finds them."""
    found: list[int] = []
    while (page := token_codes.lacking(connection, most)) is not None:
        found += page.rowids
        token_codes.looked_through(connection, page.complete_from)
    return found


@pytest.mark.parametrize("page", [1, 3, 4, 100])
@pytest.mark.parametrize("most", [1, 2, 100])
def test_what_lacks_codes_is_found_once_newest_first(
    connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch, page: int, most: int
) -> None:
    monkeypatch.setattr(token_codes, "PAGE_ROWS", page)
    old = fill(connection, 4, coded=False)
    fill(connection, 3)
    newer = fill(connection, 2, coded=False)
    fill(connection, 3)
    assert lacking(connection, most) == [*reversed(newer), *reversed(old)]
    assert token_codes.lacking(connection, most) is None
    fill(connection, 1)
    assert token_codes.lacking(connection, most) is None, "it has codes"
    later = fill(connection, 1, coded=False)
    assert set(lacking(connection, most)) == {*later, *newer, *old}, "none of them was coded"


def test_the_text_of_what_lacks_codes_comes_with_the_message_before(connection: apsw.Connection) -> None:
    first, second = fill(connection, 2, coded=False)
    told = vectors.to_embed(connection, [first, second])
    assert [(each.rowid, each.previous) for each in told] == [(second, told[1].content), (first, None)]
