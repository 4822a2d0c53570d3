"""Two actors that watch what is degraded. ``health.watch`` tells the clients when that changes. ``health.notices``
tells the owner, in a chat, what needs a person: a disk that is nearly full, a backup that failed or is old, and any
part that stays degraded for an hour. Nobody sends to them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class
from klaw.actor.supervisor import ActorReport, ActorSpec, ActorState, Supervisor, TaskStarted, Vitals
from klaw.chats.directory import PARENT as CHATS
from klaw.core import Core, Problems
from klaw.domain import tokens
from klaw.domain.events import EventSink, HealthChanged
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import UserId
from klaw.domain.task import NOTICE_ORIGIN
from klaw.errors import IdConflict, KlawError, StorageError
from klaw.store.kinds import chats, messages
from klaw.upkeep import PLACES

WATCH, NOTICES = "health.watch", "health.notices"
WATCH_S = 2.0
_FAMILIES: Sequence[Sequence[str]] = (
    ("budget_used_up", "budget_low"),
    ("no_embeddings", "embeddings_loading", "reembedding", "embeddings_failing", "vectors_incomplete"),
)
"""Problems of which one becomes another."""
_WORKS_AGAIN = {
    "budget_used_up": "there is room in the daily LLM budget again",
    "budget_low": "there is room in the daily LLM budget again",
    "no_embeddings": "search by meaning works",
    "embeddings_loading": "search by meaning works",
    "reembedding": "search by meaning works for all messages",
    "embeddings_failing": "search by meaning works",
    "vectors_incomplete": "search by meaning works for all messages",
    "no_llm": "the local model works",
    "no_local_llm": "the local model works",
    "llm": "the LLM provider {name} is not known to fail any more",
    "mcp": "the MCP server {name} works again",
    "channel": "the channel {name} works again",
    "graph": "the graph {name} of a knowledge base can be asked again",
    "actor": "{name} works again",
    "uncovered": "every message can be found again",
    "clock": "the clock is set; scheduled tasks go on",
    "tasks_failed": "no task failed at its last run any more",
    "summaries_failing": "summaries can be made again",
    "certificate": "the certificate of HTTPS is in order again",
    "no_price_list": "the price list can be read again",
}

LOOK_S = 60.0
LASTS_S = 3_600.0
"""A part that is degraded for so long is reported."""
AGAIN_S = 86_400.0
AT_ONCE = frozenset({"disk_low", "backup_failed", "backup_old"})
"""What passes only when somebody does something."""

log = structlog.get_logger("klaw.notices")


def supervisor_problems(supervisor: Supervisor) -> Mapping[str, str]:
    """Which actors have crashed and wait for their restart. All users see this, so a chat, whose name is its user's, is
    not named."""
    return {
        f"actor:{_public_name(report)}": f"{_public_name(report)} crashed and will be tried again"
        for report in supervisor.report()
        if report.state in (ActorState.FAILED, ActorState.BACKOFF)
    }


def _public_name(report: ActorReport) -> str:
    return "a chat" if report.parent == CHATS else report.name


def spec(problems: Problems, events: EventSink) -> ActorSpec:
    return ActorSpec(name=WATCH, run=partial(watch, problems=problems, events=events), stop_budget_s=1)


async def watch(vitals: Vitals, task_status: TaskStarted, *, problems: Problems, events: EventSink) -> None:
    """Emit a notice for every problem that comes or goes."""
    known = dict(problems())
    task_status.started()
    vitals.doing("watching")
    while True:
        await trio.sleep(WATCH_S)
        now = dict(problems())
        for code in [code for code in known if code not in now]:
            events.emit(recovered(code, known[code], now))
        for code in [code for code in now if code not in known]:
            events.emit(HealthChanged(code=code, text=now[code], details={"state": "degraded"}))
        known = now


def recovered(code: str, problem: str, now: Mapping[str, str]) -> HealthChanged:
    """Say what works again. A problem that only became another one of its kind is no recovery: ``details.now`` names
    that one, among the problems that are left (``now``)."""
    family = next((codes for codes in _FAMILIES if code in codes), ())
    following = next((each for each in family if each in now), None)
    if following is not None:
        return HealthChanged(code=code, text=now[following], details={"state": "recovered", "now": following})
    kind, _, name = code.partition(":")
    text = _WORKS_AGAIN[kind].format(name=name) if kind in _WORKS_AGAIN else f"this is over: {problem}"
    return HealthChanged(code=code, text=text, details={"state": "recovered"})


def due(since: Mapping[str, float], told: Mapping[str, float], now: float) -> list[str]:
    """Codes of the problems to report now, by when each was first seen and last reported, all in seconds of a clock
    that is never set. Pure."""
    lasting = [code for code, at in since.items() if code in AT_ONCE or now - at >= LASTS_S]
    return [code for code in lasting if now - told.get(code, -math.inf) >= AGAIN_S]


class Notices:
    """Reports each problem once until it is over, and again after a day, in a chat of the ``owners``: users with the
    rights of the operator."""

    def __init__(self, core: Core, owners: Callable[[], Sequence[UserId]]) -> None:
        self._core, self._owners = core, owners
        self._found: dict[str, str] = {}
        core.health.add(lambda: self._found)

    def spec(self) -> ActorSpec:
        return ActorSpec(name=NOTICES, run=self.run, stop_budget_s=2)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
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
            id=f"notice:{code.replace(' ', '_')}:{at[:10]}"[:64],  # with its day, so that a restart repeats nothing
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
