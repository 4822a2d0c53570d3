"""Notices: what needs a person is told in the chat that the owner used last, once until it is over."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from klaw import notices
from klaw.app.app import App, running
from klaw.backup.folder import BackupRefused, failure, noting_failure
from klaw.config.paths import Paths
from klaw.config.schema import EmbeddingConfig, EngineConfig
from klaw.domain.names import LOCAL_USER, ChatId, UserId
from klaw.notices import AGAIN_S, LASTS_S, LOOK_S, Notices, backup_problem, disk_problem, due
from klaw.store.kinds import messages
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
        monkeypatch.setattr(notices.shutil, "disk_usage", lambda _path, found=found: found)
        told = disk_problem(tmp_path)
        assert (told is not None) is low
        assert told is None or "1024 MiB are free" in told


def test_a_failed_backup_is_known_until_one_succeeds(tmp_path: Path) -> None:
    assert backup_problem(tmp_path, 0.0) is None
    with pytest.raises(BackupRefused), noting_failure(tmp_path):
        raise BackupRefused("the disk of /mnt/stick is full")
    assert backup_problem(tmp_path, 0.0) == ("backup_failed", "the last backup failed: the disk of /mnt/stick is full")
    with noting_failure(tmp_path):
        pass
    assert failure(tmp_path) is None


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
        with trio.fail_after(10_000):
            while not await told(app, "local:main"):
                mock_clock.jump(LOOK_S)
                await trio.lowlevel.checkpoint()
        for _ in range(20):
            mock_clock.jump(LOOK_S)
            await app.core.readers.run(lambda _connection: None)
        assert await told(app, "local:main") == ["Klaw: the last backup failed: диск полон"]
        assert await told(app, "local:старый") == []
        assert app.core.health.problems()["backup_failed"]
        await app.core.supervisor.stop(notices.ACTOR_NAME, "a restart")
        await app.core.writer.run(messages.append, [new("И здесь", user="local", chat="третий")])
        again = Notices(app.core, lambda: [LOCAL_USER])
        assert await again._tell("backup_failed", "the last backup failed: диск полон")
        assert await told(app, "local:третий") == []  # it was told today, in another chat
        assert not await Notices(app.core, lambda: [UserId("nobody")])._tell("disk_low", "x")
