"""The state of the service in systemd, and its journal. Blocks."""

import subprocess
from pathlib import Path, PurePosixPath

from klaw.service.units import PACKAGED, SYSTEM, UNITS, ServiceRefused, told

_SHOWN = ("ActiveState", "SubState", "UnitFileState", "ActiveEnterTimestamp", "NRestarts", "Result", "MemoryCurrent")


def unit_in(root: Path) -> Path | None:
    places = (root / str(folder).lstrip("/") / UNITS[0] for folder in (SYSTEM, PACKAGED))
    return next((each for each in places if each.exists()), None)


def owner_and_home(root: Path = Path("/")) -> tuple[str, PurePosixPath]:
    """Raises ServiceRefused: none is installed."""
    unit = unit_in(root)
    if unit is None:
        raise ServiceRefused("the service is not installed: sudo klaw service install")
    return told(unit.read_text(encoding="utf-8"))


def state(unit: str, *properties: str) -> dict[str, str]:
    """Properties of a unit; by default those that a person wants to know. Raises ServiceRefused."""
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
    """Returns the exit code. Raises ServiceRefused."""
    command = ["journalctl", "--unit=klaw.service", f"--lines={lines}", *(["--follow"] if follow else ["--no-pager"])]
    try:
        return subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        raise ServiceRefused("there is no journalctl here: systemd is not installed") from None
