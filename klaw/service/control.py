"""How an update stops and starts the server: the service of systemd, or a server of its own. Blocks."""

import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Protocol

import attrs

from klaw.service.units import BACKUP, SERVICE
from klaw.service.wheel import UpdateRefused

STOP_S = 200.0


class Control(Protocol):
    @property
    def backup(self) -> Sequence[str] | None:
        """The command that makes a backup as every night; None: as anybody."""
        ...

    def stop(self) -> None:
        """Returns when it has ended. Raises UpdateRefused if that cannot be done."""

    def start(self) -> None:
        """Returns at once. Raises OSError."""

    def alive(self) -> bool:
        """Whether it may still answer."""
        ...

    def why(self) -> str:
        """What it said last, or where that can be read."""
        ...

    def settle(self) -> None:
        """It works: leave it as it should be."""


@attrs.define
class Systemd:
    """The service of this machine; stopped again in the end if it did not run."""

    ran: bool = True
    backup: Sequence[str] = ("systemctl", "start", BACKUP)
    """It may read a workspace that only the service sees, and knows another folder for backups."""

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
