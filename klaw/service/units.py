"""The files of a system service, made from those of conf/, and the state of an installed one. A unit carries the
SHA-256 of its own text: an untouched one of an older Klaw is updated, an edited one is kept. Blocks."""

import hashlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

import attrs

from klaw.errors import KlawError

Extra: TypeAlias = Literal["node-mcp", "bubblewrap"]

SERVICE, BACKUP, TIMER = UNITS = ("klaw.service", "klaw-backup.service", "klaw-backup.timer")
SYSTEM = PurePosixPath("/etc/systemd/system")
PACKAGED = PurePosixPath("/usr/lib/systemd/system")
ENVIRONMENT = PurePosixPath("/etc/klaw/klaw.env")
STATE = PurePosixPath("/var/lib")
HIDDEN = tuple(map(PurePosixPath, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108  nothing is made there
"""ProtectHome= and PrivateTmp= hide them."""
LEAST_PARTS = 3
"""Shorter paths belong to the system."""
TIME_SYNC_S = 90
WAITING = {"systemd-timesyncd.service": "systemd-time-wait-sync.service", "chrony.service": "chrony-wait.service"}
"""What sets the clock, and what waits for it."""

_FILES = Path(__file__).parent / "files"
_PROGRAM = "/opt/klaw/bin/klaw"
_PLAIN = re.compile(r"/[\w./@+-]*")
_MARK = "# Made by `klaw service install`; changes belong into `systemctl edit {}`. SHA-256 of what follows: {}\n"
_EXTRAS: Mapping[Extra, str] = {
    "node-mcp": """\
# MCP servers that run on Node.js: its compiler writes code at run time.
[Service]
MemoryDenyWriteExecute=no
""",
    "bubblewrap": """\
# The sandbox of host_exec makes namespaces of its own, with mounts in them; bubblewrap of Debian 13 also needs openat2,
# which RestrictSUIDSGID= takes away.
[Service]
RestrictNamespaces=no
RestrictSUIDSGID=no
SystemCallFilter=@mount capset sethostname setns
""",
}


class ServiceRefused(KlawError):
    """The service cannot be set up, or looked at, as asked; the text says why and what to do."""


@attrs.frozen(kw_only=True)
class ServiceInstallation:
    """Paths are those of the machine that it runs on."""

    program: PurePosixPath
    user: str = "klaw"
    home: PurePosixPath = STATE / "klaw"
    extras: tuple[Extra, ...] = ()
    workspace: PurePosixPath | None = None
    """None: in the home."""

    def __attrs_post_init__(self) -> None:
        """Raises ServiceRefused."""
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", self.user) or self.user == "root":
            raise ServiceRefused("--user: the name of a system user that is not root")
        named = {"the program": self.program, "--home": self.home, "--workspace": self.workspace}
        for name, path in named.items():
            if path is not None and not _PLAIN.fullmatch(str(path)):
                raise ServiceRefused(f"{name}: must be an absolute path of letters, digits and ./@+-_ ({path})")
            if path is not None and len(path.parts) < LEAST_PARTS:
                raise ServiceRefused(f"{name}: {path} belongs to the system: name a folder below it")

    def files(self) -> dict[PurePosixPath, str]:
        made = {SYSTEM / name: self.unit(name) for name in UNITS}
        for extra in self.extras:
            made[SYSTEM / "klaw.service.d" / f"{extra}.conf"] = _EXTRAS[extra]
        if self.workspace is not None:
            text = "\n".join(["[Service]", f"Environment=KLAW_WORKSPACE={self.workspace}", *_seen(self.workspace), ""])
            for name in UNITS[:2]:
                made[SYSTEM / f"{name}.d" / "workspace.conf"] = text
        return made

    def unit(self, name: str) -> str:
        text = text_of(name).replace(_PROGRAM, str(self.program)).replace("User=klaw\n", f"User={self.user}\n")
        if self.home.parent == STATE:
            return text.replace("StateDirectory=klaw\n", f"StateDirectory={self.home.name}\n").replace(
                "%S/klaw", f"%S/{self.home.name}"
            )
        own = "".join(f"{line}\n" for line in _seen(self.home))
        text = text.replace("StateDirectory=klaw\nStateDirectoryMode=0700\n", own).replace("%S/klaw", str(self.home))
        return text.replace("ProtectHome=yes\n", "") if "ProtectHome=tmpfs" in own else text


def text_of(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def ours() -> list[PurePosixPath]:
    """Every file that Klaw may have put among the units."""
    drop_ins = [SYSTEM / f"{unit}.d" / f"{name}.conf" for unit in UNITS[:2] for name in (*_EXTRAS, "workspace")]
    waiting = [path for unit in WAITING.values() for path in time_sync(unit)]
    return [*(SYSTEM / unit for unit in UNITS), *drop_ins, *waiting]


def told(unit: str) -> tuple[str, PurePosixPath]:
    """Read user and home of a ``klaw.service``."""
    user, home = re.search(r"^User=(\S+)$", unit, re.MULTILINE), re.search(r"\bKLAW_HOME=(\S+)", unit)
    return user[1] if user else "klaw", PurePosixPath(home[1].replace("%S", str(STATE))) if home else STATE / "klaw"


def time_sync(unit: str) -> dict[PurePosixPath, str]:
    """A board that is offline starts all the same."""
    text = f"# A board without network starts all the same.\n[Service]\nTimeoutStartSec={TIME_SYNC_S}\n"
    return {SYSTEM / f"{unit}.d" / "klaw.conf": text}


def is_hidden(path: Path | PurePosixPath) -> bool:
    """Whether the service's sandbox hides a path from it."""
    return any(PurePosixPath(path).is_relative_to(each) for each in HIDDEN)


def _seen(folder: PurePosixPath) -> list[str]:
    if any(folder.is_relative_to(each) for each in HIDDEN[:3]):
        return ["ProtectHome=tmpfs", f"BindPaths={folder}"]
    return [f"BindPaths={folder}"] if is_hidden(folder) else [f"ReadWritePaths={folder}"]


def marked(path: PurePosixPath, text: str) -> str:
    """Put a line before it that shows later whether somebody edited it."""
    unit = path.parent.name.removesuffix(".d") if path.suffix == ".conf" else path.name
    return _MARK.format(unit.removesuffix(".service"), hashlib.sha256(text.encode()).hexdigest()) + text


def is_untouched(text: str) -> bool:
    """Whether nobody edited it since any version of Klaw wrote it."""
    head, _, rest = text.partition("\n")
    return head.startswith("#") and head.endswith(f" {hashlib.sha256(rest.encode()).hexdigest()}")


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
    command = ["systemctl", "show", unit, f"--property={','.join(properties or _SHOWN)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
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
