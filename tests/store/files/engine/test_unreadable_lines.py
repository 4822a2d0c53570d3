"""One line that Klaw never wrote stops nothing: it is left out, kept aside and told of, whichever log it stands in."""

import json
import random
import tempfile
from pathlib import Path

import pytest

from klaw.config.paths import Paths
from klaw.doctor.checkup import Checkup, check_up
from klaw.doctor.judge import Level
from klaw.doctor.places import Server
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.kinds import messages
from klaw.store.kinds.inventory import count_messages
from tests.support.forgetting import forgetter
from tests.support.memory.unreadable_lines import HALF, LINES, changed, copied, dumped, logs, make_home, put
from tests.support.reindexing import run
from tests.support.stores import new, running_store

KINDS = ("message", "turn", "memory", "run", "transcript")
WAYS = ("start", "start without a database", "reindex", "reindex --accept-differences")


@pytest.fixture
async def home(tmp_path: Path) -> Paths:
    return await make_home(tmp_path / "home")


def look(paths: Paths) -> Checkup:
    return check_up(paths, Server(error="none"), whole=True, version="1", environ={})


def finding(done: Checkup, name: str) -> Level:
    (found,) = [each for each in done.findings if each.name == name]
    return found.level


async def go(paths: Paths, way: str) -> None:
    """Start or reindex, and check that nothing of before is gone."""
    if way == "start without a database":
        for path in paths.data_dir.glob("klaw.db*"):
            path.unlink()
    if way.startswith("reindex"):
        run(paths.data_dir, accept=way.endswith("differences"))
    async with running_store(paths.data_dir) as store:
        assert await store.readers.run(count_messages) >= 25
        (stored,) = await store.writer.run(messages.append, [new("goes on")])
        assert await store.readers.run(messages.by_rowids, [stored.message.rowid]) == [stored.message]
        assert stored.message.rowid < 1000


