"""How a run ends: what its final text means for its record and for the chat that waits for it. Pure."""

import attrs

from klaw.domain.task import Run, RunKind, RunStatus
from klaw.subagents.result import Silent, read_result
from klaw.toolbox.loop import Ending

TOKEN_LIMIT = "token_limit"
NO_SUCH_CHAT = "no_such_chat"
NO_ANSWER = "no_answer"


@attrs.frozen(kw_only=True)
class Verdict:
    """What is to be stored and said at the end of a run."""

    status: RunStatus
    deliver: bool = False
    """Whether the final text goes to the run's chat."""
    error: str | None = None
    note: str | None = None


def judge(run: Run, text: str, ending: Ending, *, max_tokens: int | None) -> Verdict:
    """What the end of a conversation means.

    Args:
        run: its record, with what was delivered so far.
        text: the final text.
        ending: why the conversation ended.
        max_tokens: the limit that ``Ending.BUDGET`` is about.
    """
    limit = f"it stopped at its limit of {max_tokens} tokens" if ending is Ending.BUDGET else None
    result = read_result(text)
    if isinstance(result, Silent):
        if run.delivered:
            return Verdict(status=RunStatus.DONE, note=limit)
        if limit is not None:
            return Verdict(status=RunStatus.FAILED, error=TOKEN_LIMIT, note=limit)
        return Verdict(status=RunStatus.SILENT, note=result.reason)
    if run.kind is RunKind.HEARTBEAT:
        return Verdict(status=RunStatus.DONE if run.delivered else RunStatus.SILENT, note=limit)
    return Verdict(status=RunStatus.DONE, deliver=run.inject_into is not None and not run.delivered, note=limit)


def undeliverable(chat: str) -> Verdict:
    """The chat of a run does not exist, or is not its user's: the text stays in the record."""
    return Verdict(
        status=RunStatus.FAILED, error=NO_SUCH_CHAT, note=f"there is no chat {chat}; the result is kept here"
    )
