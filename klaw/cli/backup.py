"""``klaw backup``: create, list, verify, restore and prune. They run beside a server, which only says how far it is."""

import os
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs

from klaw.cli.admin_call import NoServer, call
from klaw.cli.operations import Here, command
from klaw.config.paths import Paths
from klaw.convert import JOURNAL, Bounds
from klaw.domain.text import plural
from klaw.operations.lines import Lines, ShownLines, Table, size
from klaw.operations.operation import Noun, argument

if TYPE_CHECKING:
    from klaw.store.backup_mark import BackupMark

NOUN = Noun("backup", "make, check and restore backups (docs/operations.md)", local=True)
NICE = 10
FORGOTTEN = "made before something was forgotten, and still holds it"
_HELP = "the folder with the backups (default: backups/ of the home)"


@attrs.frozen(kw_only=True)
class Create:
    to: str | None = argument(_HELP, metavar="DIR")
    with_secrets: bool = argument("also tokens and environment files: who has the backup has them", default=False)
    whole: bool = argument("share nothing with the backup before, for instance because that is broken", default=False)


@attrs.frozen(kw_only=True)
class BackupFolder:
    folder: str | None = argument(_HELP, metavar="DIR", option="--from", old_option="--to")


@attrs.frozen(kw_only=True)
class OneBackup(BackupFolder):
    name: str | None = argument("which one (default: the newest)", positional=True)


@attrs.frozen(kw_only=True)
class Prune(BackupFolder):
    keep: Annotated[int, Bounds(1)] = argument("how many of the newest stay", default=14, metavar="N")
    forgotten: bool = argument(f"also remove what was {FORGOTTEN}", default=False)


def _folder(given: str | None, paths: Paths) -> Path:
    return Path(given).expanduser().absolute() if given else paths.backups_dir


def _mark(paths: Paths, logs: bool) -> "BackupMark":
    from klaw.store.backup_mark import BackupMark, mark_offline

    if not os.statvfs(paths.data_dir).f_flag & os.ST_RDONLY:  # else a server cannot bring it up to date
        with suppress(NoServer):
            return JOURNAL.read(call(paths, "backup_mark", timeout_s=90, logs=logs), BackupMark)
    return mark_offline(paths.database)


def _listed(answer: dict[str, Any]) -> ShownLines:
    rows = []
    for each in answer["backups"]:
        if each["problem"]:
            rows.append([each["name"], "", "", f"BROKEN: {each['problem']}"])
            continue
        notes = ["with secrets"] if each["secrets"] else []
        notes += [FORGOTTEN] if each["holds_forgotten"] else []
        notes += [f"{plural(len(each['left_out']), 'file')} left out"] if each["left_out"] else []
        rows.append([each["name"], size(each["bytes"]), size(each["new_bytes"]), ", ".join(notes)])
    if not rows:
        return ShownLines([f"there is no backup in {answer['folder']}: make one with klaw backup create"])
    lines: Lines = [Table([["backup", "size", "of its own", ""], *rows], right=frozenset({1, 2}))]
    return ShownLines(lines, found=not any(each["problem"] for each in answer["backups"]))


def _created(answer: dict[str, Any]) -> ShownLines:
    shared = f", {size(answer['new_bytes'])} not shared with the one before"
    lines = [f"{answer['path']}: {plural(answer['files'], 'file')}, {size(answer['bytes'])}{shared}"]
    if not answer["compared"]:
        lines.append("the database could not be looked at in that moment: klaw backup verify compares less")
    notes = [f"NOT in it: {each}" for each in answer["left_out"]]
    return ShownLines(lines, notes=notes, found=not notes)


def _verified(answer: dict[str, Any]) -> ShownLines:
    if answer["problems"]:
        lines = [f"{answer['name']} is BROKEN:", *(f"  {each}" for each in answer["problems"])]
        lines.append("what is broken may be shared with the others: make one with klaw backup create --whole")
        return ShownLines(lines, found=False)
    made = f"its logs make a database of {plural(answer['messages'], 'message')}"
    same = ", the same as then" if answer["compared"] else "; there is nothing to compare that with"
    return ShownLines([f"{answer['name']}: {plural(answer['files'], 'file')} as they were written; {made}{same}"])


def _restored(answer: dict[str, Any]) -> ShownLines:
    lines = [f"{answer['name']} is in place: {plural(answer['files'], 'file')} in {', '.join(answer['folders'])}"]
    lines.append("klaw serve makes the database from it; vectors follow in the background")
    if not answer["secrets"]:
        lines.append("tokens and environment files were not in it: make tokens with klaw token add")
    return ShownLines(lines, notes=[f"was NOT in it: {each}" for each in answer["left_out"]])


