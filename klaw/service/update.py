"""Update this installation from a wheel. Environment and database are kept (``rollback``) until the new version answers
and its doctor finds no new problems; else both are restored. What this module needs is imported before anything is
replaced, and Klaw is only asked by its commands. Blocks.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path
from typing import IO, Any, TypeAlias

import attrs

from klaw import __version__
from klaw.backup.folder import alone, newest
from klaw.config.paths import Paths
from klaw.errors import KlawError
from klaw.service.rollback import Rollback
from klaw.service.units import BACKUP, SERVICE
from klaw.store import migrations


class UpdateRefused(KlawError):
    """Nothing was changed; the text says why and what to do."""


@attrs.frozen(kw_only=True)
class Release:
    path: Path
    version: str
    schema: int

    @property
    def is_newer(self) -> bool:
        return order(self.version) > order(__version__)

    @property
    def way_back(self) -> str:
        """Whether this version can open the database afterwards."""
        now = migrations.latest()
        if self.schema == now:
            return f"the database stays as it is (schema {self.schema}): either version opens it"
        goes = f"the database goes from schema {now} to {self.schema}, which Klaw {__version__} does not open"
        return f"{goes}: going back later needs a backup from before the update"


MAX_WHEEL, MAX_UNPACKED, MAX_ABOUT = 64 << 20, 256 << 20, 1 << 20
_MIGRATION = re.compile(r"klaw/store/migrations/(\d{1,6})_\w{1,80}\.sql")
_VERSION = re.compile(r"[\w.+!]{1,64}")


def read_wheel(path: Path) -> Release:
    """Raises UpdateRefused: it is no wheel of Klaw."""
    try:
        if not path.is_file() and path.exists():
            raise UpdateRefused(f"{path} is not a file: name the wheel itself")
        if path.stat().st_size > MAX_WHEEL:
            raise _too_large(path, "the file", MAX_WHEEL)
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            if sum(each.file_size for each in wheel.infolist()) > MAX_UNPACKED:
                raise _too_large(path, "what it holds", MAX_UNPACKED)
            (about,) = [name for name in names if re.fullmatch(r"klaw-[^/]+\.dist-info/METADATA", name)]
            if wheel.getinfo(about).file_size > MAX_ABOUT:
                raise _too_large(path, "its METADATA", MAX_ABOUT)
            told = HeaderParser().parsestr(wheel.read(about).decode("utf-8"))
            damaged = wheel.testzip()
    except OSError as error:
        raise UpdateRefused(f"{path} cannot be read: {error.strerror or type(error).__name__}") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise UpdateRefused(f"{path} is not a wheel of Klaw, or not all of it") from error
    if damaged is not None:
        raise UpdateRefused(f"{path} is damaged ({damaged}): get it again")
    if not _VERSION.fullmatch(str(told["Version"] or "")):
        raise UpdateRefused(f"{path} does not say which version of Klaw it is: get it again")
    if not re.fullmatch(rf"klaw-{re.escape(str(told['Version']))}-[\w.]+-[\w.]+-[\w.]+\.whl", path.name):
        made = f"klaw-{told['Version']}-py3-none-any.whl"
        raise UpdateRefused(f"{path.name}: pip wants the name that the wheel was made with ({made}): rename it")
    numbers = [int(found[1]) for name in names if (found := _MIGRATION.fullmatch(name))]
    return Release(path=path, version=str(told["Version"]), schema=max(numbers, default=0))


def _too_large(path: Path, what: str, most: int) -> UpdateRefused:
    return UpdateRefused(f"{path} is not a wheel of Klaw: {what} has more than {most >> 20} MiB; get it again")


def order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


STOP_S = 200.0


@attrs.define
class Systemd:
    """The service of this machine. ``settle`` stops it again if it did not run."""

    ran: bool = True
    backup: Sequence[str] = ("systemctl", "start", BACKUP)
    """The nightly one: it may read a workspace that only the service sees, and knows another folder for backups."""

    def stop(self) -> None:
        try:
            subprocess.run(["systemctl", "stop", SERVICE], check=True, timeout=STOP_S)
        except subprocess.SubprocessError:
            raise UpdateRefused(f"systemd could not stop {SERVICE}: systemctl status {SERVICE}") from None

    def start(self) -> None:
        subprocess.run(["systemctl", "reset-failed", SERVICE], check=False, capture_output=True)
        subprocess.run(["systemctl", "start", "--no-block", SERVICE], check=False)

    def alive(self) -> bool:
        return subprocess.run(["systemctl", "is-failed", SERVICE], check=False, capture_output=True).returncode != 0

    def why(self) -> str:
        return "klaw service logs"

    def settle(self) -> None:
        if not self.ran:
            self.stop()


@attrs.define
class Trial:
    """Without a service: a server is started to see whether it works, and stopped again."""

    program: Sequence[str]
    backup: None = None
    _child: "subprocess.Popen[bytes] | None" = None
    _said: IO[bytes] = attrs.Factory(tempfile.TemporaryFile)

    def stop(self) -> None:
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None

    def start(self) -> None:
        self._said.truncate(0)
        none, command = subprocess.DEVNULL, [*self.program, "serve"]
        self._child = subprocess.Popen(command, stdin=none, stdout=none, stderr=self._said, cwd="/")

    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def why(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        return next((each for each in reversed(lines) if each), "klaw serve says why")

    def settle(self) -> None:
        self.stop()


Control: TypeAlias = Systemd | Trial
"""Stops and starts the server; ``settle`` leaves it as it should be."""
START_S = 60.0
EXTRAS = ("local", "mcp")
OF_DEBIAN = Path("/usr/lib/klaw")
MOST_SAID = 5
BEARABLE = frozenset({"embedding_model", "local_model", "clock", "files", "knowledge"})
"""Checks of the doctor that do not stop an update."""

Tell = Callable[[str], None]


class UpdateFailed(KlawError):
    """The new version does not work, or could not be installed; the text says what is there now."""


@attrs.define(kw_only=True)
class Update:
    """One update of one installation: its ``home`` (None: the user's usual places), and the ``prefix`` of its
    environment. ``wheels`` is where pip finds the dependencies; None: as usual."""

    paths: Paths
    home: Path | None
    control: Control
    tell: Tell
    wheels: Path | None = None
    prefix: Path = Path(sys.prefix)

    def run(self, release: Release, *, backup: bool = True) -> None:
        """Raises UpdateRefused: nothing was changed; UpdateFailed: the text says what is there now."""
        with self._alone():
            self._run_alone(release, backup=backup)

    def _run_alone(self, release: Release, *, backup: bool) -> None:
        self._check(release)
        installer = self._installer()
        before = self._problems()
        if worse := {name: text for name, text in before.items() if name not in BEARABLE}:
            raise UpdateRefused(f"the installation has problems: fix them first (klaw doctor): {_told(worse)}")
        found = f"{_told(before)} (does not stop an update)" if before else f"no problems with Klaw {__version__}"
        self.tell(f"doctor: {found}")
        if backup:
            self._back_up()
        try:
            self.control.stop()
            self._kept.keep(database=release.schema != migrations.latest())
        except (OSError, KeyboardInterrupt) as error:  # a full disk, for instance
            self._resume(__version__)
            why = getattr(error, "strerror", "interrupted") or "the environment could not be copied"
            raise UpdateRefused(f"nothing was installed, and Klaw {__version__} is as before: {why}") from error
        try:
            self._install(release, installer)
            self.control.start()
            self._wait(release.version)
            if new := {name: text for name, text in self._problems().items() if name not in before}:
                raise UpdateFailed(f"its doctor finds problems: {_told(new)}")
        except (KlawError, OSError, subprocess.SubprocessError, KeyboardInterrupt) as error:
            why = str(error) or type(error).__name__
            try:
                self._back()
            except KlawError as second:
                raise UpdateFailed(f"{why}; going back to Klaw {__version__}: {second}") from error
            raise UpdateFailed(f"{why}; Klaw {__version__} is restored, with its database") from error
        self.control.settle()
        self._kept.drop()
        self.tell(f"Klaw {release.version} answers; its doctor finds no {'new ' if before else ''}problems")

    def back(self) -> None:
        """Undo an interrupted update. Raises UpdateRefused: none was; UpdateFailed: the old version does not answer."""
        with self._alone():
            if not self._kept.is_there():
                raise UpdateRefused(f"there is nothing to go back to: no update of {self.prefix} was interrupted")
            self._back()
            self.tell("it answers, with its previous database")

    @property
    def _kept(self) -> Rollback:
        return Rollback(self.prefix, self.paths.database)

    def _alone(self) -> AbstractContextManager[None]:
        return alone(self.prefix.parent, UpdateRefused("another update is at work: wait for its end"))

    def _check(self, release: Release) -> None:
        if sys.prefix == sys.base_prefix:
            raise UpdateRefused("Klaw is not installed in an environment of its own: see docs/operations.md")
        if self.prefix == OF_DEBIAN:
            raise UpdateRefused("Klaw came as a Debian package: `klaw backup create`, then apt install ./klaw_….deb")
        if not os.access(self.prefix, os.W_OK) or not os.access(self.prefix.parent, os.W_OK):
            raise UpdateRefused(f"{self.prefix} cannot be changed: use sudo")
        origin = metadata.distribution("klaw").read_text("direct_url.json") or "{}"
        if json.loads(origin).get("dir_info", {}).get("editable"):
            raise UpdateRefused("this is a checkout: update it by git, then `make install`")
        if order(release.version) <= order(__version__):
            raise UpdateRefused(f"the wheel has Klaw {release.version}, and this is {__version__}: nothing to do")
        if self._kept.is_there():
            raise UpdateRefused("an update was interrupted: `klaw update back` restores the previous version")

    def _problems(self) -> dict[str, str]:
        done = self._run([*program(self.prefix, self.home), "doctor", "--json"])
        try:
            found = [each for each in json.loads(done.stdout)["findings"] if each["level"] == "problem"]
            return {each["name"]: each["text"] for each in found}
        except (ValueError, KeyError, TypeError):
            raise UpdateRefused(f"its doctor does not answer: {_last(done.stderr or done.stdout)}") from None

    def _back_up(self) -> None:
        before = newest(self.paths.backups_dir)
        done = self._run(self.control.backup or [*program(self.prefix, self.home), "backup", "create"])
        if done.returncode and newest(self.paths.backups_dir) == before:  # one that lacks a file is one
            why = _last(done.stderr or done.stdout)
            raise UpdateRefused(f"no backup could be made; --no-backup goes on without: {why}")
        self.tell("backup made")

    def _installer(self) -> list[str]:
        """The command that installs into the environment. Raises UpdateRefused."""
        python = str(self.prefix / "bin" / "python")
        if not self._run([python, "-m", "pip", "--version"]).returncode:
            return [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if (uv := shutil.which("uv")) is not None:
            return [uv, "pip", "install", "--quiet", "--python", python]
        raise UpdateRefused(f"there is no pip in {self.prefix}, and no uv in PATH ({os.environ.get('PATH')})")

    def _install(self, release: Release, installer: Sequence[str]) -> None:
        extras = ",".join(each for each in EXTRAS if has_extra(each))
        wanted = f"klaw[{extras}] @ {release.path.absolute().as_uri()}" if extras else str(release.path)
        offline = ["--no-index", "-f", str(self.wheels)] if self.wheels is not None else []
        done = self._run([*installer, *offline, wanted])
        if done.returncode:
            raise UpdateFailed(f"Klaw {release.version} could not be installed: {_last(done.stderr)}")
        self.tell(f"Klaw {release.version} installed")

    def _wait(self, version: str) -> None:
        """Until the server answers as this version. Raises UpdateFailed."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            done = self._run([*program(self.prefix, self.home), "status", "--json"])
            with suppress(ValueError, TypeError, KeyError):
                if json.loads(done.stdout)["version"] == version:  # degraded or not
                    return
            if not self.control.alive():
                raise UpdateFailed(f"Klaw {version} ended when it was started ({self.control.why()})")
            time.sleep(0.5)
        raise UpdateFailed(f"Klaw {version} did not answer within {START_S:.0f} s ({self.control.why()})")

    def _back(self) -> None:
        """Restore what was kept. Raises UpdateFailed."""
        self.control.stop()
        try:
            self._kept.put_back()
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise UpdateFailed(f"the previous version could not be restored: {why}; then: klaw update back") from error
        version = self._run([*program(self.prefix, None), "--version"]).stdout.split()[-1:]
        self.tell(f"going back to Klaw {''.join(version)}")
        self._resume("".join(version))

    def _resume(self, version: str) -> None:
        """Let the old version serve again. Raises UpdateFailed."""
        self.control.start()
        self._wait(version)
        self.control.settle()

    @staticmethod
    def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def program(prefix: Path, home: Path | None) -> list[str]:
    return [str(prefix / "bin" / "python"), "-m", "klaw", *(["--home", str(home)] if home is not None else [])]


def has_extra(extra: str) -> bool:
    """Whether all its packages are installed."""
    wanted: list[Any] = [each for each in metadata.requires("klaw") or () if f'extra == "{extra}"' in each]
    for each in wanted:
        try:
            metadata.distribution(re.split(r"[^\w.-]", each, maxsplit=1)[0])
        except metadata.PackageNotFoundError:
            return False
    return bool(wanted)


def _told(problems: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in problems.items())


def _last(said: str) -> str:
    return "; ".join(line.strip() for line in said.strip().splitlines()[-MOST_SAID:])
