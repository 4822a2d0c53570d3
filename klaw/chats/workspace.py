"""The files that a person writes for the agent: prompt files of the workspace and the core memory. Read before each
turn.

A missing file is normal. A file that cannot be read or is malformed is left out, warned of in the log and counted in
the status; the turn goes on.
"""

import json
from pathlib import Path

import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.config.paths import folder_of_user
from klaw.domain.core_memory import render as render_core_memory
from klaw.domain.names import UserId
from klaw.prompts import prompt
from klaw.store import core_files
from klaw.toolbox.skills.catalogue import FILE as SKILL_FILE
from klaw.toolbox.skills.catalogue import Catalogue

AGENT_FILES = ("SOUL.md", "IDENTITY.md", "AGENTS.md", "TOOLS.md")
"""What the agent is, the same for all users."""
USER_FILE = "USER.md"
CORE_MEMORY_FILE = core_files.FILE
MAX_FILE_BYTES = 256 * 1024
"""A larger file is no prompt; it is left out."""

log = structlog.get_logger("klaw.workspace")


@attrs.frozen(kw_only=True)
class Fixed:
    """The texts that stand at the beginning of every context."""

    system_prompt: str
    core_memory: str
    problems: tuple[str, ...]
    """File names that had to be left out."""


@attrs.define
class Workspace:
    """Reads the files; what did not change since the last time is not read again."""

    folder: Path
    data_dir: Path
    skills: Catalogue | None = None
    """What the skill tools offer; a turn that offers tools refreshes it."""
    _cache: dict[Path, tuple[tuple[int, int], str]] = attrs.Factory(dict)

    def read(self, user: UserId) -> Fixed:
        """Read the files for a user: the agent's own, and of USER.md and core memory only this user's.

        Blocks; run it in a thread.
        """
        problems: list[str] = []
        if self.skills is not None:
            problems += [f"{problem.folder}/{SKILL_FILE}" for problem in self.skills.known.problems]
        paths = [*(self.folder / name for name in AGENT_FILES), folder_of_user(self.folder, user) / USER_FILE]
        texts = [self._text(path, problems) for path in paths]
        found = "\n\n".join(text.strip() for text in texts if text.strip())
        return Fixed(
            system_prompt=found or prompt("default"),
            core_memory=self._core_memory(folder_of_user(self.data_dir, user) / CORE_MEMORY_FILE, problems),
            problems=tuple(problems),
        )

    def refresh_skills(self) -> None:
        """Look for new and changed skills, for the tool list. Blocks; run it in a thread."""
        if self.skills is not None:
            self.skills.refresh()

    def _core_memory(self, path: Path, problems: list[str]) -> str:
        text = self._text(path, problems)
        if not text.strip():
            return ""
        try:
            return render_core_memory(json.loads(text))
        except (ValueError, RecursionError) as error:
            self._report(path, error, problems)
            return ""

    def _text(self, path: Path, problems: list[str]) -> str:
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            cached = self._cache.get(path)
            if cached is not None and cached[0] == stamp:
                return cached[1]
            text = _read(path, stat.st_size)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            self._report(path, error, problems)
            return ""
        self._cache[path] = (stamp, text)
        return text

    def _report(self, path: Path, error: Exception, problems: list[str]) -> None:
        log.warning("workspace_file_left_out", file=path.name, error=error_class(error))
        problems.append(path.name)


def _read(path: Path, size: int) -> str:
    if size > MAX_FILE_BYTES:
        raise ValueError("too large")
    return path.read_text(encoding="utf-8")
