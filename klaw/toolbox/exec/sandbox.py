"""The sandbox that commands run in: bubblewrap, where it is installed and the system lets it work.

Inside, a program sees the system's programs read-only, an empty /tmp, and the user's workspace, of which it cannot
change what stands in later prompts; no other file of Klaw or of anybody, no other process, and no network unless that
is allowed.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import structlog
import trio

from klaw.config.tools import ExecToolConfig

PROBE_S = 10.0

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/passwd",
    "/etc/group", "/etc/nsswitch.conf", "/etc/mime.types", "/etc/ssl", "/etc/ca-certificates", "/etc/pki",
)  # fmt: skip
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/services", "/etc/protocols", "/run/systemd/resolve")

log = structlog.get_logger("klaw.tools")


class Sandbox:
    """Wraps commands. Whether bubblewrap works is tried once, before the first command.

    Args:
        config: ``tools.exec``.
        program: the bubblewrap program; found on the path if left out.
    """

    def __init__(self, config: ExecToolConfig, program: str | None = None) -> None:
        self._config = config
        self._program = program or shutil.which("bwrap")
        self._works: bool | None = None
        self._trying = trio.Lock()

    async def usable(self) -> bool:
        """Whether commands will run in the sandbox."""
        if self._config.sandbox == "none" or self._program is None:
            return False
        async with self._trying:
            if self._works is None:
                self._works = await self._probe(self._program)
        return self._works

    @property
    def required(self) -> bool:
        """Whether commands may not run outside of it."""
        return self._config.sandbox == "bubblewrap"

    def wrap(
        self, words: Sequence[str], workspace: Path, kept: Sequence[str] = (), hidden: Path | None = None
    ) -> list[str]:
        """The command that runs ``words`` in the sandbox, in the workspace.

        Args:
            words: the command.
            workspace: the only folder of the machine that is writable inside.
            kept: files and folders in it that are read-only inside. They exist, and are no links.
            hidden: a folder in it that stays empty inside: other users' workspaces.
        """
        assert self._program is not None
        wrapped = [self._program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if self._config.network:
            wrapped.append("--share-net")
        for path in (*_SYSTEM, *_SETTINGS, *(_NETWORK if self._config.network else ())):
            wrapped += ["--ro-bind-try", path, path]
        wrapped += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - inside of the sandbox
        wrapped += ["--bind", str(workspace), str(workspace)]
        for name in kept:
            wrapped += ["--ro-bind", str(workspace / name), str(workspace / name)]
        if hidden is not None:
            wrapped += ["--tmpfs", str(hidden)]
        return [*wrapped, "--chdir", str(workspace), "--", *words]

    async def _probe(self, program: str) -> bool:
        """In a container, or where user namespaces are forbidden, it is there and does not work."""
        code: int | None = None
        try:
            with trio.move_on_after(PROBE_S):
                done = await trio.run_process(
                    [program, "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )
                code = done.returncode
        except OSError:
            code = None
        if code != 0:
            log.warning("sandbox_unusable", exit_code=code)
        return code == 0
