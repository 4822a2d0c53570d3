"""Earlier runs of a task: the lines of their transcripts, and which of them make complete runs. Pure."""

from collections.abc import Mapping
from typing import Any

import attrs

from klaw.domain import tokens
from klaw.domain.message import Kind, Role
from klaw.llm.types import ToolCall

_MAX_RUN_ID = 128


@attrs.frozen(kw_only=True)
class PastMessage:
    """One line of a run's transcript."""

    role: Role
    kind: Kind
    content: str
    calls: tuple[ToolCall, ...] = ()
    """What an assistant message of type ``tool_call`` asks for."""
    call: str | None = None
    """Id of the call that a tool message answers."""

    @property
    def ends_a_run(self) -> bool:
        return self.role is Role.ASSISTANT and self.kind is not Kind.TOOL_CALL

    @property
    def tokens(self) -> int:
        """Estimated tokens in a request, the arguments of calls included."""
        arguments = sum(tokens.estimate(call.name) + tokens.estimate(call.arguments) for call in self.calls)
        return tokens.estimate(self.content) + arguments + tokens.PER_MESSAGE


@attrs.frozen(kw_only=True)
class PastRun:
    """A complete run: it begins with the request and ends with an answer."""

    id: str
    messages: tuple[PastMessage, ...]
    """Oldest first."""

    @property
    def tokens(self) -> int:
        """Estimated tokens in a request."""
        return sum(message.tokens for message in self.messages)


def read_line(record: Mapping[str, Any]) -> tuple[str, PastMessage]:
    """The run and the message of one line of a transcript.

    Raises:
        KeyError, TypeError or ValueError: the line is malformed.
    """
    metadata = _mapping(record["metadata"])
    run = _text(metadata["run"])
    if not 1 <= len(run) <= _MAX_RUN_ID:
        raise ValueError("the run's id has a wrong length")
    role, kind = Role(record["role"]), Kind(record["type"])
    calls: tuple[ToolCall, ...] = ()
    if kind is Kind.TOOL_CALL:
        if not isinstance(metadata["calls"], list):
            raise TypeError("calls are not a list")
        calls = tuple(_call(_mapping(call)) for call in metadata["calls"])
    call = _text(metadata["call"]) if role is Role.TOOL else None
    return run, PastMessage(role=role, kind=kind, content=_text(record["content"]), calls=calls, call=call)


class Collector:
    """Takes lines newest first and keeps the newest complete runs. Lines of several runs may be mixed.

    Args:
        runs: so many runs are wanted.
        max_tokens: no more are wanted once the collected runs reach this.
    """

    def __init__(self, *, runs: int, max_tokens: int) -> None:
        self._runs = runs
        self._max_tokens = max_tokens
        self._kept: dict[str, list[PastMessage]] = {}
        self._incomplete: set[str] = set()
        self._begun: dict[str, int] = {}
        """Tokens of the runs whose request is found, so that they are whole."""

    @property
    def has_enough(self) -> bool:
        """Whether only further lines of the collected runs are of use."""
        return len(self._begun) >= self._runs or sum(self._begun.values()) >= self._max_tokens

    def add(self, run: str, message: PastMessage) -> bool:
        """Take the next line. Returns False when it shows that no further line is needed."""
        if run not in self._kept:
            if self.has_enough:
                return False
            if run in self._incomplete:
                return True
            if not message.ends_a_run:
                self._incomplete.add(run)
                return True
            self._kept[run] = []
        self._kept[run].append(message)
        if message.role is Role.USER:
            self._begun[run] = sum(kept.tokens for kept in self._kept[run])
        return True

    def result(self) -> tuple[PastRun, ...]:
        """The runs, oldest first."""
        whole = [run for run in self._kept if run in self._begun][: self._runs]
        return tuple(PastRun(id=run, messages=tuple(reversed(self._kept[run]))) for run in reversed(whole))


def _call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(id=_text(call["id"]), name=_text(call["name"]), arguments=_text(call["arguments"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    value.encode()  # a lone surrogate cannot be sent to any model: UnicodeEncodeError is a ValueError
    return value.replace("\0", "")


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value
