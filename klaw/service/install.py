"""Install or remove the service, on this machine or in a folder that stands for one. Every step is reported, and what
exists stays as it is. Blocks.
"""

import difflib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Literal

import attrs

import klaw
from klaw import atomic_file
from klaw.config.run_as import name_of
from klaw.models.manifest import CATALOGUE
from klaw.service import units
from klaw.service.units import SERVICE, TIMER, ServiceInstallation, ServiceRefused


@attrs.frozen(kw_only=True)
class MachineStep:
    outcome: Literal["made", "changed", "removed", "done", "same", "kept", "skipped", "failed"]
    what: str
    why: str = ""
    diff: tuple[str, ...] = ()
    """What Klaw would change in a file that somebody edited."""


@attrs.define(kw_only=True)
class Machine:
    """The machine, or a folder that stands for one, as DESTDIR does."""

    root: Path = Path("/")
    dry_run: bool = False
    tell: Callable[[MachineStep], None] = lambda _step: None
    steps: list[MachineStep] = attrs.Factory(list)

    @property
    def real(self) -> bool:
        return self.root == Path("/")

    def at(self, path: PurePosixPath) -> Path:
        return self.root / str(path).lstrip("/")

    def note(self, outcome: str, what: object, why: str = "", diff: Sequence[str] = ()) -> None:
        step = MachineStep(outcome=outcome, what=str(what), why=why, diff=tuple(diff))  # type: ignore[arg-type]  # one of them
        self.steps.append(step)
        self.tell(step)

    @property
    def changed(self) -> bool:
        """Whether a unit is new or was changed."""
        return any(step.outcome in ("made", "changed", "removed") and "/systemd/" in step.what for step in self.steps)

    @property
    def well(self) -> bool:
        return not any(step.outcome == "failed" or step.diff for step in self.steps)

    def put(self, path: PurePosixPath, text: str) -> None:
        """Write a unit. Of one that somebody edited, Klaw's version is written beside it."""
        place, new = self.at(path), units.marked(path, text)
        if place.is_symlink() and str(place.readlink()) == os.devnull:
            self.note("failed", path, f"is masked: systemctl unmask {path.name}")
            return
        old = place.read_text(encoding="utf-8", errors="replace") if place.exists() else None
        if old in (new, text):
            self.note("same", path)
        elif old is None or units.is_untouched(old):
            self._write(place, new, 0o644)
            self.note("made" if old is None else "changed", path)
        else:
            beside = path.with_name(f"{path.name}.new")
            self._write(self.at(beside), new, 0o644)
            diff = difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), str(beside), lineterm="", n=1)
            self.note("kept", path, f"somebody edited it; Klaw's is {beside}", [*diff])

    def take_away(self, path: PurePosixPath) -> None:
        """Remove a unit; one that was edited stays under another name."""
        place = self.at(path)
        if not place.exists():
            return
        if units.is_untouched(place.read_text(encoding="utf-8", errors="replace")):
            self._do(place.unlink)
            if path.suffix == ".conf" and not self.dry_run and not any(place.parent.iterdir()):
                place.parent.rmdir()
            self.note("removed", path)
        else:
            kept = path.with_name(f"{path.name}.edited")
            self._do(place.rename, self.at(kept))
            self.note("removed", path, f"somebody edited it: it is {kept} now")

    def folder(self, path: PurePosixPath, mode: int, owner: tuple[int, int] | None = None) -> bool:
        """Returns whether there is one of this owner."""
        place = self.at(path)
        if not place.is_dir():
            self._do(self._make_folder, place, mode, owner)
            self.note("made", path, f"mode {mode:04o}")
            return True
        found = place.stat().st_uid
        if owner is None or found == owner[0]:
            self.note("same", path)
            return True
        give = f"name another one, or give all of it away: chown -R {owner[0]}:{owner[1]} {path}"
        self.note("failed", path, f"belongs to {name_of(found)}, not to {name_of(owner[0])}: {give}")
        return False

    def link(self, path: PurePosixPath, target: PurePosixPath) -> None:
        """Make a link in place of nothing or of an empty folder."""
        place = self.at(path)
        if place.is_symlink() and str(place.readlink()) == str(target):
            self.note("same", path)
            return
        try:
            if place.is_dir() and not place.is_symlink():
                self._do(place.rmdir)
            self._do(place.symlink_to, target)
        except OSError:
            why = f"commands with --home use it, and the service {target}: move what is in it there, and repeat this"
            self.note("kept", path, why)
        else:
            self.note("made", path, f"a link to {target}, for commands with --home")

    def _make_folder(self, place: Path, mode: int, owner: tuple[int, int] | None) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=mode)
        # Above it may be the folder of somebody who puts a link in its place now: no link is followed.
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, *owner)
        finally:
            os.close(descriptor)

    def once(self, path: PurePosixPath, text: str, mode: int) -> None:
        """Write a file that is the operator's from then on."""
        place = self.at(path)
        if not place.exists():
            self._write(place, text, mode)
            self.note("made", path, f"mode {mode:04o}; keys of LLM providers go here")
        elif place.stat().st_mode & 0o077 & ~mode:
            self.note("failed", path, f"others can read it: chmod {mode:o} {path}")
        else:
            self.note("same", path, "yours to change")

    def _write(self, place: Path, text: str, mode: int) -> None:
        if not self.dry_run:
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.replace(place, text.encode(), mode=mode)

    def _do(self, function: Callable[..., object], *arguments: object) -> None:
        if not self.dry_run:
            function(*arguments)

    def run(self, *command: str, what: str = "", quiet: bool = False) -> bool:
        """Returns whether it succeeded; reports its output if not."""
        what = what or " ".join(command)
        if self.dry_run:
            self.note("done", what)
            return True
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        except FileNotFoundError:
            self.note("failed", what, f"there is no {command[0]} here")
            return False
        if done.returncode:
            self.note("failed", what, "; ".join((done.stderr or done.stdout).strip().splitlines()[-3:]))
        elif not quiet:
            self.note("done", what)
        return done.returncode == 0

    @property
    def _systemctl(self) -> list[str]:
        return ["systemctl"] if self.real else ["systemctl", f"--root={self.root}"]

    def systemctl(self, *arguments: str) -> bool:
        return subprocess.run([*self._systemctl, *arguments], capture_output=True, check=False).returncode == 0

    def enable(self, unit: str) -> None:
        if self.at(units.SYSTEM / unit).exists() or self.at(units.PACKAGED / unit).exists() or self.dry_run:
            if self.systemctl("is-enabled", unit):
                self.note("same", f"{unit} is enabled")
            else:
                self.run(*self._systemctl, "enable", unit, what=f"{unit} is enabled")


