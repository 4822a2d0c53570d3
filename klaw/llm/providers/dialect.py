"""What differs between the APIs of providers, and what their readers share. Pure."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from klaw.llm.errors import BadCall, ProviderMalformed, ProviderNetworkError, ProviderRefused
from klaw.llm.providers.refusals import CODE, error_text, is_json, parsed, refused_in_stream
from klaw.llm.providers.thinking import ThinkSplitter
from klaw.llm.types import Completion, Delta, Echo, ReasoningDelta, Request, TakenBack, TextDelta, ToolCall, Usage

JSON = "application/json"
MAX_REPLY_BYTES = 4 * 1024 * 1024
"""Text, thinking and tool arguments of one answer together. The largest models write less than 1 MiB."""
MAX_SOUND_BYTES = 32 * 1024 * 1024
"""More than the longest text that is read aloud has, also without compression."""
MAX_TOOL_CALLS = 128
"""As OpenAI allows in tools of one request; a model that asks for more at once is in a loop."""
MAX_ECHO_BYTES = 256 * 1024
BYTES_PER_TOKEN = 4
"""Of thinking, about, in any script."""
USED_UP = "the model used up all output tokens for thinking; /think low or /think off leaves room for the answer"

_REASONS = {
    **dict.fromkeys(("end_turn", "eos", "stop_sequence", "complete", "completed", "finished", "done"), "stop"),
    **dict.fromkeys(("max_tokens", "model_length", "max_output_tokens", "max_completion_tokens"), "length"),
    **dict.fromkeys(("token_limit", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("safety", "recitation", "blocklist", "prohibited_content", "spii", "sensitive"), "content_filter"),
    **dict.fromkeys(("refusal", "content_filtered", "guardrail_intervened", "image_safety"), "content_filter"),
    **dict.fromkeys(("tool_use", "function_call", "tool_call"), "tool_calls"),
}


class CallInProgress:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.echo: dict[str, Any] = {}

    def is_other(self, arguments: object) -> bool:
        """Whether these are the whole arguments of another call."""
        if len(self.arguments) != 1:
            return False
        old, new = (parsed(each) if isinstance(each, str) else each for each in (self.arguments[0], arguments))
        return isinstance(old, dict) and isinstance(new, dict) and bool(old and new) and old != new


class EmptyAnswer(ProviderMalformed):
    """An answer with neither text nor tool calls."""

    def __init__(self, message: str, usage: Usage | None, finish_reason: str = "stop") -> None:
        super().__init__(message)
        self.usage = usage
        self.finish_reason = finish_reason


class Assembly(ABC):
    """Reads one answer. ``new_id`` makes ids for tool calls without one. What its methods yield must be exhausted; they
    raise ProviderMalformed: not what the API promises, or too much; ProviderRefused: an error in the stream."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.size = 0
        self.done = False
        self._new_id = new_id
        self.splitter = ThinkSplitter()
        self._text: list[str] = []
        self._thought_bytes = 0
        self._finish_reason: str | None = None
        self._echo: dict[str, Any] = {}
        self._images: list[bytes] = []

    @property
    def complete(self) -> bool:
        return self.done or self._finish_reason is not None

    def feed_event(self, data: str, name: str = "") -> Iterator[Delta]:
        if data.strip() == "[DONE]":  # what OpenAI's API ends with
            self.done = True
        elif name == "error":
            raise refused_in_stream(parsed(data))
        elif data.strip():
            yield from self.feed(parse(data))

    @abstractmethod
    def feed(self, event: object) -> Iterator[Delta]:
        """Take one decoded event."""

    def feed_whole(self, body: bytes) -> Iterator[Delta]:
        """Take an answer that came in one piece."""
        yield from self._take_whole(parse(body.decode("utf-8", "replace")))
        self.done = True

    def _take_whole(self, answer: object) -> Iterator[Delta]:
        yield from self.feed(answer)

    def finish(self, rest: str = "") -> Iterator[Delta]:
        """The response is over; give what was held back. ``rest``, outside of events, may say why there is no more."""
        if rest and not self.complete:
            reason = parsed(rest)
            if not isinstance(reason, str) and error_text(reason):
                raise refused_in_stream(reason)
        self.splitter.calls = bool(self._called())
        for delta in self.splitter.end():
            yield self._note(delta)

    def completion(self) -> Completion:
        """The whole answer. Raises ProviderNetworkError: it ended too early; EmptyAnswer; BadCall: it was to be one."""
        if not self.complete:
            raise ProviderNetworkError("the LLM provider's answer was cut off")
        text, usage = "".join(self._text), self._counted()
        called = [call for call in self._called() if call.name or call.id or "".join(call.arguments).strip()]
        reason = self._finish_reason or ("tool_calls" if called else "stop")
        if not text.strip() and not called and not self._images:
            if "function_call" in reason:
                raise BadCall("the model's tool call cannot be read")
            what = "only thinking and no answer" if self._thought_bytes else "an empty answer"
            if self._thought_bytes and reason == "length":
                raise EmptyAnswer(USED_UP, usage, reason)
            raise EmptyAnswer(f"the model gave {what} (finish reason: {reason})", usage, reason)
        return Completion(
            text=text,
            tool_calls=_finished(called, self._new_id),
            finish_reason=reason,
            usage=usage,
            echo=self._echoed([call.echo for call in called]),
            images=tuple(self._images),
            thinking_tokens=(usage and usage.thinking_tokens) or self._thought_bytes // BYTES_PER_TOKEN,
        )

    @abstractmethod
    def _called(self) -> list[CallInProgress]: ...

    @abstractmethod
    def _counted(self) -> Usage | None: ...

    def _end(self, reason: object) -> None:
        """Take the provider's word for why the answer ends."""
        if isinstance(reason, str) and reason:
            low = reason.lower()
            low = "content_filter" if low.startswith("content_filter") else _REASONS.get(low, low)
            self._finish_reason = low if CODE.fullmatch(low) else "function_call" if "function_call" in low else "other"

    def _say(self, text: str) -> Iterator[Delta]:
        """A piece of the text, which may hold thinking."""
        for delta in self.splitter.feed(self._clean(text)):
            yield self._note(delta)

    def _think(self, thought: str) -> Iterator[Delta]:
        """Thinking that the provider sends as such: the text holds none."""
        if thought:
            self.splitter.holds = False
            yield self._note(ReasoningDelta(self._clean(thought)))

    def _note(self, delta: Delta) -> Delta:
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        else:
            self._thought_bytes += len(delta.text.encode("utf-8", "replace"))
        if isinstance(delta, TakenBack):
            self._text.clear()
        return delta

    def _echoed(self, calls: list[dict[str, Any]]) -> Echo | None:
        if not self._echo and not any(calls):
            return None
        try:
            text = json.dumps([self._echo, calls], ensure_ascii=False, allow_nan=False)
            message, plain = json.loads(text.encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        return Echo(message=message, calls=tuple(plain)) if len(text) <= MAX_ECHO_BYTES else None

    def _clean(self, text: str) -> str:
        """Replace lone surrogates (JSON can carry them, nothing else can). Raises ProviderMalformed at the cap."""
        self.size += len(text.encode("utf-8", "replace"))
        if self.size > MAX_REPLY_BYTES:
            raise ProviderMalformed(f"the LLM provider's answer is longer than {MAX_REPLY_BYTES} bytes")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Dialect(Protocol):
    def url(self, base_url: str | None) -> str: ...

    def headers(self, api_key: str | None) -> Mapping[str, str]: ...

    def body(self, request: Request, extra: Mapping[str, Any]) -> bytes:
        """The request as JSON. ``extra`` members are added or replace ours; a null one removes ours."""
        ...

    def assembly(self, new_id: Callable[[], str]) -> Assembly: ...


def refuse_sampling(request: Request, takes: Collection[str]) -> None:
    """Raises ProviderRefused: a member that a program set is none of those that the API takes."""
    if refused := sorted(request.sampling.keys() - {*takes}):
        text = f"{', '.join(refused)} cannot be set for this model: its API has no such member"
        raise ProviderRefused(text, status=400, retryable=False)


def encode(body: dict[str, Any], extra: Mapping[str, Any]) -> bytes:
    kept = {key: value for key, value in {**body, **extra}.items() if value is not None}
    # Lone surrogates cannot be encoded; a question mark in a prompt beats a turn that fails for ever.
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def parse(text: str) -> object:
    """Raises ProviderMalformed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # Not "from exc": a JSONDecodeError carries the whole document.
        raise ProviderMalformed("the LLM provider sent something that is not JSON") from None


def count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _finished(calls: list[CallInProgress], new_id: Callable[[], str]) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own. What is wrong with one is told to the model when it is carried out."""
    finished: list[ToolCall] = []
    taken: set[str] = set()
    for call in calls:
        own = call.id if call.id and call.id not in taken else new_id()
        taken.add(own)
        name = call.name.strip().removeprefix("functions.")  # so templates of some models call the place of tools
        finished.append(ToolCall(id=own, name=name, arguments=_whole(call.arguments) or "{}"))
    return tuple(finished)


def _whole(parts: list[str]) -> str:
    """Some servers begin with an empty object before the parts, or repeat all at the end."""
    whole = "".join(parts)
    others = ("".join(parts[1:]), parts[-1] if parts else "")
    if not whole.strip() or is_json(whole):
        return whole
    return next((other for other in others if isinstance(parsed(other), dict)), whole)
