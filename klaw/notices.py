"""Actor ``health.notices``: tells the owner, in a chat, what needs a person: a disk that is nearly full, a backup that
failed or is old, and any degraded part that stays so for an hour.

Nobody sends to it. It looks once a minute, and says each thing once until it is over, and again after a day. The id of
a notice names the day, so that a restart says nothing twice.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.core import Core
from klaw.domain import tokens
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import UserId
from klaw.domain.task import NOTICE_ORIGIN
from klaw.errors import IdConflict, KlawError, StorageError
from klaw.store.kinds import chats, messages
from klaw.upkeep import PLACES

ACTOR_NAME = "health.notices"
LOOK_S = 60.0
LASTS_S = 3_600.0
"""A part that is degraded for so long is reported."""
AGAIN_S = 86_400.0
AT_ONCE = frozenset({"disk_low", "backup_failed", "backup_old"})
"""What passes only when somebody does something."""

log = structlog.get_logger("klaw.notices")


def due(since: Mapping[str, float], told: Mapping[str, float], now: float) -> list[str]:
    """Codes of the problems to report now. Pure.

    Args:
        since: when each was first seen, in seconds of a clock that is never set.
        told: when each was last reported.
        now: by the same clock.
    """
    lasting = [code for code, at in since.items() if code in AT_ONCE or now - at >= LASTS_S]
    return [code for code in lasting if now - told.get(code, -math.inf) >= AGAIN_S]


class Notices:
    """The actor, and what it found itself.

    Args:
        owners: users with the rights of the operator, in whose chats it reports.
    """

    def __init__(self, core: Core, owners: Callable[[], Sequence[UserId]]) -> None:
        self._core, self._owners = core, owners
        self._found: dict[str, str] = {}
        core.health.add(lambda: self._found)

    def spec(self) -> ActorSpec:
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
        found = {}
        for look in PLACES.values():
            try:
                _, wrong = look(self._core.paths, now)
            except (OSError, KlawError) as error:
                log.warning("places_not_looked_at", error=error_class(error))
            else:
                if wrong is not None and wrong.told:
                    found[wrong.code] = wrong.text
        return found

    async def _tell(self, code: str, text: str) -> bool:
        """Returns whether it was reported; not while there is no chat."""
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
            type=MessageKind.COMMAND,
            content=said,
            tokens=tokens.estimate(said),
            created_at=at,
            metadata={"origin": NOTICE_ORIGIN, "code": code},
        )
        with suppress(IdConflict):  # before a restart it was told in another chat
            await self._core.writer.run(messages.append, [notice])
        return True
