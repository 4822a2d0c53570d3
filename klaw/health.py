"""What is degraded now, in words for users, and the actor that tells the clients when that changes."""

from collections.abc import Mapping, Sequence
from functools import partial

import trio

from klaw.actor.supervisor import ActorReport, ActorSpec, ActorState, Supervisor, TaskStarted, Vitals
from klaw.chats.directory import PARENT as CHATS
from klaw.core import HasProblems
from klaw.domain.events import EventSink, HealthChanged

ACTOR_NAME = "health.watch"
WATCH_S = 2.0
"""How often the parts are asked whether anything changed."""


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
    "graph": "the graph {name} of a knowledge base can be asked again",
    "actor": "{name} works again",
    "uncovered": "every message can be found again",
    "clock": "the clock is set; scheduled tasks go on",
    "tasks_failed": "no task failed at its last run any more",
    "summaries_failing": "summaries can be made again",
    "no_price_list": "the price list can be read again",
}


def supervisor_problems(supervisor: Supervisor) -> Mapping[str, str]:
    """Which actors have crashed and wait for their restart.

    All users see this, so a chat is not named: its name is its user's. The admin socket tells which one it is.
    """
    return {
        f"actor:{_public_name(report)}": f"{_public_name(report)} crashed and will be tried again"
        for report in supervisor.report()
        if report.state in (ActorState.FAILED, ActorState.BACKOFF)
    }


def _public_name(report: ActorReport) -> str:
    return "a chat" if report.parent == CHATS else report.name


def spec(health: HasProblems, events: EventSink) -> ActorSpec:
    return ActorSpec(name=ACTOR_NAME, run=partial(watch, health=health, events=events), stop_budget_s=1)


async def watch(vitals: Vitals, task_status: TaskStarted, *, health: HasProblems, events: EventSink) -> None:
    """Emit a notice for every problem that comes or goes. Runs until cancelled."""
    known = dict(health.problems())
    task_status.started()
    vitals.doing("watching")
    while True:
        await trio.sleep(WATCH_S)
        now = dict(health.problems())
        for code in [code for code in known if code not in now]:
            events.emit(recovered(code, known[code], now))
        for code in [code for code in now if code not in known]:
            events.emit(HealthChanged(code=code, text=now[code], details={"state": "degraded"}))
        known = now


def recovered(code: str, problem: str, now: Mapping[str, str]) -> HealthChanged:
    """Say what works again. A problem that only became another one of its kind is no recovery: ``details.now`` names
    that one.

    Args:
        code: of the problem that is over.
        problem: what it was.
        now: the problems that are left.
    """
    family = next((codes for codes in _FAMILIES if code in codes), ())
    following = next((each for each in family if each in now), None)
    if following is not None:
        return HealthChanged(code=code, text=now[following], details={"state": "recovered", "now": following})
    kind, _, name = code.partition(":")
    text = _WORKS_AGAIN[kind].format(name=name) if kind in _WORKS_AGAIN else f"this is over: {problem}"
    return HealthChanged(code=code, text=text, details={"state": "recovered"})
