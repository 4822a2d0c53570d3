"""Reading what a model wrote that was asked for tool calls by a schema (see ``klaw.llm.calling``). Pure.

Made for engines that keep to the schema, and for those that ignore it: text instead of JSON is an answer, a code fence
or a word before the JSON is fine, and so is JSON that was cut off.
"""

import enum
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from klaw.domain.text import clean
from klaw.errors import ProviderMalformed
from klaw.llm.dialect import MAX_TOOL_CALLS, CallInProgress, finished_calls
from klaw.llm.jsonpieces import end_of_space, follow, unescape
from klaw.llm.subset import without_nulls
from klaw.llm.types import ToolCall, ToolDescription

MAX_HELD = 512
"""So many characters of a line must show whether it is JSON of ours or text."""

_LINES = re.compile(r"[^\n]*\n+|[^\n]+")
_FENCE = re.compile(r"`{3}[A-Za-z]{0,10}")
_PART_OF_FENCE = re.compile(r"`{1,2}")
_ANSWERS = (("{", '"reply"', ":", "{", '"answer"', ":", '"'), ("{", '"answer"', ":", '"'))
"""What stands before the text of an answer, token by token; with and without the member around it."""
_CALLS = (("{", '"reply"', ":", "{", '"calls"', ":"), ("{", '"calls"', ":"))
_OURS = re.compile(r'\{\s*"(?:reply|calls|answer)"\s*:')
_LIST_OF_CALLS = re.compile(r'\{\s*(?:"reply"\s*:\s*\{\s*)?"calls"\s*:\s*\[')
_CUT_CALL = re.compile(r'\{\s*"name"\s*:\s*"([A-Za-z0-9_-]{1,64})"\s*(?:,\s*"arguments"\s*:\s*(.*))?', re.DOTALL)
_CUT_ARGUMENTS = "{"
"""Stands for arguments that were cut off: no JSON, so that the call is not carried out and the model is told why."""
_BETWEEN = re.compile(r"[\s,]*")
_JSON = json.JSONDecoder(strict=False)


class _At(enum.Enum):
    """Where in the reply the reader stands."""

    START = enum.auto()
    """Nothing is decided."""
    LINE = enum.auto()
    """At the line break before a line of plain text; calls may follow."""
    TEXT = enum.auto()
    """In a line of plain text."""
    ANSWER = enum.auto()
    """In the JSON text of the answer."""
    REST = enum.auto()
    """In JSON that can only be read when it is complete, or behind the answer."""


