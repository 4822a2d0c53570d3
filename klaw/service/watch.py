"""How the service is, as systemd tells it, and its journal. Blocks."""

import subprocess
from pathlib import Path, PurePosixPath

from klaw.service.units import PACKAGED, SYSTEM, UNITS, ServiceRefused, told

_SHOWN = ("ActiveState", "SubState", "UnitFileState", "ActiveEnterTimestamp", "NRestarts", "Result", "MemoryCurrent")


def unit_in(root: Path) -> Path | None:
    """The installed ``klaw.service`` of a machine."""
    places = (root / str(folder).lstrip("/") / UNITS[0] for folder in (SYSTEM, PACKAGED))
    return next((each for each in places if each.exists()), None)


def owner_and_home(root: Path = Path("/")) -> tuple[str, PurePosixPath]:
    """Those of the installed service.

    Raises:
        ServiceRefused: none is installed.
    """
    unit = unit_in(root)
    if unit is None:
        raise ServiceRefused("the service is not installed: sudo klaw service install")
    return told(unit.read_text(encoding="utf-8"))


def state(unit: str, *properties: str) -> dict[str, str]:
    """Properties of a unit; of the service those that a person wants to know. Raises ServiceRefused."""
    wanted = ",".join(properties or _SHOWN)
    try:
        done = subprocess.run(
            ["systemctl", "show", unit, f"--property={wanted}"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ServiceRefused("systemd is not installed") from None
    if done.returncode:
        raise ServiceRefused(f"systemd does not answer: {done.stderr.strip()}")
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


def logs(*, follow: bool, lines: int) -> int:
    """Show the journal of the service; returns the exit code. Raises ServiceRefused."""
    command = ["journalctl", "--unit=klaw.service", f"--lines={lines}", *(["--follow"] if follow else ["--no-pager"])]
    try:
        return subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        raise ServiceRefused("there is no journalctl here: systemd is not installed") from None
