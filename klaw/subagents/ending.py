"""How a run ends: what its final text means for its record and for the chats that wait for it. Pure."""

import attrs

from klaw.domain.task import Run, RunKind, RunStatus
from klaw.subagents import result as results
from klaw.subagents.limits import Limit, Refusal
from klaw.subagents.result import Silent

NO_SUCH_CHAT = "no_such_chat"


@attrs.frozen(kw_only=True)
class Verdict:
    """What is to be stored of the end of a run."""

    status: RunStatus
    deliver: bool = False
    """Whether the final text goes to the run's chat."""
    error: str | None = None
    note: str | None = None


def judge(run: Run, text: str, reached: Refusal | None) -> Verdict:
    """What a finished conversation means.

    Args:
        run: its record, with what was delivered so far.
        text: the final text.
        reached: the limit that ended it early.
    """
    note = f"it was ended early: {reached.note}" if reached is not None else None
    result = results.read(text)
    silent = isinstance(result, Silent) or run.kind is RunKind.HEARTBEAT
    if run.delivered:
        return Verdict(status=RunStatus.DONE, note=note)
    if not silent:
        return Verdict(status=RunStatus.DONE, deliver=run.inject_into is not None, note=note)
    if reached is not None:
        return Verdict(status=RunStatus.FAILED, error=reached.limit, note=reached.note)
    reason = result.reason if isinstance(result, Silent) else None
    return Verdict(status=RunStatus.SILENT, note=reason)


def undeliverable(chat: str) -> Verdict:
    """The chat of a run does not exist, or is not its user's: the text stays in the record."""
    return Verdict(
        status=RunStatus.FAILED, error=NO_SUCH_CHAT, note=f"there is no chat {chat}; the result is kept here"
    )


def notice(run: Run, text: str, *, tells: bool) -> str | None:
    """What a chat is told of the end beside the result; None for nothing.

    Args:
        run: as it ended.
        text: the final text.
        tells: whether a failure is told: a further attempt may follow, or the user knows already.
    """
    failed = run.status in (RunStatus.FAILED, RunStatus.TIMED_OUT)
    if run.kind is RunKind.HEARTBEAT and run.error not in set(Limit):
        return None  # it speaks through its tool only; the status shows that it failed
    why = f": {run.note}" if run.note else ""
    if run.kind is RunKind.SPAWNED and run.notify is not None:
        told = f"The subagent {run.task} has ended ({run.status.value.replace('_', ' ')}){why}."
        undelivered = text if not run.delivered and run.status is not RunStatus.SILENT else ""
        return f"{told}\n\n{undelivered}" if undelivered else told
    if failed and tells and run.inject_into is not None:
        return f"The task {run.task} did not succeed{why}."
    return None
