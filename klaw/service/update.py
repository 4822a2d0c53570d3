"""Update this installation from a wheel, and go back when the new version does not start. Blocks.

The environment is kept beside itself by hard links, and the database as a copy, until the new version answers and
its doctor finds nothing wrong; else both take their places again. What this module needs is imported before anything is
replaced. Klaw is asked for nothing but what a person could ask: each step is a command of its own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import attrs

from klaw import __version__, atomic_file
from klaw.config.paths import Paths
from klaw.errors import KlawError
from klaw.service.units import SERVICE
from klaw.store import migrations

START_S = 60.0
"""So long the new version may take until it answers."""
STOP_S = 200.0
KEPT = ".before-update"
"""Behind the names of what is kept until the new version works."""
EXTRAS = ("local", "mcp")
MOST_SAID = 5

Tell = Callable[[str], None]


class UpdateRefused(KlawError):
    """Nothing was changed; the text says why and what to do."""


class UpdateFailed(KlawError):
    """The new version does not work, or could not be installed; the text says what is there now."""


@attrs.frozen(kw_only=True)
class Release:
    """What a wheel holds."""

    path: Path
    version: str
    schema: int
    """Of the database that it writes."""
    requires_python: str

    @property
    def is_newer(self) -> bool:
        return _order(self.version) > _order(__version__)

    @property
    def way_back(self) -> str:
        """Whether the version of now can open what the new one leaves."""
        if self.schema == migrations.latest():
            return f"the database stays as it is (schema {self.schema}): either version opens it"
        return (
            f"the database goes from schema {migrations.latest()} to {self.schema}, which Klaw {__version__} does not"
            " open: going back later takes a backup of before"
        )


def read_wheel(path: Path) -> Release:
    """What a wheel holds.

    Raises:
        UpdateRefused: it is no wheel of Klaw.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            (about,) = [name for name in names if re.fullmatch(r"klaw-[^/]+\.dist-info/METADATA", name)]
            told = HeaderParser().parsestr(wheel.read(about).decode("utf-8"))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UpdateRefused(f"{path} is not a wheel of Klaw") from error
    numbers = [
        int(found[1]) for name in names if (found := re.fullmatch(r"klaw/store/migrations/(\d+)_\w+\.sql", name))
    ]
    return Release(
        path=path,
        version=str(told["Version"]),
        schema=max(numbers, default=0),
        requires_python=told["Requires-Python"] or "",
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


class Control(Protocol):
    """How the server is stopped and started."""

    def stop(self) -> None:
        """Returns when it has ended. Raises UpdateRefused if that cannot be done."""

    def start(self) -> None:
        """Returns at once. Raises OSError."""

    def alive(self) -> bool:
        """Whether it may still answer."""
        ...

    def settle(self) -> None:
        """It works: leave it as it should be."""


class Systemd:
    """The service of this machine."""

    def stop(self) -> None:
        """See ``Control``."""
        try:
            subprocess.run(["systemctl", "stop", SERVICE], check=True, timeout=STOP_S)
        except subprocess.SubprocessError:
            raise UpdateRefused(f"systemd could not stop {SERVICE}: systemctl status {SERVICE}") from None

    def start(self) -> None:
        """See ``Control``."""
        subprocess.run(["systemctl", "reset-failed", SERVICE], check=False, capture_output=True)
        subprocess.run(["systemctl", "start", "--no-block", SERVICE], check=False)

    def alive(self) -> bool:
        """See ``Control``."""
        return subprocess.run(["systemctl", "is-failed", SERVICE], check=False, capture_output=True).returncode != 0

    def settle(self) -> None:
        """See ``Control``."""


@attrs.define
class Trial:
    """Without a service: a server is started to see whether it works, and stopped again."""

    program: Sequence[str]
    _child: "subprocess.Popen[bytes] | None" = None

    def stop(self) -> None:
        """See ``Control``."""
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None

    def start(self) -> None:
        """See ``Control``."""
        quiet = subprocess.DEVNULL
        self._child = subprocess.Popen([*self.program, "serve"], stdin=quiet, stdout=quiet, stderr=quiet, cwd="/")

    def alive(self) -> bool:
        """See ``Control``."""
        return self._child is not None and self._child.poll() is None

    def settle(self) -> None:
        """See ``Control``."""
        self.stop()


@attrs.define(kw_only=True)
class Update:
    """One update of one installation.

    Args:
        release: the new version.
        paths: of the installation.
        control: stops and starts the server.
        tell: told each step.
        wheels: where pip finds what the new version needs besides; None: where pip usually does.
        prefix: of the environment.
    """

    release: Release
    paths: Paths
    home: Path | None
    """As ``--home`` has it; None: the places of the user."""
    control: Control
    tell: Tell
    wheels: Path | None = None
    prefix: Path = Path(sys.prefix)

    def run(self, *, backup: bool = True) -> None:
        """Do it all.

        Raises:
            UpdateRefused: nothing was changed.
            UpdateFailed: the version of before is there again, or what else there is.
        """
        self._check()
        self._ask("doctor", "the installation has problems: mend them first (klaw doctor)")
        self.tell(f"doctor: no problems with Klaw {__version__}")
        if backup:
            self._ask("backup", "no backup could be made; --no-backup goes on without", "create")
            self.tell("backup made")
        self.control.stop()
        try:
            kept = self._keep()
        except OSError as error:  # a full disk, for instance
            self._drop()
            self._resume()
            why = error.strerror or "the environment could not be copied"
            raise UpdateRefused(f"nothing was installed, and Klaw {__version__} runs again: {why}") from error
        try:
            self._install()
            self.control.start()
            self._wait(self.release.version)
            self._ask("doctor", "its doctor finds problems")
        except (KlawError, OSError, subprocess.SubprocessError, KeyboardInterrupt) as error:
            self._back(kept)
            why = str(error) or type(error).__name__
            raise UpdateFailed(f"{why}; Klaw {__version__} is in place again, with the database of before") from error
        self.control.settle()
        self._drop()
        self.tell(f"Klaw {self.release.version} answers; its doctor finds no problems")

    @property
    def _kept(self) -> Path:
        return self.prefix.with_name(self.prefix.name + KEPT)

    @property
    def _program(self) -> list[str]:
        return program(self.prefix, self.home)

    def _check(self) -> None:
        if sys.prefix == sys.base_prefix:
            raise UpdateRefused("Klaw is not installed in an environment of its own: see docs/operations.md")
        if not os.access(self.prefix, os.W_OK) or not os.access(self.prefix.parent, os.W_OK):
            raise UpdateRefused(f"{self.prefix} cannot be changed: use sudo")
        origin = metadata.distribution("klaw").read_text("direct_url.json") or "{}"
        if json.loads(origin).get("dir_info", {}).get("editable"):
            raise UpdateRefused("this is a checkout: update it by git, then `make install`")
        if _order(self.release.version) <= _order(__version__):
            raise UpdateRefused(f"the wheel has Klaw {self.release.version}, and this is {__version__}: nothing to do")
        if os.path.lexists(self._kept):
            raise UpdateRefused(
                f"an update was interrupted: if Klaw works, remove {self._kept}; if not, put it in the place of"
                f" {self.prefix} (mv)"
            )

    def _ask(self, command: str, refused: str, *words: str) -> None:
        done = self._run([*self._program, command, *words])
        if done.returncode:
            raise UpdateRefused(f"{refused}: {_last(done.stdout or done.stderr)}")

    def _keep(self) -> dict[Path, Path]:
        """Keep the environment, and the database if the new version changes it. Returns its files' copies."""
        # pip never writes into a file that is there, it makes new ones: so links keep what was.
        shutil.copytree(self.prefix, self._kept, symlinks=True, copy_function=os.link)
        if self.release.schema == migrations.latest():
            return {}
        copies = {file: file.with_name(file.name + KEPT) for file in self._database_files()}
        for file, copy in copies.items():
            shutil.copy2(file, copy)
            shutil.chown(copy, file.stat().st_uid, file.stat().st_gid)
            atomic_file.sync(copy)
        return copies

    def _drop(self) -> None:
        """Remove what was kept."""
        shutil.rmtree(self._kept, ignore_errors=True)
        for ending in ("", "-wal"):
            self.paths.database.with_name(f"{self.paths.database.name}{ending}{KEPT}").unlink(missing_ok=True)

    def _database_files(self) -> list[Path]:
        """The database and, if it was not closed, what has not got into it yet."""
        database = self.paths.database
        return [file for file in (database, database.with_name(f"{database.name}-wal")) if file.exists()]

    def _install(self) -> None:
        extras = ",".join(each for each in EXTRAS if has_extra(each))
        wanted = f"klaw[{extras}] @ {self.release.path.absolute().as_uri()}" if extras else str(self.release.path)
        offline = ["--no-index", "-f", str(self.wheels)] if self.wheels is not None else []
        python = str(self.prefix / "bin" / "python")
        command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *offline, wanted]
        if self._run([python, "-m", "pip", "--version"]).returncode:
            uv = shutil.which("uv")
            if uv is None:
                raise UpdateFailed("there is neither pip in the environment nor uv on the machine")
            command = [uv, "pip", "install", "--quiet", "--python", python, *offline, wanted]
        done = self._run(command)
        if done.returncode:
            raise UpdateFailed(f"Klaw {self.release.version} could not be installed: {_last(done.stderr)}")
        self.tell(f"Klaw {self.release.version} installed")

    def _wait(self, version: str) -> None:
        """Until the server answers as this version. Raises UpdateFailed."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            done = self._run([*self._program, "status", "--json"])
            with suppress(ValueError, TypeError, KeyError):
                if done.returncode == 0 and json.loads(done.stdout)["version"] == version:
                    return
            if not self.control.alive():
                raise UpdateFailed(f"Klaw {version} ended when it was started (klaw service logs)")
            time.sleep(0.5)
        raise UpdateFailed(f"Klaw {version} did not answer within {START_S:.0f} s (klaw service logs)")

    def _back(self, kept: dict[Path, Path]) -> None:
        """Put in place again what was kept. Raises UpdateFailed when that does not work either."""
        self.tell(f"going back to Klaw {__version__}")
        self.control.stop()
        failed = self.prefix.with_name(self.prefix.name + ".failed-update")
        shutil.rmtree(failed, ignore_errors=True)
        self.prefix.rename(failed)
        self._kept.rename(self.prefix)
        shutil.rmtree(failed, ignore_errors=True)
        if kept:
            for file in (*self._database_files(), self.paths.database.with_name(f"{self.paths.database.name}-shm")):
                file.unlink(missing_ok=True)
            for file, copy in kept.items():
                copy.replace(file)
            atomic_file.sync(self.paths.database.parent)
        self._resume()

    def _resume(self) -> None:
        """Let the version of before serve again. Raises UpdateFailed."""
        self.control.start()
        self._wait(__version__)
        self.control.settle()

    @staticmethod
    def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def program(prefix: Path, home: Path | None) -> list[str]:
    """The command ``klaw`` of an environment, for a home."""
    return [str(prefix / "bin" / "python"), "-m", "klaw", *(["--home", str(home)] if home is not None else [])]


def has_extra(extra: str) -> bool:
    """Whether all that an extra of Klaw asks for is installed."""
    wanted: list[Any] = [each for each in metadata.requires("klaw") or () if f'extra == "{extra}"' in each]
    for each in wanted:
        try:
            metadata.distribution(re.split(r"[^\w.-]", each, maxsplit=1)[0])
        except metadata.PackageNotFoundError:
            return False
    return bool(wanted)


def _last(said: str) -> str:
    return "; ".join(line.strip() for line in said.strip().splitlines()[-MOST_SAID:])
