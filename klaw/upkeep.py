"""What only a person can put right: how the disk and the backups are, for status, doctor and notices."""

import os
import shutil
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from klaw.actor.clock import iso
from klaw.backup import folder as backup_folder
from klaw.config.paths import Paths
from klaw.domain.text import listed, plural
from klaw.store.rebuild.files import size

SHARE_FREE, MOST_FREE = 0.05, 2 << 30
"""Less than this share of the disk free, but no more than so many bytes, is nearly full."""
NO_SPACE_BYTES, LITTLE_SPACE_BYTES = 100 << 20, 1 << 30


@attrs.frozen(kw_only=True)
class Complaint:
    code: str
    text: str
    todo: str
    severe: bool = False
    """Messages are refused, or will be soon."""
    told: bool = True


Place: TypeAlias = Callable[[Paths, float], tuple[str, Complaint | None]]
"""Says how something is, and what is wrong with it, at a time in Unix seconds. Raises OSError."""


def disk_usage(paths: Paths) -> dict[str, int]:
    usage, wal = shutil.disk_usage(paths.data_dir), paths.database.with_name(paths.database.name + "-wal")
    disk = {"free_bytes": usage.free, "total_bytes": usage.total}
    return {**disk, "database_bytes": size(paths.database), "wal_bytes": size(wal)}


def disk(paths: Paths, _now: float) -> tuple[str, Complaint | None]:
    """Room for new messages, and for a second database beside the first."""
    usage, nodes = disk_usage(paths), os.statvfs(paths.data_dir)
    free, database = usage["free_bytes"], usage["database_bytes"]
    text = f"{free / (1 << 30):.1f} GiB free, the database has {database / (1 << 20):.0f} MiB"
    if nodes.f_files and not nodes.f_favail:
        todo = "remove files: a new day's log cannot be made"
        return text, Complaint(code="disk_low", text="no room for new files (inodes)", todo=todo, severe=True)
    if free < min(MOST_FREE, SHARE_FREE * usage["total_bytes"]) or free < NO_SPACE_BYTES:
        low = f"the disk is nearly full: {free >> 20} MiB are free; when it is full, nothing can be stored"
        severe = free < NO_SPACE_BYTES
        return text, Complaint(code="disk_low", text=f"{low} (klaw status)", todo="make room", severe=severe)
    if free < max(LITTLE_SPACE_BYTES, 2 * database):
        todo = "make room: a rebuild needs as much again as the database has"
        return text, Complaint(code="disk_small", text=text, todo=todo, told=False)
    return text, None


def backups(paths: Paths, now: float) -> tuple[str, Complaint | None]:
    """Whether the last backup is recent, and none is broken; says nothing where none was made."""
    folder = paths.backups_dir
    found, last = backup_folder.listed(folder), backup_folder.newest(folder)
    text = f"{plural(len(found), 'backup')} in {folder}, the last one made at {iso(last)}" if last is not None else ""
    if (failed := backup_folder.failure(folder)) is not None:
        todo = "klaw backup create, when that is mended"
        return text, Complaint(code="backup_failed", text=f"the last backup failed: {failed}", todo=todo)
    if broken := [each.name for each in found if each.manifest is None]:
        todo = "see klaw backup list, make a new one, remove these"
        return text, Complaint(code="backup_broken", text=f"broken: {listed(broken)}", todo=todo, told=False)
    if last is None or not backup_folder.is_old(last, now):
        return text, None
    old = f"the last backup is {int((now - last) // 86_400)} days old: systemctl status klaw-backup.timer"
    if last > now:
        old = f"the clock said {iso(last)} at the last backup, so nobody knows its age: klaw backup create"
    return text, Complaint(code="backup_old", text=old, todo="klaw backup create; systemctl status klaw-backup.timer")


PLACES: Mapping[str, Place] = {"disk": disk, "backups": backups}
