"""The files that a person writes for the agent: prompt files and core memory. Read before each turn.

A missing file is normal. A file that cannot be read or is malformed is left out, warned of in the log and named in the
receipt; the turn goes on. Programs can write here, so no link is followed, and nothing that could wait is opened."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import attrs
import structlog
import trio

from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.config.safe_open import NotPlain, Stamp
from klaw.domain import core_memory
from klaw.domain.names import UserId
from klaw.domain.prompt_files import AGENT_FILES, USER_FILE
from klaw.prompts import prompt
from klaw.store.kinds.core_memory import FILE as CORE_MEMORY_FILE
from klaw.toolbox.builtin.skills import FILE as SKILL_FILE
from klaw.toolbox.builtin.skills import Catalogue

MAX_FILE_BYTES = 256 * 1024
READ_S = 15.0
"""A disk that has not answered by then is not waited for."""

T = TypeVar("T")
Args = TypeVarTuple("Args")

log = structlog.get_logger("klaw.workspace")


@attrs.frozen(kw_only=True)
class PromptTexts:
    system_prompt: str
    core_memory: str
    problems: tuple[str, ...]
    """What had to be left out, and why: ``USER.md was left out: it is a link``."""


@attrs.define
class Workspace:
    """Reads the files; what did not change since the last time is not read again."""

    folder: Path
    data_dir: Path
    skills: Catalogue | None = None
    """What the skill tools offer; a turn that offers tools refreshes it."""
    threads: Threads = attrs.Factory(lambda: Threads("prompt files", 2))
    """A disk that does not answer holds back nothing else."""
    _last: dict[UserId, PromptTexts] = attrs.Factory(dict)
    _cache: dict[tuple[Path, str], tuple[Stamp, str]] = attrs.Factory(dict)

    async def fetch(self, user: UserId) -> PromptTexts:
        """``read`` in a thread, or what was read last if the disk does not answer."""
        last = self._last.get(user) or PromptTexts(system_prompt=prompt("default"), core_memory="", problems=())
        silent = attrs.evolve(last, problems=(*last.problems, "the workspace does not answer: its files may be older"))
        return await self.within(silent, self.read, user)

    async def refresh_skills(self) -> None:
        """Look for new and changed skills, for the tool list. Those known stay when the disk does not answer."""
        if self.skills is not None:
            await self.within(self.skills.known, self.skills.refresh)

    async def within(self, otherwise: T, function: Callable[[*Args], T], *args: *Args) -> T:
        """Run a function that reads in the workspace in a thread; ``otherwise``: the answer after ``READ_S``."""
        with trio.move_on_after(READ_S):
            return await self.threads.run(function, *args, abandon=True)
        log.warning("workspace_does_not_answer", seconds=READ_S)
        return otherwise

    def read(self, user: UserId) -> PromptTexts:
        problems: list[str] = []
        if self.skills is not None:
            found_wrong = self.skills.known.problems
            problems += [f"{each.path}/{SKILL_FILE} was left out: {each.message}" for each in found_wrong]
        names = [*AGENT_FILES, below_of_user(user, USER_FILE)]
        texts = [self._text(self.folder, name, problems) for name in names]
        found = "\n\n".join(text.strip() for text in texts if text.strip())
        self._last[user] = fixed = PromptTexts(
            system_prompt=found or prompt("default"),
            core_memory=self._core_memory(below_of_user(user, CORE_MEMORY_FILE), problems),
            problems=tuple(problems),
        )
        return fixed

    def _core_memory(self, path: str, problems: list[str]) -> str:
        try:
            return core_memory.render(core_memory.parse(self._text(self.data_dir, path, problems).encode()))
        except ValueError as error:
            self._report(path, error, problems)
            return ""

    def _text(self, root: Path, path: str, problems: list[str]) -> str:
        try:
            with safe_open.opened(root, path) as file:
                cached = self._cache.get((root, path))
                if cached is not None and cached[0] == file.stamp:
                    return cached[1]
                text = file.read(MAX_FILE_BYTES).decode("utf-8")
                self._cache[root, path] = file.stamp, text
                return text
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            self._report(path, error, problems)
            return ""

    def _report(self, path: str, error: Exception, problems: list[str]) -> None:
        name = path.rpartition("/")[2]
        log.warning("workspace_file_left_out", file=name, error=error_class(error))
        problems.append(f"{name} was left out: it {error if isinstance(error, NotPlain) else 'cannot be read'}")
