"""``klaw update``: install a newer version from its wheel, and go back when it does not work."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from klaw import __version__
from klaw.config.paths import Paths
from klaw.operations.operation import Lines, Noun, Shown, argument, required

if TYPE_CHECKING:
    from klaw.service.update import Control

NOUN = Noun("update", "install a newer version, with a way back (docs/operations.md)", local=True, of_machine=True)
Say = Callable[..., None]


@attrs.frozen(kw_only=True)
class OfWheel:
    wheel: str = required("the file of the new version: klaw-….whl", metavar="WHEEL")


@attrs.frozen(kw_only=True)
class Apply(OfWheel):
    wheels: str | None = argument("find what it needs besides in this folder, without network", metavar="DIR")
    backup: bool = argument("make no backup first", default=True, option="--no-backup")


def _checked(answer: dict[str, Any]) -> Lines:
    newer = "a newer version" if answer["newer"] else "not a newer version"
    lines = [f"installed: Klaw {answer['installed']}", f"the wheel: Klaw {answer['version']}, {newer}"]
    return [*lines, answer["way_back"]] if answer["newer"] else lines


@NOUN.operation("update_check", OfWheel, cli="check", show=_checked)
def check(asked: OfWheel) -> dict[str, Any]:
    """Tell what a wheel would change. Nothing is asked of the network: Klaw does not look for new versions."""
    from klaw.service.update import read_wheel

    found = read_wheel(Path(asked.wheel).expanduser().absolute())
    about = {"version": found.version, "schema": found.schema, "newer": found.is_newer, "way_back": found.way_back}
    return {"installed": __version__, **about}


@NOUN.operation("update_apply", Apply, cli="apply", show=lambda: Shown(()))
def apply(asked: Apply, home: str | None, say: Say) -> dict[str, Any]:
    """Install the new version: doctor, backup, stop, install, start, doctor. When it does not answer within a minute,
    or its doctor finds problems, the version and the database of before are put in place again, and the exit code is 1.
    """
    from klaw.service.update import Update, read_wheel

    place, control = _server(home)
    release = read_wheel(Path(asked.wheel).expanduser().absolute())
    wheels = Path(asked.wheels).expanduser().absolute() if asked.wheels else None
    update = Update(release=release, paths=Paths.resolve(place), home=place, control=control, tell=say, wheels=wheels)
    update.run(backup=asked.backup)
    return {"installed": release.version, "before": __version__}


def _server(home: str | None) -> tuple[Path | None, "Control"]:
    """The home, and how its server is stopped and started."""
    from klaw.cli.admin_call import NoServer, call
    from klaw.service.units import UNITS, ServiceRefused
    from klaw.service.update import Systemd, Trial, UpdateRefused, program
    from klaw.service.watch import owner_and_home, state

    try:
        place = Path(owner_and_home()[1])
        runs = state(UNITS[0], "ActiveState")["ActiveState"] == "active"
    except (ServiceRefused, KeyError):
        place, runs = None, False
    if place is not None and runs and home in (None, str(place)):
        return place, Systemd()
    place = Path(home).absolute() if home else None
    try:
        call(Paths.resolve(place), "status")
    except NoServer:
        return place, Trial(program(Path(sys.prefix), place))
    raise UpdateRefused("the server runs, and not as the system's service: stop it first")