def odd_of(log: Path) -> dict[str, bytes]:
    """The lines that the issue names, for one kind of log."""
    record = json.loads(log.read_bytes().splitlines()[-1])
    number = next(name for name in ("rowid", "entry", "change", "first_seq", "seq") if name in record)
    if "rowid" in record and record["rowid"] is None:
        number = "seq"
    text = next(name for name in ("id", "turn_id", "key") if name in record)
    return {
        "half surrogate": dumped({**record, text: HALF}),
        "seq of 2^70": dumped({**record, number: 1 << 70}),
        "rowid of 2^63-1": dumped({**record, text: "other", number: (1 << 63) - 1}),
        "rowid of 2^61": dumped({**record, text: "another", number: 1 << 61}),
        "brackets": LINES["brackets"],
        "brackets in a value": dumped(record)[:-1] + b',"x":' + LINES["brackets"] + b"}",
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", range(len(KINDS)), ids=KINDS)
async def test_a_line_that_cannot_be_stored_stops_nothing(home: Paths, place: int, way: str) -> None:
    log = logs(home)[place]
    lines = odd_of(log)
    for line in lines.values():
        put(log, line)
    assert finding(look(home), "logs") is Level.WARNING
    await go(home, way)
    aside = home.data_dir / "set-aside" / log.relative_to(home.data_dir)
    if KINDS[place] == "transcript" and not way.startswith("reindex"):
        assert not aside.exists()  # no start reads them
        return
    kept = aside.read_bytes().splitlines()
    if KINDS[place] in ("turn", "transcript"):
        del lines["rowid of 2^61"]  # theirs are no numbers that Klaw goes on from
    assert [name for name, line in lines.items() if line not in kept] == []


async def test_the_advice_of_doctor_works(home: Paths) -> None:
    for log in logs(home):
        for line in [*LINES.values(), *odd_of(log).values()]:
            put(log, line, at=0)
    assert finding(look(home), "logs") is Level.WARNING
    run(home.data_dir, accept=True)
    done = look(home)
    assert [
        each.text for each in done.findings if each.name in ("logs", "numbers") and each.level is not Level.OK
    ] == []
    kept = sum(len(path.read_bytes().splitlines()) for path in (home.data_dir / "set-aside").rglob("*.jsonl"))
    assert kept >= 5 * len(LINES)
    assert f"set-aside/ holds {kept} lines" in next(each.text for each in done.findings if each.name == "logs")


@pytest.mark.parametrize("seed", range(4))
async def test_any_odd_value_in_any_record(home: Paths, seed: int) -> None:
    """Doctor, a start, a start without a database and a reindex bear a record with any value in place of any other."""
    chance = random.Random(seed)
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            paths = copied(home, Path(folder) / "home")
            for log in logs(paths):
                lines = log.read_bytes().splitlines()
                for line in chance.sample(list(changed(chance.choice(lines))), 25):
                    put(log, line, at=chance.randrange(len(lines) + 1))
            look(paths)
            await go(paths, chance.choice(WAYS[:2]))
            report = run(paths.data_dir, accept=True)
            assert report.swapped
            done = look(paths)
            assert finding(done, "logs") is Level.OK
            (paths.data_dir / "klaw.db.old").unlink()
            again = run(paths.data_dir)
            assert again.swapped, [table.name for table in again.tables if not table.same]
            assert again.tally.malformed == again.tally.conflicts == 0


@pytest.mark.parametrize(
    "line", [*LINES.values(), b"klaw.db/x.jsonl\t{}", b"conversations/" + b"x" * 400 + b".jsonl\t{}"]
)
async def test_odd_lines_of_the_commit_log(home: Paths, line: bytes) -> None:
    (home.data_dir / COMMIT_LOG).write_bytes(
        line + b"\n" + b"conversations/local%3Amain/2020-01-01.jsonl\t" + line + b"\n"
    )
    look(home)
    await go(home, "start")
    if line.strip():
        assert line in (home.data_dir / "set-aside" / COMMIT_LOG).read_bytes().splitlines()
    await go(home, "reindex")


async def test_numbers_that_stand_twice_or_are_missing_are_named(home: Paths) -> None:
    log = logs(home)[0]
    lines = log.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[-1])
    put(log, dumped({**record, "id": "twin", "content": "another one"}))
    texts = {each.name: (each.level, each.text, each.todo) for each in look(home).findings}
    level, text, todo = texts["numbers"]
    assert (level, f"{record['chat_id']}#{record['seq']}" in text) == (Level.PROBLEM, True)
    assert todo is not None
    assert "klaw reindex --accept-differences" in todo
    run(home.data_dir, accept=True)
    assert finding(look(home), "numbers") is Level.OK
    (home.data_dir / "klaw.db.old").unlink()
    log.write_bytes(b"".join(lines[1:]))  # a person took a line out
    level, text, todo = {each.name: (each.level, each.text, each.todo) for each in look(home).findings}["numbers"]
    first = json.loads(lines[0])
    assert (level, f"{first['chat_id']}#{first['seq']}" in text) == (Level.PROBLEM, True)
    assert "the database has 1 message of them" in text
    run(home.data_dir, accept=True)
    assert finding(look(home), "numbers") is Level.WARNING
    log.write_bytes(b"".join(lines))  # the advice: put back from a backup
    (home.data_dir / "klaw.db.old").unlink()
    run(home.data_dir, accept=True)
    assert finding(look(home), "numbers") is Level.OK


async def test_forgetting_bears_odd_lines(home: Paths) -> None:
    """Records of the user with any value in place of any other, all of which quote the forgotten text."""
    secret = "the code of the safe is 4711 and nothing else"
    async with running_store(home.data_dir) as store:
        (said,) = await store.writer.run(messages.append, [new(secret)])
        for log in logs(home):
            record = json.loads(log.read_bytes().splitlines()[-1])
            for line in changed(dumped({**record, "user_id": "local"})):
                put(log, line.replace(b'"user_id":"local"', b'"user_id":"local","odd":' + json.dumps(secret).encode()))
        tool = forgetter(store, home.data_dir)
        wanted = await tool.find(said.message.id, said.message.user)
        await tool.forget(wanted, with_facts=False, everywhere=False)
        assert await store.readers.run(messages.by_rowids, [said.message.rowid]) != [said.message]
    await go(home, "start")
