"""What is degraded now, in words for users, and the actor that tells the clients when that changes."""

from collections.abc import Mapping, Sequence

import trio

from klaw.actor.supervisor import Started, Supervisor
from klaw.actor.vitals import ActorReport, State, Vitals
from klaw.chats.directory import PARENT as CHATS
from klaw.chats.health import Health
from klaw.domain.embedding import EmbedderState
from klaw.domain.events import EventSink, Noticed
from klaw.llm.local.state import LocalModel, LocalState
from klaw.memory.coverage import Coverage
from klaw.memory.embed.embedder import Embedder
from klaw.memory.summaries.summarizer import Summarizer
from klaw.subagents.scheduler import Scheduler

WATCH_S = 2.0
"""How often the parts are asked whether anything changed."""


_FAMILIES: Sequence[Sequence[str]] = (
    ("budget_used_up", "budget_low"),
    ("no_embeddings", "embeddings_loading", "reembedding", "vectors_incomplete"),
)
"""Problems of which one becomes another."""
_WORKS_AGAIN = {
    "budget_used_up": "there is room in the daily LLM budget again",
    "budget_low": "there is room in the daily LLM budget again",
    "no_embeddings": "search by meaning works",
    "embeddings_loading": "search by meaning works",
    "reembedding": "search by meaning works for all messages",
    "vectors_incomplete": "search by meaning works for all messages",
    "no_llm": "the local model works",
    "no_local_llm": "the local model works",
    "llm": "the LLM provider {name} works again",
    "mcp": "the MCP server {name} works again",
    "actor": "{name} works again",
    "uncovered": "every message can be found again",
    "tasks_failed": "no task failed at its last run any more",
    "summaries_failing": "summaries can be made again",
    "no_price_list": "the list of prices can be read again",
}


def embedder_problems(embedder: Embedder) -> Mapping[str, str]:
    """Why recall has full text only, or not all vectors."""
    status = embedder.status
    match status.state:
        case EmbedderState.NO_MODEL:
            return {"no_embeddings": f"full-text search only: {status.reason}; `klaw models pull` fetches the model"}
        case EmbedderState.LOADING:
            return {"embeddings_loading": "full-text search only until the embedding model is loaded"}
        case EmbedderState.REEMBEDDING:
            done = f"{status.reembedded_percent} % re-embedded"
            return {"reembedding": f"full text only, {done}: the embedding model was changed"}
        case EmbedderState.READY if status.waiting > status.embedded:
            share = round(100 * status.embedded / (status.embedded + status.waiting))
            return {"vectors_incomplete": f"{share} % of the messages have a vector; the rest is found by full text"}
        case _:
            return {}


def local_model_problems(local: LocalModel, *, only: bool) -> Mapping[str, str]:
    """Why the local model cannot answer now. ``only``: chats have no other model first."""
    code = "no_llm" if only else "no_local_llm"
    return {} if local.state is LocalState.READY else {code: local.report().reason}


def coverage_problems(coverage: Coverage) -> Mapping[str, str]:
    """Whether there are messages that nothing would bring back. All users see this: a number, no names."""
    count = coverage.uncovered
    if not count:
        return {}
    found = "1 message cannot" if count == 1 else f"{count} messages cannot"
    return {"uncovered": f"{found} be found by search; `klaw doctor` says which"}


def task_problems(scheduler: Scheduler) -> Mapping[str, str]:
    """Whether tasks failed at their last run. All users see this: a number, no names."""
    count = len(scheduler.failing)
    if not count:
        return {}
    failed = "1 task failed" if count == 1 else f"{count} tasks failed"
    return {"tasks_failed": f"{failed} at the last run; /tasks and `klaw runs` say why"}


def summary_problems(summarizer: Summarizer) -> Mapping[str, str]:
    """Whether summaries fail again and again. All users see this: a number, no names."""
    count = summarizer.status.failing_long
    if not count:
        return {}
    chats = "1 chat" if count == 1 else f"{count} chats"
    return {"summaries_failing": f"no summary could be made for {chats}; older messages are found by search"}


def supervisor_problems(supervisor: Supervisor) -> Mapping[str, str]:
    """Which actors have crashed and wait for their restart.

    All users see this, so a chat is not named: its name is its user's. The admin socket tells which one it is.
    """
    return {
        f"actor:{_public_name(report)}": f"{_public_name(report)} crashed and will be tried again"
        for report in supervisor.report()
        if report.state in (State.FAILED, State.BACKOFF)
    }


def _public_name(report: ActorReport) -> str:
    return "a chat" if report.parent == CHATS else report.name


async def watch(vitals: Vitals, task_status: Started, *, health: Health, events: EventSink) -> None:
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
            events.emit(Noticed(code=code, text=now[code], details={"state": "degraded"}))
        known = now


def recovered(code: str, problem: str, now: Mapping[str, str]) -> Noticed:
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
        return Noticed(code=code, text=now[following], details={"state": "recovered", "now": following})
    kind, _, name = code.partition(":")
    text = _WORKS_AGAIN.get(kind, "this is over: {problem}").format(name=name, problem=problem)
    return Noticed(code=code, text=text, details={"state": "recovered"})
