"""Forgetting: the text is in no file of the data folder any more, the numbers stay, and a rebuild is the same."""

import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.domain.forget import MARK
from klaw.domain.names import UserId, chat_id
from klaw.memory.forget.forget import NothingToForget
from klaw.store.engine.log_rewrite import LogRewrite
from klaw.store.forget import execute
from klaw.store.forget.logs import Cleaner, begin_cleaning, exchange_logs
from klaw.store.kinds import facts, messages, summaries, topic_edits, topics
from klaw.store.search import vectors as stored_vectors
from tests.support.forgetting import files_of, forgetter, holding, lose_database, secret_past
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, run, talk, unit
from tests.support.stores import running_store
from tests.support.topics import ANNA, AT, archive, flaws_of, remove, say
from tests.support.writing import Real, instead

MAIN = chat_id(ANNA, "main")
CANARY = "Kanarienvogel8842"
TEXTS = [
    f"My secret code is {CANARY}.",
    f'Пароль от дачи "{CANARY}" и ещё\nвторая строка \\ с чертой.',
    f"{CANARY} " * 900,  # over pages of the database
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("vectors", [True, False])
async def test_no_file_holds_it_any_more(tmp_path: Path, text: str, vectors: bool) -> None:
    async with running_store(tmp_path) as store:
        await talk(store, rounds=30, vectors=vectors)
        secret = await secret_past(store, tmp_path, text)
        if vectors:
            await store.writer.run(
                stored_vectors.store, MODEL, [(secret.rowid, unit(4711)), (secret.rowid + 1, unit(4712))]
            )
        tool = forgetter(store, tmp_path)
        wanted = await tool.find(secret.id, ANNA)
        preview = await tool.preview(wanted, with_facts=True, everywhere=True)
        assert {each.kind for each in preview.held} >= {"log", "copy"}
        assert holding(tmp_path, CANARY)
        proof = await tool.forget(wanted, with_facts=True, everywhere=True)
        assert proof.held == ()
        assert holding(tmp_path, CANARY) == {}
        if vectors:
            assert unit(4711) not in b"".join(files_of(tmp_path).values())
        # The numbers stay, without holes; what was made of it is gone, the rest is there.
        left = await store.readers.run(messages.after, MAIN, 0, 100)
        assert [message.seq for message in left] == list(range(1, 7))
        assert (left[1].content, left[1].id, left[1].rowid) == ("", secret.id, secret.rowid)
        assert MARK in left[2].content
        assert left[5].content == "And what about the weather tomorrow?"
        assert [each.number for each in await store.readers.run(summaries.of_chat, MAIN)] == [2]
        assert await store.readers.run(topics.count, ANNA) == 1
        assert await store.readers.run(facts.count, ANNA) == 0
    assert flaws_of(tmp_path / "klaw.db") == {}
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before
    assert holding(tmp_path, CANARY) == {}


async def test_facts_and_backups_stay_and_are_told(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        secret = await secret_past(store, tmp_path, TEXTS[0])
        (tmp_path / "klaw.db.old").write_bytes(b"x" + TEXTS[0].encode())
        (tmp_path / "workspace").mkdir()
        (tmp_path / "workspace" / "users").mkdir()
        mine = tmp_path / "workspace" / "users" / "anna"
        mine.mkdir()
        (mine / "MEMORY.md").write_text(TEXTS[0])
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find("main#2", ANNA), everywhere=True)
        assert len(proof.before.reach.kept["fact"]) == 1
        assert {(each.path.split("/")[0], each.kind) for each in proof.held} == {
            ("klaw.db", "database"),
            ("klaw.db.old", "backup"),
            ("memory", "log"),
            ("workspace", "file"),
        }
        assert await store.readers.run(facts.count, ANNA) == 1
        (kept,) = proof.before.reach.kept["fact"]
        again = await tool.forget(await tool.find(f"fact:{kept}", ANNA), everywhere=True)
        assert {each.path for each in again.held} == {"klaw.db.old", "workspace/users/anna/MEMORY.md"}
        with pytest.raises(NothingToForget):
            await tool.find(secret.id, ANNA)
    before = digests_of(tmp_path / "klaw.db")
    (tmp_path / "klaw.db.old").unlink()
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before


async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        secret = await secret_past(store, tmp_path, TEXTS[1])
        tool = forgetter(store, tmp_path)
        files = files_of(tmp_path)
        await tool.preview(await tool.find(secret.id, ANNA), with_facts=True, everywhere=True)
        assert files_of(tmp_path) == files


async def test_another_users_words_stay(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        secret = await secret_past(store, tmp_path, TEXTS[0])
        (his,) = await say(store, TEXTS[0], user="boris")
        tool = forgetter(store, tmp_path)
        with pytest.raises(NothingToForget):
            await tool.find(secret.id, UserId("boris"))
        with pytest.raises(NothingToForget):
            await tool.find("topic:1", UserId("boris"))
        await tool.forget(await tool.find("topic:1", ANNA), with_facts=True, everywhere=True)
        assert [each.content for each in await store.readers.run(messages.by_rowids, [his])] == [TEXTS[0]]
    assert differing(run(tmp_path)) == set()


@pytest.mark.parametrize(
    "name", ["nobody", "main#99", "main#x", "#1", "topic:x", "topic:99", "fact:", "fact:x", "other#1"]
)
async def test_names_of_nothing(tmp_path: Path, name: str) -> None:
    async with running_store(tmp_path) as store:
        await say(store, "hello")
        with pytest.raises(NothingToForget):
            await forgetter(store, tmp_path).find(name, ANNA)


async def test_not_during_a_reindex(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await say(store, "a message that stays here")
        tool = forgetter(store, tmp_path, reindexing=True)
        with pytest.raises(NothingToForget, match="reindex"):
            await tool.forget(await tool.find("main#1", ANNA), everywhere=True)


KILLED = """
import os, signal, sys, trio
from pathlib import Path
from klaw.store.engine.log_rewrite import LogRewrite
from klaw.memory.forget.forget import Forgetter
from klaw.store.engine import writer as writer_module
from klaw.store.forget import logs as forget_logs
from tests.support.forgetting import forgetter
from tests.support.stores import running_store
from tests.support.topics import ANNA

root, left = Path(sys.argv[1]), int(sys.argv[2])
armed = False

def count_down():
    global left
    if armed:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

def fsync(descriptor):
    count_down()
    os.fsync(descriptor)
    count_down()

def around(function):
    def noisy(*args, **kwargs):
        count_down()
        found = function(*args, **kwargs)
        count_down()
        return found
    return noisy

for name in ("step", "exchange", "close"):
    setattr(LogRewrite, name, around(getattr(LogRewrite, name)))
forget_logs.compact = around(forget_logs.compact)

async def main():
    global armed
    async with running_store(root, fsync=fsync) as store:
        tool = forgetter(store, root)
        wanted = await tool.find("main#2", ANNA)
        armed = True
        await tool.forget(wanted, with_facts=True, everywhere=True)
        armed = False
    print("done")

trio.run(main)
"""


@pytest.mark.parametrize("point", range(20))
async def test_a_kill_at_any_point(tmp_path: Path, point: int) -> None:
    text = TEXTS[point % 2]
    async with running_store(tmp_path) as store:
        await talk(store, rounds=5)
        await secret_past(store, tmp_path, text)
    steps = point * 2
    done = await completed([*SCRIPT, KILLED, str(tmp_path), str(steps)])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    async with running_store(tmp_path) as store:
        assert await store.readers.run(execute.pending) == []
        (second,) = [each for each in await store.readers.run(messages.after, MAIN, 0, 9) if each.seq == 2]
        # It was never acknowledged: all of it is there, or nothing.
        if second.content:
            assert second.content == text
            await forgetter(store, tmp_path).forget(
                await forgetter(store, tmp_path).find("main#2", ANNA), with_facts=True, everywhere=True
            )
        assert holding(tmp_path, CANARY) == {}
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before
    assert flaws_of(tmp_path / "klaw.db") == {}


async def test_a_lost_database_is_made_without_it(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await secret_past(store, tmp_path, TEXTS[1])
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("main#2", ANNA), with_facts=True, everywhere=True)
        await say(store, "and life goes on")
    before = digests_of(tmp_path / "klaw.db")
    lose_database(tmp_path)
    async with running_store(tmp_path):
        pass
    after = digests_of(tmp_path / "klaw.db")
    assert {name for name in before if before[name] != after.get(name)} <= {"vectors"}
    assert holding(tmp_path, CANARY) == {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "archive", "merge", "remove", "forget", "topic", "restart"]), st.integers(0, 50)
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_after_any_sequence_nothing_dangles(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_live, Path(folder), steps)
        before = digests_of(Path(folder) / "klaw.db")
        assert flaws_of(Path(folder) / "klaw.db") == {}
        assert differing(run(Path(folder))) == set()
        assert digests_of(Path(folder) / "klaw.db") == before


async def _live(root: Path, steps: list[tuple[str, int]]) -> None:
    left = list(steps)
    words = ["Вчера мы были на даче у озера", "the garden gate was open all night", "Какой сегодня был чудесный день"]
    while True:
        async with running_store(root) as store:
            await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
            tool = forgetter(store, root)
            while left:
                what, number = left.pop(0)
                mine = await store.readers.run(topics.of_user, ANNA)
                if what == "restart":
                    break
                if what == "say":
                    rowids = await say(store, f"{words[number % 3]} {number}.", words[number % 3])
                    await store.writer.run(stored_vectors.store, MODEL, [(rowids[0], unit(rowids[0]))])
                elif what == "archive":
                    free = await store.readers.run(topics.unarchived, ANNA, 0, 2)
                    if free:
                        await archive(store, [row.rowid for row in free])
                elif what == "merge" and len(mine) > 1:
                    await store.writer.run(
                        topic_edits.merge, mine[number % 2], mine[1 - number % 2], words[number % 3], AT
                    )
                elif what == "remove" and mine:
                    await store.writer.run(remove, ANNA, mine[number % len(mine)].id, AT)
                elif what in ("forget", "topic"):
                    name = f"topic:{mine[number % len(mine)].id}" if what == "topic" and mine else f"main#{number}"
                    with suppress(NothingToForget):
                        await tool.forget(await tool.find(name, ANNA), everywhere=True)
            session = await store.readers.run(messages.session, MAIN)
            said = await store.readers.run(messages.after, MAIN, 0, 1_000)
            assert [each.seq for each in said] == list(range(1, (session.last_seq if session else 0) + 1))
        if not left:
            return


async def test_a_copy_that_quotes_it_does_not_survive_an_end_behind_the_last_round(tmp_path: Path) -> None:
    """When the texts' own lines are gone, the next start does not know what to look for: copies have to go before."""

    class Ended(Exception):
        pass

    async with running_store(tmp_path) as store:
        await secret_past(store, tmp_path, TEXTS[0])
        tool = forgetter(store, tmp_path)

        own = False

        async def begin_round(begin: Real, cleaner: Cleaner, paths: list[str]) -> Any:
            nonlocal own
            own = cleaner.own
            return await begin(cleaner, paths)

        async def exchange_and_end(exchange: Real, rewrites: list[LogRewrite]) -> Any:
            done = await exchange(rewrites)
            if own:
                raise Ended
            return done

        instead(store.writer, begin_cleaning, begin_round)
        instead(store.writer, exchange_logs, exchange_and_end)
        with pytest.raises(Ended):
            await tool.forget(await tool.find("main#2", ANNA), with_facts=True, everywhere=True)
    async with running_store(tmp_path) as store:
        assert await store.readers.run(execute.pending) == []
        assert holding(tmp_path, CANARY) == {}


_LOCKED = """
import fcntl, sys
from pathlib import Path
for name, first, count in (("klaw.db-shm", 128, 1), ("klaw.db", 0x40000002, 510)):
    with Path(sys.argv[1], name).open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
            print(name, "is free")
        except OSError:
            print(name, "is in use")
"""


async def test_a_search_of_all_files_leaves_sqlite_its_locks(tmp_path: Path) -> None:
    """Without them the next command that reads the database cuts off what the server has mapped, and it dies."""
    async with running_store(tmp_path) as store:
        await secret_past(store, tmp_path, TEXTS[0])
        await store.database.run(lambda connection: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE))
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find("main#2", ANNA), with_facts=True, everywhere=True)
        assert "klaw.db" in {each.path for each in proof.before.held}
        done = await completed([*SCRIPT, _LOCKED, str(tmp_path)])
        assert done.stdout.decode().splitlines() == ["klaw.db-shm is in use", "klaw.db is in use"]
