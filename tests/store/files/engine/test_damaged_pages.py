"""Random damage of klaw.db: whatever it breaks is repaired by the command that the message names."""

import random
import shutil
from pathlib import Path

import pytest

from klaw.config.paths import Paths
from klaw.doctor.checkup import check_up
from klaw.doctor.judge import Level
from klaw.doctor.places import Server
from klaw.errors import ActorStopped, StorageError
from klaw.store.kinds import messages
from tests.support.memory.unreadable_lines import make_home
from tests.support.reindexing import digests_of, run
from tests.support.stores import new, running_store

PAGE = 4096
COMMAND = "klaw reindex --accept-differences"


def damage(file: Path, chance: random.Random) -> None:
    """Flip bytes, zero a page, fill one with noise, exchange two, or cut the end off."""
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 4)):
        pages = len(data) // PAGE
        at = chance.choice([0, chance.randrange(pages), chance.randrange(pages)]) * PAGE
        match chance.randrange(5):
            case 0:
                for _ in range(chance.randrange(1, 40)):
                    data[at + chance.randrange(PAGE)] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + PAGE] = bytes(PAGE)
            case 2:
                data[at : at + PAGE] = chance.randbytes(PAGE)
            case 3:
                other = chance.randrange(pages) * PAGE
                data[at : at + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[at : at + PAGE]
            case 4:
                del data[max(PAGE, at) :]
    file.write_bytes(data)


async def start(paths: Paths) -> str | None:
    """Start and use the store. Returns what a start that is refused, or a server that ends, says."""
    try:
        async with running_store(paths.data_dir) as store:
            await store.writer.run(messages.append, [new("goes on")])
            await store.readers.run(messages.after, new().chat, 0, 99)
    except StorageError as refused:
        return str(refused)
    except ExceptionGroup as group:
        failures, others = group.split(StorageError)
        assert failures is not None
        assert others is None or others.split(ActorStopped)[1] is None, "nobody waits for a writer that is gone"
        return str(failures.exceptions[0])
    return None


def complaints(paths: Paths) -> list[tuple[str, str]]:
    """What doctor finds wrong, and its advice."""
    done = check_up(paths, Server(error="none"), whole=True, version="1", environ={})
    return [
        (each.text, each.todo or "")
        for each in done.findings
        if each.level is Level.PROBLEM and each.name not in ("embedding_model", "local_model", "configuration")
    ]


def contents(paths: Paths) -> dict[str, str]:
    """Digests of all that is made from the logs; vectors that are lost are made again by the model."""
    return {table: digest for table, digest in digests_of(paths.database).items() if table != "vectors"}


async def one_round(home: Paths, seed: int) -> str:
    """Damage a copy, follow the advice, and check that all is there again. Returns how the damage showed."""
    folder = home.data_dir.parent.with_name(f"round-{seed}")
    shutil.copytree(home.data_dir.parent, folder)
    paths = Paths.resolve(folder, {})
    before = contents(paths)
    damage(paths.database, random.Random(seed))
    wrong = complaints(paths)
    assert all(COMMAND in todo for _, todo in wrong), wrong
    shown = "doctor" if wrong else "nowhere"
    started = Paths.resolve(shutil.copytree(folder, folder.with_name(f"{folder.name}-started")), {})
    if refusal := await start(started):
        shown = "start"
        assert COMMAND in refusal, refusal
        assert run(started.data_dir, accept=True).swapped
        assert await start(started) is None
    shutil.rmtree(started.data_dir.parent)
    report = run(paths.data_dir, accept=True)
    assert report.swapped
    assert not complaints(paths), seed
    if shown != "nowhere":
        assert contents(paths) == before, seed
    assert await start(paths) is None
    shutil.rmtree(folder)
    return shown


@pytest.mark.parametrize("first", range(0, 24, 6))
async def test_any_damage_is_repaired_by_the_command_that_is_named(tmp_path: Path, first: int) -> None:
    home = await make_home(tmp_path / "home", vectors=True)
    shown = [await one_round(home, seed) for seed in range(first, first + 6)]
    assert set(shown) != {"nowhere"}
