"""How a run ends: what its final text means for its record and for the chats that wait for it. Pure."""

import json
import re
from typing import Any, TypeAlias

import attrs

from klaw.domain.task import Run, RunKind, RunStatus
from klaw.runs.limits import Limit, Refusal

NO_TEXT = "the final text is empty"
MAX_REASON = 500
"""Characters of a reason that are kept."""

_MAX_SILENT = 4096
"""A longer text is a message, whatever it looks like."""
_FENCE = re.compile(r"\A```[ \t]*(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```\Z", re.DOTALL | re.IGNORECASE)


@attrs.frozen
class Deliver:
    """The text is for the person."""

    text: str


@attrs.frozen
class Silent:
    """Nothing is to be delivered."""

    reason: str


Result: TypeAlias = Deliver | Silent


def read(text: str) -> Result:
    """Read a final text.

    Only an empty text, and a text that is nothing but ``{"silent": true, "reason": …}`` (white space around it and a
    code fence are allowed), is silent. All else is delivered, also a text that quotes such an object, an object with
    further members (they may be the message) and one that is not valid JSON: a message too many does less harm than
    one that is lost.
    """
    whole = text.strip()
    if not whole:
        return Silent(NO_TEXT)
    if len(whole) > _MAX_SILENT:
        return Deliver(whole)
    fenced = _FENCE.match(whole)
    value = _object(fenced.group(1) if fenced else whole)
    if value is None or value.get("silent") is not True or not value.keys() <= {"silent", "reason"}:
        return Deliver(whole)
    reason = value.get("reason")
    if reason is not None and not isinstance(reason, str):
        return Deliver(whole)
    return Silent((reason or "").strip()[:MAX_REASON] or "no reason given")


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members


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
    result = read(text)
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
