"""Notices: what needs a person is told in the chat that the owner used last, once until it is over."""

import shutil
import time
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from klaw import health
from klaw.app.app import App, running
from klaw.backup.folder import OLD_S, BackupRefused, failure, locked, noting_failure
from klaw.config.paths import Paths
from klaw.config.schema import EmbeddingConfig, EngineConfig
from klaw.doctor.judge import Level
from klaw.doctor.places import check_place
from klaw.domain.names import LOCAL_USER, ChatId, UserId
from klaw.health import AGAIN_S, LASTS_S, LOOK_S, Notices, due
from klaw.store.kinds import messages
from klaw.upkeep import backups, disk
from tests.support.clock import TrioClock
from tests.support.stores import new

CONFIG = EngineConfig(embedding=EmbeddingConfig(enabled=False))


def test_what_passes_by_itself_is_told_after_an_hour_and_again_after_a_day() -> None:
    now = 1_000_000.0
    assert due({"llm:zai": now - LASTS_S + 1, "disk_low": now}, {}, now) == ["disk_low"]
    assert due({"llm:zai": now - LASTS_S}, {}, now) == ["llm:zai"]
    assert due({"llm:zai": now - LASTS_S}, {"llm:zai": now - AGAIN_S + 1}, now) == []
    assert due({"llm:zai": now - LASTS_S}, {"llm:zai": now - AGAIN_S}, now) == ["llm:zai"]


def test_a_disk_with_room_is_no_problem_and_one_without_says_how_much_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 1 << 30
    for total, free, low in ((32 * gib, 2 * gib, False), (32 * gib, gib, True), (500 * gib, 3 * gib, False)):
        found = type("Usage", (), {"total": total, "free": free})
        monkeypatch.setattr(shutil, "disk_usage", lambda _path, found=found: found)
        _, told = disk(attrs.evolve(Paths.resolve(tmp_path), data_dir=tmp_path), 0.0)
        assert (told is not None) is low
        assert told is None or "1024 MiB are free" in told.text


def test_a_failed_backup_is_known_until_one_succeeds(tmp_path: Path) -> None:
    tmp_path /= "backups"  # not there yet: backups are made on a stick
    assert backup_problem(tmp_path, 0.0) is None
    with pytest.raises(BackupRefused), noting_failure(tmp_path):
        raise BackupRefused("the disk of /mnt/stick is full")
    assert backup_problem(tmp_path, 0.0) == ("backup_failed", "the last backup failed: the disk of /mnt/stick is full")
    with noting_failure(tmp_path):
        pass
    assert failure(tmp_path) is None
    with locked(tmp_path), pytest.raises(BackupRefused, match="another"), noting_failure(tmp_path), locked(tmp_path):
        pass
    assert failure(tmp_path) is None  # of the one that is at work nobody knows yet
    assert backup_problem(tmp_path, time.time()) is None
    found = backup_problem(tmp_path, time.time() + OLD_S + 1)
    assert found is not None
    assert found[1].startswith("the last backup is 8 days old")


def test_a_backup_made_while_the_clock_was_ahead_is_not_young_for_years(tmp_path: Path) -> None:
    with noting_failure(tmp_path):
        pass
    made = (tmp_path / ".made").stat().st_mtime
    for behind, told in ((86_000.0, None), (5 * 365 * 86_400.0, "backup_old")):
        found = backup_problem(tmp_path, made - behind)
        assert (found and found[0]) == told
        (last,) = check_place("backups", attrs.evolve(Paths.resolve(tmp_path), backups_dir=tmp_path), made - behind)
        assert (last.level is Level.WARNING) is bool(told)
    assert found is not None
    assert "nobody knows its age: klaw backup create" in found[1]


def backup_problem(folder: Path, now: float) -> tuple[str, str] | None:
    _, found = backups(attrs.evolve(Paths.resolve(folder), backups_dir=folder), now)
    return (found.code, found.text) if found is not None else None


async def told(app: App, chat: str) -> list[str]:
    rows = await app.core.readers.run(messages.after, ChatId(chat), 0, 100)
    return [each.content for each in rows if each.metadata.get("origin") == "notice"]


async def test_the_owner_reads_it_once_in_the_chat_that_was_used_last(tmp_path: Path, mock_clock: MockClock) -> None:
    paths = Paths.resolve(tmp_path)
    async with running(CONFIG, paths) as app:
        for chat in ("старый", "main"):
            await app.core.writer.run(messages.append, [new("Привет", user="local", chat=chat)])
        paths.backups_dir.mkdir(parents=True)
        (paths.backups_dir / ".failed").write_text("диск полон")
        await app.core.supervisor.start(Notices(app.core, lambda: [LOCAL_USER]).spec())
        with trio.fail_after(1_000_000):
            while not await told(app, "local:main"):
                mock_clock.jump(LOOK_S)
                await trio.lowlevel.checkpoint()
        for _ in range(20):
            mock_clock.jump(LOOK_S)
            await app.core.readers.run(lambda _connection: None)
        said = await told(app, "local:main")  # after an hour also that a model is missing
        assert said.count("Klaw: the last backup failed: диск полон") == 1
        assert await told(app, "local:старый") == []
        assert app.core.health.problems()["backup_failed"]
        await app.core.supervisor.stop(health.NOTICES, "a restart")
        await app.core.writer.run(messages.append, [new("И здесь", user="local", chat="третий")])
        again = Notices(app.core, lambda: [LOCAL_USER])
        assert await again._tell("backup_failed", "the last backup failed: диск полон")
        assert await told(app, "local:третий") == []  # it was told today, in another chat
        assert not await Notices(app.core, lambda: [UserId("nobody")])._tell("disk_low", "x")


async def test_a_clock_that_is_set_makes_no_hour_of_a_minute(tmp_path: Path, mock_clock: MockClock) -> None:
    clock = TrioClock(1_790_000_000.0)
    async with running(CONFIG, Paths.resolve(tmp_path), clock=clock) as app:
        await app.core.writer.run(messages.append, [new("Привет", user="local", chat="main")])
        app.core.health.add(lambda: {"llm:zai": "zai is paused"})
        await app.core.supervisor.start(Notices(app.core, lambda: [LOCAL_USER]).spec())
        for days in (90, -200, 1):
            clock.set_by(days * 86_400)
            for _ in range(10):
                mock_clock.jump(LOOK_S)
                await app.core.readers.run(lambda _connection: None)
        assert await told(app, "local:main") == []
        with trio.fail_after(1_000_000):
            while not await told(app, "local:main"):
                mock_clock.jump(LOOK_S)
                await trio.lowlevel.checkpoint()


async def test_a_chat_that_was_imported_is_not_the_one_used_last_until_its_owner_writes_in_it(tmp_path: Path) -> None:
    async with running(CONFIG, Paths.resolve(tmp_path)) as app:
        write = app.core.writer.run
        notice = Notices(app.core, lambda: [LOCAL_USER])
        brought = attrs.evolve(
            new("Moved in", user="local", chat="импорт"), channel="import:telegram-20261123-061330-512"
        )
        await write(messages.append, [brought])
        assert not await notice._tell("disk_low", "there is no chat yet")
        await write(messages.append, [new("Привет", user="local", chat="main")])
        await write(messages.append, [attrs.evolve(brought, id="later")])
        assert await notice._tell("disk_low", "диск полон")
        assert (await told(app, "local:main"), await told(app, "local:импорт")) == (["Klaw: диск полон"], [])
        await write(messages.append, [new("I go on here", user="local", chat="импорт")])
        assert await notice._tell("backup_old", "x")
        assert await told(app, "local:импорт") == ["Klaw: x"]
