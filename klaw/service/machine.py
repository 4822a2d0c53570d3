"""Steps on a machine: units, folders, links, programs. What exists stays as it is, and every step is reported.
Blocks."""

import difflib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import attrs

from klaw import atomic_file
from klaw.config.run_as import name_of
from klaw.service.units import PACKAGED, SYSTEM, is_untouched, marked


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
        """Unless somebody edited it: then Klaw's version is written beside it."""
        place, new = self.at(path), marked(path, text)
        if place.is_symlink() and str(place.readlink()) == os.devnull:
            self.note("failed", path, f"is masked: systemctl unmask {path.name}")
            return
        old = place.read_text(encoding="utf-8", errors="replace") if place.exists() else None
        if old in (new, text):
            self.note("same", path)
        elif old is None or is_untouched(old):
            self._write(place, new, 0o644)
            self.note("made" if old is None else "changed", path)
        else:
            beside = path.with_name(f"{path.name}.new")
            self._write(self.at(beside), new, 0o644)
            diff = difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), str(beside), lineterm="", n=1)
            self.note("kept", path, f"somebody edited it; Klaw's is {beside}", [*diff])

    def take_away(self, path: PurePosixPath) -> None:
        """One that was edited stays under another name."""
        place = self.at(path)
        if not place.exists():
            return
        if is_untouched(place.read_text(encoding="utf-8", errors="replace")):
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
        """In place of nothing or of an empty folder."""
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
        if self.at(SYSTEM / unit).exists() or self.at(PACKAGED / unit).exists() or self.dry_run:
            if self.systemctl("is-enabled", unit):
                self.note("same", f"{unit} is enabled")
            else:
                self.run(*self._systemctl, "enable", unit, what=f"{unit} is enabled")
