"""Actor ``health.notices``: tells the owner, in a chat, what needs a person: a disk that is nearly full, a backup that
failed or is old, and any degraded part that stays so for an hour.

Nobody sends to it. It looks once a minute, and says each thing once until it is over, and again after a day. The id of
a notice names the day, so that a restart says nothing twice.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.backup import folder as backups
from klaw.core import Core
from klaw.domain import tokens
from klaw.domain.message import Kind, NewMessage, Role
from klaw.domain.names import UserId
from klaw.domain.task import NOTICE_ORIGIN
from klaw.errors import IdConflict, KlawError, StorageError
from klaw.store.kinds import chats, messages

ACTOR_NAME = "health.notices"
LOOK_S = 60.0
LASTS_S = 3_600.0
"""What is degraded for so long is told."""
AGAIN_S = 86_400.0
AT_ONCE = frozenset({"disk_low", "backup_failed", "backup_old"})
"""What passes only when somebody does something."""
SHARE_FREE, MOST_FREE = 0.05, 2 << 30
"""Less than this share of the disk free, but no more than so many bytes, is nearly full."""

log = structlog.get_logger("klaw.notices")


def disk_problem(folder: Path) -> str | None:
    """What to say of a disk that is nearly full. Raises OSError."""
    usage = shutil.disk_usage(folder)
    if usage.free >= min(MOST_FREE, SHARE_FREE * usage.total):
        return None
    free = usage.free // (1 << 20)
    return f"the disk is nearly full: {free} MiB are free; when it is full, nothing can be stored (klaw status)"


def backup_problem(folder: Path, now: float) -> tuple[str, str] | None:
    """Code and text of what is wrong with the backups; None where all is well, or none was ever made.

    Args:
        folder: of the backups.
        now: Unix seconds.

    Raises:
        OSError: the folder cannot be read.
    """
    failed = backups.failure(folder)
    if failed is not None:
        return "backup_failed", f"the last backup failed: {failed}"
    newest = backups.newest(folder)
    if newest is None or not backups.is_old(newest, now):
        return None
    if newest > now:
        text = f"the clock said {iso(newest)} at the last backup, so nobody knows its age: klaw backup create"
        return "backup_old", text
    days = int((now - newest) // 86_400)
    return "backup_old", f"the last backup is {days} days old: systemctl status klaw-backup.timer"


def due(since: Mapping[str, float], told: Mapping[str, float], now: float) -> list[str]:
    """Codes of the problems that are to be told now. Pure.

    Args:
        since: when each was first seen, in seconds of a clock that is never set.
        told: when each was last told.
        now: by the same clock.
    """
    lasting = [code for code, at in since.items() if code in AT_ONCE or now - at >= LASTS_S]
    return [code for code in lasting if now - told.get(code, -math.inf) >= AGAIN_S]


class Notices:
    """The actor, and what it found itself.

    Args:
        owners: whose chats are told: users who may do what only whoever runs the server may.
    """

    def __init__(self, core: Core, owners: Callable[[], Sequence[UserId]]) -> None:
        self._core, self._owners = core, owners
        self._found: dict[str, str] = {}
        core.health.add(lambda: self._found)

    def spec(self) -> ActorSpec:
        """How the supervisor is to run it."""
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=2)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """Look, and look again, until cancelled."""
        task_status.started()
        since: dict[str, float] = {}
        told: dict[str, float] = {}
        while True:
            vitals.doing("looking")
            self._found = await self._core.files.run(self._look, self._core.clock.now(), abandon=True)
            problems, now = self._core.health.problems(), trio.current_time()
            since = {code: since.get(code, now) for code in problems}
            told = {code: at for code, at in told.items() if code in problems}
            for code in due(since, told, now):
                try:
                    if await self._tell(code, problems[code]):
                        told[code] = now
                except StorageError as error:  # a full disk: it is tried again
                    log.warning("notice_not_stored", code=code, error=error_class(error))
            vitals.doing("idle")
            await trio.sleep(LOOK_S)

    def _look(self, now: float) -> dict[str, str]:
        paths, found = self._core.paths, {}
        try:
            if (disk := disk_problem(paths.data_dir)) is not None:
                found["disk_low"] = disk
            if (backup := backup_problem(paths.backups_dir, now)) is not None:
                found[backup[0]] = backup[1]
        except (OSError, KlawError) as error:
            log.warning("places_not_looked_at", error=error_class(error))
        return found

    async def _tell(self, code: str, text: str) -> bool:
        """Returns whether it is told now; not while there is no chat."""
        chat = await self._core.readers.run(chats.last_used, self._owners())
        if chat is None:
            return False
        user, name = chat
        at = iso(self._core.clock.now())
        said = f"Klaw: {text}"
        notice = NewMessage(
            id=f"notice:{code.replace(' ', '_')}:{at[:10]}"[:64],
            chat=name,
            user=user,
            channel="klaw",
            role=Role.ASSISTANT,
            type=Kind.COMMAND,
            content=said,
            tokens=tokens.estimate(said),
            created_at=at,
            metadata={"origin": NOTICE_ORIGIN, "code": code},
        )
        with suppress(IdConflict):  # before a restart it was told in another chat
            await self._core.writer.run(messages.append, [notice])
        return True
