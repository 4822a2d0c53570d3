"""``klaw doctor`` on the files of messages: missing, changed, of nobody; of every user."""

import io
import time
from pathlib import Path

import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.config.paths import Paths, ensure_private_dir
from klaw.config.schema import AttachmentsConfig
from klaw.doctor.checkup import check_up
from klaw.doctor.judge import Finding, Level
from klaw.doctor.places import Server
from klaw.domain.attachment import Attachment, NamedFile
from klaw.domain.names import UserId
from klaw.store.attachments import Attachments
from klaw.store.kinds import attachments
from klaw.store.store import Store
from tests.support.stores import new, running_store

LIMITS = AttachmentsConfig()
USERS = (UserId("local"), UserId("Анна"))


async def keep(paths: Paths, user: UserId, data: bytes) -> Attachment:
    keeper = Attachments(paths.data_dir, LIMITS, SystemClock())
    return await keeper.take(user, "тайна.txt", lambda: io.BytesIO(data))


async def send(paths: Paths, store: Store, user: UserId, data: bytes, number: int) -> Path:
    """Returns where the file is."""
    kept = await keep(paths, user, data)
    message = new(user=user, chat=f"chat{number}")
    named = [NamedFile(sha256=kept.sha256, name=kept.name)]
    await store.writer.run(attachments.append, message, named, LIMITS)
    (path,) = paths.data_dir.rglob(kept.sha256)
    return path


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths.resolve(tmp_path / "home", {})
    ensure_private_dir(paths.config_dir)
    ensure_private_dir(paths.data_dir)
    paths.config_file.write_text('{"embedding": {"enabled": false}}')
    return paths


def look(paths: Paths, *, whole: bool = False) -> list[Finding]:
    done = check_up(paths, Server(), whole=whole, version="1", now=time.time(), environ={})
    return [each for each in done.findings if each.name == "files"]


def test_files_that_are_missing_changed_or_of_nobody(paths: Paths) -> None:
    files: list[Path] = []

    async def fill() -> None:
        async with running_store(paths.data_dir) as store:
            for number in range(4):
                files.append(await send(paths, store, USERS[number % 2], f"дом {number}".encode(), number))
            await keep(paths, USERS[0], b"kept and not sent yet")

    trio.run(fill)
    for whole in (True, False):
        (found,) = look(paths, whole=whole)
        assert (found.level, found.text.split(" (")[0]) == (Level.OK, "4 files of messages in order")

    files[0].unlink()
    files[1].write_bytes("кот 1".encode())
    files[2].write_bytes(b"x")
    files[3].with_name("f" * 64).write_bytes(b"nobody's")
    missing, damaged, nobody = look(paths)
    assert (missing.level, missing.text) == (Level.PROBLEM, "1 file of messages not there: local:chat0#1")
    assert (damaged.level, damaged.text) == (Level.PROBLEM, "1 file of messages not as they were sent: local:chat2#1")
    assert (nobody.level, nobody.text.split()[-1]) == (
        Level.WARNING,
        str(files[3].with_name("f" * 64).relative_to(paths.data_dir)),
    )
    whole = look(paths, whole=True)[1]
    assert whole.text == "2 files of messages not as they were sent: Анна:chat1#1, local:chat2#1"
    assert all(each.todo and "тайна" not in each.text for each in (missing, damaged, nobody))


def test_the_advice_works(paths: Paths) -> None:
    """What is sent again is whole again; what nobody names may be deleted."""

    async def fill(number: int) -> Path:
        async with running_store(paths.data_dir) as store:
            return await send(paths, store, USERS[1], "дом".encode(), number)

    file = trio.run(fill, 0)
    file.write_bytes(b"x")
    stray = file.with_name("0" * 64)
    stray.write_bytes(b"x")
    assert [each.level for each in look(paths)] == [Level.PROBLEM, Level.WARNING]
    file.unlink()
    stray.unlink()
    assert [each.level for each in look(paths)] == [Level.PROBLEM]
    trio.run(fill, 1)
    assert [each.level for each in look(paths, whole=True)] == [Level.OK]


def test_a_link_is_no_file(paths: Paths, tmp_path: Path) -> None:
    async def fill() -> Path:
        async with running_store(paths.data_dir) as store:
            return await send(paths, store, USERS[0], b"data", 0)

    file = trio.run(fill)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    for whole in (False, True):
        (found,) = look(paths, whole=whole)
        assert found.level is Level.PROBLEM