def this_program() -> PurePosixPath:
    """The installed ``klaw``. Raises ServiceRefused: the service could not read it."""
    program = Path(sys.prefix) / "bin" / "klaw"
    needed = (program, Path(sys.executable).resolve(), Path(sys.base_prefix), Path(klaw.__file__))
    hidden = next((each for path in needed for each in (path, path.resolve()) if units.is_hidden(each)), None)
    if hidden is not None:
        todo = "sudo PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install WHEEL (docs/operations.md)"
        raise ServiceRefused(
            f"the service does not see {hidden}: home folders and /tmp are closed to it. Install Klaw for the whole"
            f" machine, for instance: {todo}"
        )
    if not program.exists():
        raise ServiceRefused(f"there is no {program}: install Klaw as docs/operations.md says, or give --program")
    return PurePosixPath(program)


def require_system(machine: Machine) -> None:
    """Raises ServiceRefused, which names all that is missing."""
    missing = []
    if shutil.which("systemctl") is None:
        missing.append("systemd is not installed")
    elif machine.real and not Path("/run/systemd/system").is_dir():
        missing.append("systemd does not run here")
    if machine.real and os.geteuid() != 0 and not machine.dry_run:
        missing.append("only root may do this: use sudo")
    if missing:
        raise ServiceRefused("; ".join(missing))


def install(
    wanted: ServiceInstallation, machine: Machine, *, start: bool, models: Callable[[ServiceInstallation], bool] | None
) -> None:
    """Make what is missing, in the order in which it is needed; nothing more where the home is another user's.
    ``start``: also start the service, or restart it when a unit was changed. ``models`` gets the models."""
    owner = _user(wanted, machine)
    machine.folder(units.ENVIRONMENT.parent, 0o755)
    machine.once(units.ENVIRONMENT, units.text_of("klaw.env.example"), 0o600)
    if not machine.folder(wanted.home, 0o700, owner):
        return  # units for one who may not use it would end the backups, too
    if wanted.workspace is not None:
        machine.folder(wanted.workspace, 0o700, owner)
        machine.link(wanted.home / "workspace", wanted.workspace)
        closed = [
            str(each)
            for each in machine.at(wanted.workspace).parents
            if owner and each.exists() and each.stat().st_uid != owner[0] and not each.stat().st_mode & 0o001
        ]
        if closed:
            why = f"only the service sees it, not commands like klaw backup; they do after chmod o+x {' '.join(closed)}"
            machine.note("skipped", f"opening {wanted.workspace}", why)
    for path, text in wanted.files().items():
        packaged = machine.at(units.PACKAGED / path.name)
        if packaged.exists() and packaged.read_text(encoding="utf-8") == text and not machine.at(path).exists():
            machine.note("same", units.PACKAGED / path.name, "of the Debian package")
        else:
            machine.put(path, text)
    waiting = _wait_for_time(machine)
    if machine.real and machine.changed:
        machine.run("systemctl", "daemon-reload")
    for unit in (SERVICE, TIMER, *waiting):
        machine.enable(unit)
    if models is not None and not models(wanted):
        machine.note("failed", "models", "see above; Klaw runs without them: klaw service install gets them later")
    if machine.real:
        _start(machine, start=start)


