"""``klaw update``: install a newer version from its wheel, and go back when it does not work."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from klaw import __version__
from klaw.cli.operations import Here, command
from klaw.config.paths import Paths
from klaw.operations.lines import Lines
from klaw.operations.operation import Nothing, Noun, argument, required

if TYPE_CHECKING:
    from klaw.service.update import Control, Update

NOUN = Noun("update", "install a newer version, with a way back (docs/operations.md)", local=True, of_machine=True)


@attrs.frozen(kw_only=True)
class WheelFile:
    wheel: str = required("the file of the new version: klaw-….whl", metavar="WHEEL")


@attrs.frozen(kw_only=True)
class Apply(WheelFile):
    wheels: str | None = argument("take what else it needs from this folder, without network", metavar="DIR")
    backup: bool = argument("make no backup first", default=True, option="--no-backup")


def _checked(answer: dict[str, Any]) -> Lines:
    newer = "a newer version" if answer["newer"] else "not a newer version"
    lines = [f"installed: Klaw {answer['installed']}", f"the wheel: Klaw {answer['version']}, {newer}"]
    return [*lines, answer["way_back"]] if answer["newer"] else lines


@command(NOUN, "update_check", WheelFile, cli="check", show=_checked)
def check(asked: WheelFile, _here: Here) -> dict[str, Any]:
    """Tell what a wheel would change. Nothing is asked of the network: Klaw does not look for new versions."""
    from klaw.service.update import read_wheel

    found = read_wheel(Path(asked.wheel).expanduser().absolute())
    about = {"version": found.version, "schema": found.schema, "newer": found.is_newer, "way_back": found.way_back}
    return {"installed": __version__, **about}


@command(NOUN, "update_apply", Apply, cli="apply")
def apply(asked: Apply, here: Here) -> dict[str, Any]:
    """Install the new version: doctor, backup, stop, install, start, doctor. When it does not answer within a minute,
    or its doctor finds new problems, the version and the database of before are put in place again, and the exit code
    is 1."""
    from klaw.service.update import read_wheel

    release = read_wheel(Path(asked.wheel).expanduser().absolute())
    wheels = Path(asked.wheels).expanduser().absolute() if asked.wheels else None
    with _updating(here, wheels) as update:
        update.run(release, backup=asked.backup)
    return {"installed": release.version, "before": __version__}


@command(NOUN, "update_back", Nothing, cli="back")
def back(_asked: Nothing, here: Here) -> dict[str, Any]:
    """Undo an update that was interrupted, by a power cut for instance: put the old version and database
    back. If `klaw` does not start, call it as /opt/klaw.before-update/bin/python -m klaw update back, with the folder
    where it is installed."""
    from klaw.actor import log as _log  # noqa: F401  this environment may be the one that is moved

    with _updating(here) as update:
        update.back()
    return {"home": str(update.home) if update.home else None}


def _prefix() -> Path:
    """The environment that is updated; this program may run in the copy kept of it."""
    from klaw.service.rollback import KEPT

    return Path(sys.prefix.removesuffix(KEPT))


@contextmanager
def _updating(here: Here, wheels: Path | None = None) -> Iterator["Update"]:
    """Let the body update although the terminal goes away, and be interrupted once only, so that it can go back."""
    from klaw.service.update import Update

    def interrupt(*_words: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    def tell(text: str) -> None:
        with suppress(OSError):
            here.say(text)

    wanted: dict[int, Any] = {signal.SIGHUP: signal.SIG_IGN, signal.SIGINT: interrupt, signal.SIGTERM: interrupt}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        place, control = _server(here.home)
        paths, prefix = Paths.resolve(place), _prefix()
        yield Update(paths=paths, home=place, control=control, tell=tell, wheels=wheels, prefix=prefix)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _server(home: str | None) -> tuple[Path | None, "Control"]:
    """The home, and how its server is stopped and started."""
    from klaw.cli.admin_call import NoServer, call
    from klaw.service.units import UNITS, ServiceRefused, owner_and_home, state
    from klaw.service.update import Systemd, Trial, UpdateRefused, program

    given = home or os.environ.get("KLAW_HOME")
    with suppress(ServiceRefused, KeyError):
        installed = Path(owner_and_home()[1])
        runs = state(UNITS[0], "ActiveState")["ActiveState"] not in ("inactive", "failed")
        if not given or Path(given).resolve() == installed.resolve():
            return installed, Systemd(runs)
    place = Path(home).absolute() if home else None
    try:
        call(Paths.resolve(place), "status")
    except NoServer:
        return place, Trial(program(_prefix(), place))
    raise UpdateRefused("the server runs, and not as the system's service: stop it first")
