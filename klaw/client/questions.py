"""Questions of tools at a terminal: one is shown at a time, and y or n answers it. Pure."""

import datetime as dt
from collections import OrderedDict

from klaw.wire.frames import ApprovalEndedFrame, ApprovalFrame, Approve

READ_S = 0.5
"""A question that stands there for less was not read: the answer was meant for something before it."""

_YES = frozenset({"y", "yes", "д", "да"})
_NO = frozenset({"n", "no", "н", "нет"})


class Questions:
    """The open questions of one chat, the oldest first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, ApprovalFrame] = OrderedDict()
        self._shown: str | None = None
        self._shown_at = 0.0

    def asked(self, approval: ApprovalFrame) -> None:
        """A question came; perhaps not for the first time."""
        self._open.setdefault(approval.id, approval)

    def ended(self, ended: ApprovalEndedFrame) -> bool:
        """A question is open no more. Returns whether it was the one that is shown."""
        self._open.pop(ended.id, None)
        if ended.id != self._shown:
            return False
        self._shown = None
        return True

    def forget(self) -> None:
        """The connection is gone: what is still open comes again with the next one."""
        self._open.clear()
        self._shown = None

    @property
    def standing(self) -> bool:
        """Whether a question is shown."""
        return self._shown is not None

    def next(self, now: float) -> ApprovalFrame | None:
        """The question to show now; None if one stands there already, or there is none. ``now`` in seconds."""
        if self._shown is not None or not self._open:
            return None
        approval = next(iter(self._open.values()))
        self._shown, self._shown_at = approval.id, now
        return approval

    def answer(self, text: str, now: float) -> Approve | None:
        """What a typed line means as the answer to the question that is shown; None if it is a message."""
        word = _word(text)
        if self._shown is None or word not in _YES | _NO or self.too_soon(text, now):
            return None
        return Approve(id=self._shown, allow=word in _YES)

    def too_soon(self, text: str, now: float) -> bool:
        """Whether the line is a yes that came before the question could be read."""
        return self._shown is not None and _word(text) in _YES and now - self._shown_at < READ_S


def _word(text: str) -> str:
    return text.strip().casefold().rstrip(".!")


def question_text(approval: ApprovalFrame) -> str:
    """The question in one line; the time is that of this machine's clock."""
    until = local_time(approval.until, "%H:%M:%S")
    return f"[{approval.tool} wants to run, allow it? y/n, until {until}] {approval.what}"


def local_time(moment: str, form: str) -> str:
    """A time of the server as this machine's clock shows it."""
    try:
        return dt.datetime.fromisoformat(moment).astimezone().strftime(form)
    except ValueError:
        return moment


ENDINGS = {
    "allowed": "allowed",
    "denied": "not allowed",
    "expired": "not allowed: nobody answered in time",
    "withdrawn": "no longer asked",
}
