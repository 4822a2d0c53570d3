"""A home with a past, and backups of it."""

import os
from collections.abc import Callable
from pathlib import Path

import trio

from klaw.backup.create import create
from klaw.backup.folder import BackupManifest, chosen
from klaw.backup.restore import verify
from klaw.config.paths import Paths
from klaw.store.backup_mark import BackupMark, mark_offline
from tests.store.files.forget.test_forget_attachments import keep, send
from tests.support.reindexing import talk
from tests.support.stores import running_store
from tests.support.topics import say

SECRET = "the password of the shed is Kanarienvogel-5521, tell nobody"


async def live(root: Path) -> None:
    async with running_store(root) as store:
        await talk(store, rounds=20)
        await say(store, SECRET)
        await send(store, "look at this", await keep(root, "a.txt", b"what stands in the file"))
        await keep(root, "b.txt", b"was never sent")


def home_with_a_past(root: Path) -> Paths:
    """Conversations, a file, a configuration with tokens, a workspace with a link."""
    found = Paths.resolve(root)
    trio.run(live, found.data_dir)
    found.config_dir.mkdir()
    (found.config_dir / "engine.yaml").write_text("{}")
    (found.config_dir / "tokens.json").write_text('{"tokens": []}')
    (found.config_dir / ".tokens.json.new").write_text("of a kill")
    (found.config_dir / "klaw.env").write_text("KEY=1")
    (found.workspace / "skills").mkdir(parents=True)
    (found.workspace / "SOUL.md").write_text("Ты помощник")
    (found.workspace / "skills" / "run.sh").write_text("#!/bin/sh\n")
    (found.workspace / "skills" / "run.sh").chmod(0o755)
    (found.workspace / "outside").symlink_to("/etc")
    for path in found.config_dir.parent.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, ns=(1_760_000_000_000_000_000,) * 2)
    return found


def marker(paths: Paths) -> Callable[[bool], BackupMark]:
    return lambda _logs: mark_offline(paths.database)


def made(paths: Paths, **how: bool) -> tuple[Path, BackupManifest]:
    return create(paths, paths.backups_dir, marker(paths), **{"secrets": False, **how})


def names(found: BackupManifest) -> set[str]:
    return {each.path for each in found.items}


def checked(paths: Paths, name: str | None = None) -> list[str]:
    return list(verify(paths.backups_dir, *chosen(paths.backups_dir, name)).problems)