def _pruned(answer: dict[str, Any]) -> ShownLines:
    removed, left = answer["removed"], answer["backups"]
    lines = [f"removed {plural(len(removed), 'backup')}, {len(left)} left", *(f"  {each}" for each in removed)]
    holding = [each["name"] for each in left if each.get("holds_forgotten")]
    if holding:
        lines.append(f"{', '.join(holding)}: {FORGOTTEN}; klaw backup prune --forgotten removes them")
    return ShownLines(lines)


@command(NOUN, "backup_create", Create, cli="create", show=_created)
def create(asked: Create, here: Here) -> dict[str, Any]:
    """Make a backup of messages, memory, configuration, workspace and files, beside a running server or without one."""
    from klaw.actor import log
    from klaw.backup.create import create
    from klaw.backup.folder import note_failure, noting_failure

    log.configure("error", "auto")
    os.umask(0o077)
    os.nice(NICE)
    tell = partial(here.progress.show, "files")
    how = {"secrets": asked.with_secrets, "whole": asked.whole}
    # A wrong --home leaves no trace.
    noting = noting_failure(here.paths.backups_dir) if here.paths.data_dir.is_dir() else nullcontext()
    with noting:
        root, made = create(here.paths, _folder(asked.to, here.paths), partial(_mark, here.paths), **how, tell=tell)
    if made.left_out:
        note_failure(here.paths.backups_dir, f"not in it: {plural(len(made.left_out), 'file')}, {made.left_out[0]}")
    about = {"files": len(made.items), "bytes": made.bytes, "new_bytes": made.new_bytes, "time": made.time}
    return {"path": str(root), **about, "compared": bool(made.digests), "left_out": made.left_out}


@command(NOUN, "backup_list", BackupFolder, cli="list", show=_listed)
def show(asked: BackupFolder, here: Here) -> dict[str, Any]:
    """List the backups, the oldest first. The exit code is 1 if one of them is broken."""
    from klaw.backup.folder import listed, os_errors_refused, told
    from klaw.store.backup_mark import last_forgetting

    folder, last = _folder(asked.folder, here.paths), last_forgetting(here.paths.database)
    with os_errors_refused(folder):
        return {"folder": str(folder), "backups": [told(each, last) for each in listed(folder)]}


@command(NOUN, "backup_verify", OneBackup, cli="verify", show=_verified)
def verify(asked: OneBackup, here: Here) -> Any:
    """Check every byte of a backup, and that its logs make the same database again.

    The exit code is 1 if something is wrong.
    """
    from klaw.actor import log
    from klaw.backup.folder import chosen, os_errors_refused
    from klaw.backup.restore import verify

    log.configure("error", "auto")
    os.nice(NICE)
    folder = _folder(asked.folder, here.paths)
    with os_errors_refused(folder):
        root, found = chosen(folder, asked.name)
    return verify(folder, root, found, partial(here.progress.show, "files"))


@command(NOUN, "backup_restore", OneBackup, cli="restore", show=_restored)
def restore(asked: OneBackup, here: Here) -> dict[str, Any]:
    """Restore a backup into an empty home. Its configuration, workspace and data folder must be empty or missing."""
    from klaw.backup.folder import BackupRefused, chosen, os_errors_refused
    from klaw.backup.restore import restore

    try:
        call(here.paths, "health")
    except NoServer:
        pass
    else:
        raise BackupRefused("a server is running there: stop it, and move away what it has, or give another --home")
    os.umask(0o077)
    folder = _folder(asked.folder, here.paths)
    with os_errors_refused(folder):
        root, found = chosen(folder, asked.name)
    put = restore(here.paths, root, found, partial(here.progress.show, "files"))
    about = {"time": found.time, "files": len(found.items), "secrets": found.secrets, "left_out": found.left_out}
    return {"name": root.name, "folders": [str(each) for each in put], **about}


@command(NOUN, "backup_prune", Prune, cli="prune", show=_pruned)
def prune(asked: Prune, here: Here) -> dict[str, Any]:
    """Remove all backups but the newest. Broken ones are neither counted nor removed."""
    from klaw.backup.folder import holds_forgotten, listed, locked, os_errors_refused, remove, told
    from klaw.store.backup_mark import last_forgetting

    folder, last = _folder(asked.folder, here.paths), last_forgetting(here.paths.database)
    with os_errors_refused(folder), locked(folder):
        good = [each for each in listed(folder) if each.manifest is not None]
        away = good[: -asked.keep]
        if asked.forgotten:
            away += [each for each in good[-asked.keep :] if holds_forgotten(each, last)]
        remove(away)
        left = [told(each, last) for each in listed(folder)]
    return {"folder": str(folder), "removed": [each.name for each in away], "backups": left}
