"""Traits of messages in the store: made when these are written, right after each change, the same after a rebuild."""

from pathlib import Path

import apsw

from klaw.domain.message import MessageKind, Role
from klaw.domain.names import chat_id
from klaw.store import migrations
from klaw.store.engine.traits import ASKS, FIRST_PERSON, NAME, SHORT, TIME, traits_of
from klaw.store.kinds import messages
from klaw.store.search.chat_search import ChatScope, Depth, search_chat
from klaw.store.search.history_search import HistoryFilters, search_history
from klaw.store.search.ranked_lists import MessagePlace
from tests.store.files.migrations.test_migrations import CHAT, SAID, make_old, open_with
from tests.support.forgetting import forgetter
from tests.support.reindexing import differing, digests_of, filled, run
from tests.support.stores import new, running_store
from tests.support.topics import ANNA

DEPTH = Depth(vectors=10, words=10, spreading=10)


def kept(connection: apsw.Connection) -> dict[int, int]:
    return dict(connection.execute("SELECT rowid, traits FROM message_traits"))


def wanted(connection: apsw.Connection) -> dict[int, int]:
    """What they should be."""
    return dict(connection.execute("SELECT rowid, klaw_traits(content) FROM messages_search"))


def test_a_migration_makes_those_of_old_messages(tmp_path: Path) -> None:
    make_old(tmp_path / "klaw.db", 23)
    connection = open_with(tmp_path / "klaw.db")
    migrations.migrate(connection)
    assert kept(connection) == {rowid: traits_of(text) for rowid, (text, _) in enumerate(SAID, 1)}
    assert len(messages.after(connection, CHAT, 0, 10)) > len(SAID), "a command has none"
    connection.close()


async def test_forgetting_takes_them_away_and_changes_those_of_what_quoted_it(tmp_path: Path) -> None:
    secret = "Kanarienvogel-5521 is the password of the shed in Kazan, tell nobody"
    async with running_store(tmp_path) as store:
        said = [new(secret, user="anna"), new(f"Olga said: {secret}?", user="anna", role=Role.ASSISTANT), new("Да")]
        first, quoting, other = await store.writer.run(messages.append, said)
        before = await store.readers.run(kept)
        assert before[quoting.message.rowid] & NAME
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("main#1", ANNA), everywhere=True)
        after = await store.readers.run(kept)
        assert after == await store.readers.run(wanted)
        assert first.message.rowid not in after
        assert after[other.message.rowid] == SHORT
        assert not after[quoting.message.rowid] & NAME
    digests = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == digests


async def test_a_rebuild_makes_the_same(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with running_store(tmp_path) as store:
        before = await store.readers.run(kept)
        assert before == await store.readers.run(wanted) != {}
    digests = digests_of(tmp_path / "klaw.db")
    assert run(tmp_path).swapped
    async with running_store(tmp_path) as store:
        assert await store.readers.run(kept) == before
    assert digests_of(tmp_path / "klaw.db")["traits"] == digests["traits"]


async def test_searches_tell_a_messages_own_and_those_of_the_one_before_it_in_the_scope(tmp_path: Path) -> None:
    texts = ["Where did you fly last week?", "To Rome, with Olga", "tools ran", "My suitcase stayed in Rome"]
    kinds = [MessageKind.TEXT, MessageKind.TEXT, MessageKind.TOOL_RESULT, MessageKind.TEXT]
    roles = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER]
    async with running_store(tmp_path) as store:
        made = [
            new(text, user="anna", role=role, kind=kind) for text, role, kind in zip(texts, roles, kinds, strict=True)
        ]
        await store.writer.run(messages.append, [new("Rome?", user="boris"), *made])
        chat = chat_id(ANNA, "main")

        def found(connection: apsw.Connection, first_seq: int) -> list[MessagePlace]:
            scope = ChatScope(chat=chat, first_seq=first_seq, end_seq=5)
            lists = search_chat(connection, None, ["Rome", "suitcase"], (), scope, DEPTH, 60.0)
            return sorted(lists.places, key=lambda place: place.seq)

        question, answer, last = await store.readers.run(found, 1)
        assert (question.before, question.previous) == (0, None)
        assert (answer.traits, answer.before) == (NAME | SHORT, TIME | ASKS | SHORT)
        assert (last.traits, last.before, last.previous) == (FIRST_PERSON | NAME | SHORT, NAME | SHORT, answer.rowid)
        alone = (await store.readers.run(found, 2))[0]
        assert (alone.rowid, alone.before, alone.previous) == (answer.rowid, 0, None)
        everywhere = await store.readers.run(search_history, None, ["suitcase"], HistoryFilters(user=ANNA), 5)
        assert {place.rowid: place.before for place in everywhere.places}[last.rowid] == NAME | SHORT