def _user(wanted: ServiceInstallation, machine: Machine) -> tuple[int, int] | None:
    if not machine.real:
        machine.note("skipped", f"user {wanted.user}", "is made on the machine itself, not with --root")
        return None
    try:
        found = pwd.getpwnam(wanted.user)
    except KeyError:
        words = ["--system", "--user-group", "--home-dir", str(wanted.home), "--no-create-home"]
        made = machine.run("useradd", *words, "--shell", "/usr/sbin/nologin", wanted.user, what=f"user {wanted.user}")
        if not made:
            raise ServiceRefused(f"the user {wanted.user} could not be made") from None
        if machine.dry_run:
            return None
        found = pwd.getpwnam(wanted.user)
    else:
        machine.note("same", f"user {wanted.user}")
    return found.pw_uid, found.pw_gid


def _wait_for_time(machine: Machine) -> Iterable[str]:
    """A board without a clock of its own waits at the start until the time is set, but not for ever."""
    for sets, waits in units.WAITING.items():
        if machine.at(units.PACKAGED / sets).exists() and machine.at(units.PACKAGED / waits).exists():
            for path, text in units.time_sync(waits).items():
                machine.put(path, text)
            return [waits]
    machine.note("skipped", "waiting for the clock", "neither systemd-timesyncd nor chrony is installed")
    return []


def _start(machine: Machine, *, start: bool) -> None:
    runs = machine.systemctl("is-active", SERVICE)
    if not machine.systemctl("is-active", TIMER):
        machine.run("systemctl", "start", TIMER, what=f"{TIMER} is started")
    if not start and not runs:
        machine.note("skipped", SERVICE, "start it: systemctl start klaw")
    elif not start:
        machine.note("same", SERVICE, "a unit was changed: systemctl restart klaw" if machine.changed else "runs")
    elif runs and not machine.changed:
        machine.note("same", f"{SERVICE} runs")
    else:
        machine.run("systemctl", "restart", SERVICE, what=f"{SERVICE} is started")


@contextmanager
def readable_copy(source: Path, user: int) -> Iterator[Path]:
    """A copy of the known models for the service's user: a stick is often its owner's alone. Root reads it, so links
    are not followed."""
    with tempfile.TemporaryDirectory(prefix="klaw-models-", dir="/var/tmp") as name:
        copy = Path(name)
        folders = [source / spec.id for spec in CATALOGUE]
        for folder in (each for each in folders if each.is_dir() and not each.is_symlink()):
            (copy / folder.name).mkdir()
            for each in folder.iterdir():
                if each.is_file() and not each.is_symlink():
                    shutil.copyfile(each, copy / folder.name / each.name)
        for each in (copy, *copy.rglob("*")):
            os.chown(each, user, -1)
        yield copy


def pull_models(wanted: ServiceInstallation, source: Path | None, *, quiet: bool) -> bool:
    """Get the models as the service's user. Returns whether all are there."""
    # root becomes the owner of the home, for good: therefore a process of its own
    command = [sys.executable, "-m", "klaw", "models", "pull", "--home", str(wanted.home)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KLAW_", "XDG_"))}
    output = subprocess.DEVNULL if quiet else None

    def pull(*more: str) -> bool:
        return subprocess.run([*command, *more], stdout=output, env=environ, cwd="/", check=False).returncode == 0

    if source is None:
        return pull()
    with readable_copy(source, pwd.getpwnam(wanted.user).pw_uid) as copy:
        return pull("--from", str(copy))


def uninstall(machine: Machine) -> None:
    """Remove the service; data, configuration and user stay."""
    if machine.real:
        for unit in (SERVICE, TIMER):
            if machine.systemctl("is-active", unit) or machine.systemctl("is-enabled", unit):
                machine.run("systemctl", "disable", "--now", unit, what=f"{unit} is stopped and disabled")
    else:
        machine.run("systemctl", f"--root={machine.root}", "disable", SERVICE, TIMER, quiet=True)
    for path in units.ours():
        machine.take_away(path)
        machine.take_away(path.with_name(f"{path.name}.new"))
    if machine.real and machine.changed:
        machine.run("systemctl", "daemon-reload")
