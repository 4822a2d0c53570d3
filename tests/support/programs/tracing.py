"""What a process and its children did to the network and to files, as strace saw it."""

import ipaddress
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

CALLS = "connect,sendto,sendmsg,sendmmsg,open,openat,openat2,creat,mkdir,mkdirat,link,linkat,symlink,symlinkat"
HARMLESS = ("/dev/", "/proc/", "/sys/")
NAME_SERVICES = (
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/run/dbus",
    "/run/avahi",
    "/var/run/avahi",
    "/var/run/dbus",
)
"""What the C library and others open or ask when they look up a name; numeric addresses need none of it."""

_ADDRESS = re.compile(r'sa_family=AF_INET6?\b.*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|^\d+ +(?:creat|mkdir|link|symlink)")


@cache
def _refused() -> str:
    if shutil.which("strace") is None:
        return "needs strace (Debian package strace)"
    done = subprocess.run(["strace", "-e", "trace=none", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "needs strace, which may not trace here"


def needs_strace() -> None:
    """Skip the test where strace is not installed or not allowed."""
    if reason := _refused():
        pytest.skip(reason)


def traced(trace: Path) -> tuple[str, ...]:
    """This Python under strace: what comes before a program's arguments. The Python is the process that is started."""
    return ("strace", "-D", "-f", "-qq", "-s", "300", "-e", f"trace={CALLS}", "-o", str(trace), sys.executable)


def plain_environ(home: Path) -> dict[str, str]:
    """Nothing that a library takes for "testing" or "CI", because some then keep quiet by themselves."""
    home.mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def trespasses(trace: Path, allowed: Sequence[Path]) -> list[str]:
    """The traced calls that look up a name, leave this machine, or write outside of the ``allowed`` folders."""
    return [line for line in trace.read_text(errors="replace").splitlines() if _trespasses(line, allowed)]


def _trespasses(line: str, allowed: Sequence[Path]) -> bool:
    if any(f'"{place}' in line for place in NAME_SERVICES):
        return True
    if found := _ADDRESS.search(line):
        return not ipaddress.ip_address(found[1]).is_loopback
    if not _WRITES.search(line) or "O_TMPFILE" in line:  # SQLite's scratch files have no name and leave nothing
        return False
    # Relative paths are beneath an opened folder, which the working folder of the traced program is not.
    paths = [Path(text) for text in re.findall(r'"(/[^"]*)"', line) if not text.startswith(HARMLESS)]
    paths = [path for path in paths if "__pycache__" not in path.parts]  # Python's own, beside the modules
    return any(not any(path.is_relative_to(folder) for folder in allowed) for path in paths)
