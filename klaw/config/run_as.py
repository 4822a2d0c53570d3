"""Whose an installation is, and acting as that user. A command that root runs on another user's installation (``sudo
klaw token add``) does all of it as that user: whatever it makes belongs to the one who runs the server, and no link
that this user has put there can make root write elsewhere. The command line does so before a command does anything."""

import os
import pwd
import shlex
from collections.abc import Iterator
from pathlib import Path

import klaw
from klaw.config.paths import Paths
from klaw.errors import ConfigError

ROOT = 0
PROGRAM = Path(klaw.__file__).parent
acting = False
"""Whether root has become the owner."""


def enter(paths: Paths) -> None:
    """Become one who may use the installation: root becomes its owner, for good; everybody else must be allowed to.
    Raises ConfigError: the files are another user's, or their owner may not read this program."""
    if os.geteuid() == ROOT:
        if (owner := owner_of(paths)) != ROOT:
            _become(owner, paths)
        return
    for folder in (paths.data_dir, paths.config_dir):
        found = _nearest(folder)
        if not os.access(found, os.R_OK | os.X_OK if found == folder else os.X_OK):
            raise ConfigError.of(belongs_to(found, found.stat().st_uid))


def owner_of(paths: Paths) -> int:
    """The user id whose installation it is. Before there is one: who has the folder that it would be made in."""
    nearest = _nearest(paths.data_dir)
    owner = nearest.stat().st_uid
    if owner == ROOT and nearest == paths.data_dir:
        return nearest.parent.stat().st_uid  # root has made the data folder in another user's home
    return owner


def _nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that is there and not in a closed one."""
    return next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110 - Path.exists raises


def _become(owner: int, paths: Paths) -> None:
    entry: pwd.struct_passwd | None
    try:
        entry = pwd.getpwuid(owner)
    except KeyError:  # no user of this system: a container's, say
        entry = None
        group = _nearest(paths.data_dir).stat().st_gid
        os.setgroups([])
    else:
        group = entry.pw_gid
        os.initgroups(entry.pw_name, group)
    os.setegid(group)
    os.seteuid(owner)
    parts = (PROGRAM / "cli", Path(os.__file__).parent)
    closed = next((each for each in parts if not os.access(each, os.R_OK | os.X_OK, effective_ids=True)), None)
    os.seteuid(ROOT)
    if closed is not None:  # root says so: the other user could not even read what prints it
        who = f"{paths.data_dir} is for {name_of(owner)}, who may not read this program ({closed})"
        raise ConfigError.of(f"{who}: install Klaw where that user can read it")
    global acting
    acting = True
    os.setgid(group)
    os.setuid(owner)
    if entry is not None:
        os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)


def name_of(uid: int) -> str:
    """A user's name, or the number where the system knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def belongs_to(path: Path, owner: int) -> str:
    """Says whose a path is that we cannot use, and what to do."""
    whose, me = name_of(owner), name_of(os.geteuid())
    if owner == ROOT or acting:
        return f"{path} belongs to {whose}: as root, run `chown -R {me}: {shlex.quote(str(path))}`"
    return f"{path} belongs to {whose}: run this as that user (sudo -u {whose}) or as root"


def not_usable(paths: Paths) -> Iterator[Path]:
    """What belongs to another user and this one may not use as a server must: data and state must be readable and
    writable, configuration, workspace and models readable. Links are not followed. What stands in a folder that may not
    be entered is not named."""
    parts = dict.fromkeys((paths.config_dir, paths.workspace, paths.models_dir), os.R_OK)
    parts |= dict.fromkeys((paths.data_dir, paths.state_dir, paths.runtime_dir), os.R_OK | os.W_OK)
    seen: set[Path] = set()
    for folder, need in reversed(parts.items()):
        for path in _below(folder):
            is_ours = path in seen or path.is_symlink() or path.lstat().st_uid == os.geteuid()
            if not is_ours and not os.access(path, need | (os.X_OK if path.is_dir() else 0)):
                yield path
            seen.add(path)


def _below(folder: Path) -> Iterator[Path]:
    if not os.path.lexists(folder):
        return
    yield folder
    for name, folders, files in os.walk(folder):
        for each in (*folders, *files):
            if os.path.lexists(path := Path(name, each)):
                yield path