class ReplyReader:
    """Feed it the reply as it arrives; it gives the text for the user as soon as it is certain.

    Where the reply is cut into pieces makes no difference. Nothing but ``calls`` raises.

    Args:
        tools: what was offered.
    """

    def __init__(self, tools: Sequence[ToolDescription]) -> None:
        self._parameters = {tool.name: tool.parameters for tool in tools}
        self._at = _At.START
        self._held = ""
        self._head = ""
        """The JSON before the answer's text, which is taken out of it."""
        self._lead = ""
        """What stood before the rest, and is no text if the rest is ours: a line break, a code fence."""
        self._rest: list[str] = []
        self._given: list[str] = []
        self._calls: list[CallInProgress] = []
        self._broken = False

    @property
    def text(self) -> str:
        """What was given so far."""
        return "".join(self._given)

    def feed(self, piece: str) -> Iterator[str]:
        """Take the next piece and give texts, none of them empty. The result must be exhausted before the next call."""
        for line in _LINES.findall(piece):  # else a long piece of short lines would be copied for each of them
            self._held += line
            for given in self._steps(whole=False):
                self._given.append(given)
                yield given

    def end(self) -> Iterator[str]:
        """The reply is over: give what was held back. Ask for ``calls`` next."""
        for late in (self._steps(whole=True), self._late()):
            for given in late:
                self._given.append(given)
                yield given

    def calls(self, new_id: Callable[[], str]) -> tuple[ToolCall, ...]:
        """The calls of the whole reply.

        Raises:
            ProviderMalformed: it is broken in a way that leaves nothing, or there are too many.
        """
        if self._broken and not self._calls and not self.text.strip():
            raise ProviderMalformed("the model's answer was cut off, or does not have the form that was asked for")
        if len(self._calls) > MAX_TOOL_CALLS:
            raise ProviderMalformed(f"the model asked for more than {MAX_TOOL_CALLS} tool calls at once")
        return finished_calls(self._calls, new_id)

    # -- while it arrives ------------------------------------------------------------------------------------------

    def _steps(self, *, whole: bool) -> Iterator[str]:
        """Give what is certain of the held text; if the reply is ``whole``, all of it but white space at its end."""
        while self._held:
            length, at = len(self._held), self._at
            given = self._step(whole=whole)
            if given and not (whole and not self._held and not given.strip()):
                yield given
            if len(self._held) == length and self._at is at:
                return

    def _step(self, *, whole: bool) -> str:
        """Take what is certain off the held text; nothing taken and the same place mean that more is needed."""
        match self._at:
            case _At.START | _At.LINE:
                return self._decide(whole=whole)
            case _At.TEXT:
                line, newline, rest = self._held.partition("\n")
                self._held = newline + rest
                if newline:
                    self._at = _At.LINE
                return line
            case _At.ANSWER:
                text, end, closed = unescape(self._held)
                self._held = self._held[end:]
                if closed:
                    self._head, self._at = f'{self._head}"', _At.REST
                return text
            case _At.REST:
                self._rest.append(self._held)
                self._held = ""
                return ""

    def _decide(self, *, whole: bool) -> str:
        """Find out what the line is, from its first characters."""
        first = self._at is _At.START
        head = self._held[:MAX_HELD]
        may_wait = len(head) < MAX_HELD and not whole
        begin = _content(head)
        if begin is None and may_wait:
            return ""
        if begin is None or head[begin] != "{":
            return self._as_text(head)
        ends = [follow(head, begin, tokens) for tokens in (_ANSWERS if first else _CALLS)]
        if None in ends and may_wait:
            return ""
        end = max(found or 0 for found in ends)
        if first and end:
            self._head, self._held, self._at = head[begin:end], self._held[end:], _At.ANSWER
        elif first or end:
            self._lead, self._held, self._at = head[:begin], self._held[begin:], _At.REST
        else:
            return self._as_text(head)
        return ""

    def _as_text(self, head: str) -> str:
        """The line is text: give the white space before it."""
        spaces = end_of_space(head)
        given, self._held, self._at = self._held[:spaces], self._held[spaces:], _At.TEXT
        return given

    # -- when it is over -------------------------------------------------------------------------------------------

    def _late(self) -> Iterator[str]:
        """Read the JSON that had to be complete; give what of it is for the user."""
        if self._at is not _At.REST:
            self._broken = self._at is _At.ANSWER
            return
        raw = self._head + "".join(self._rest)
        try:
            value, _ = _JSON.raw_decode(raw)
        except (ValueError, RecursionError):
            if not self._head:
                yield from self._cut(raw)
            return
        reply = _reply_in(value, self._parameters)
        if reply is None:
            yield self._lead + raw
            return
        answer = reply.get("answer")
        if answer and not self._head:
            yield clean(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))
        asked = reply.get("calls") or []
        for call in asked if isinstance(asked, list) else [asked]:
            self._take(call)

    def _cut(self, raw: str) -> Iterator[str]:
        """What should be JSON is none: take the calls that are complete, and hand the broken one on as it is."""
        begin = _LIST_OF_CALLS.match(raw)
        if begin is None:
            part = any(follow(raw, 0, tokens) is None for tokens in (*_ANSWERS, *_CALLS))
            self._broken = part or _OURS.match(raw) is not None
            if not self._broken:
                yield self._lead + raw
            return
        self._broken = True
        at = _next(raw, begin.end())
        while at < len(raw):
            try:
                call, end = _JSON.raw_decode(raw, at)
            except (ValueError, RecursionError):
                break
            self._take(call)
            at = _next(raw, end)
        if cut := _CUT_CALL.match(raw, at):
            self._note(cut[1], (cut[2] or "").strip() or _CUT_ARGUMENTS)

    def _take(self, call: object) -> None:
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(name, str) or not name:
            self._broken = True
            return
        arguments = call.get("arguments") or {}
        if not isinstance(arguments, str):
            try:
                arguments = json.dumps(without_nulls(arguments, self._parameters.get(name)), ensure_ascii=False)
            except RecursionError:
                arguments = _CUT_ARGUMENTS
        self._note(name, arguments)

    def _note(self, name: str, arguments: str) -> None:
        call = CallInProgress()
        call.name = clean(name)
        call.arguments.append(clean(arguments))
        self._calls.append(call)


def _reply_in(value: object, tools: Container[str]) -> Mapping[str, Any] | None:
    """The object with ``answer`` or ``calls`` in what was written; None if it is other JSON: then it is the answer."""
    reply = value.get("reply", value) if isinstance(value, dict) else value
    if isinstance(reply, str):
        return {"answer": reply}
    if not isinstance(reply, dict):
        return None
    if "calls" in reply or "answer" in reply:
        return reply
    name = reply.get("name")
    # The call alone, as models write it that were trained so.
    return {"calls": [reply]} if isinstance(name, str) and name in tools and "arguments" in reply else None


def _content(text: str) -> int | None:
    """Where the first thing behind white space and a code fence's opening stands; None if that is not there yet."""
    at = end_of_space(text)
    if fence := _FENCE.match(text, at):
        at = end_of_space(text, fence.end())
    elif _PART_OF_FENCE.fullmatch(text, at):
        return None
    return at if at < len(text) else None


def _next(text: str, at: int) -> int:
    """Where the next item of a list begins."""
    between = _BETWEEN.match(text, at)
    return between.end() if between else at
