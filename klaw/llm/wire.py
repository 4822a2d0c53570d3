"""The OpenAI chat completions format: request bodies out, chunks in. Pure; knows neither HTTP nor Trio.

Nothing that a provider wrote gets into an error's text, except short machine-readable codes.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from klaw.errors import ContextTooLong, ProviderError, ProviderMalformed, ProviderNetworkError, ProviderRefused
from klaw.llm.thinking import ThinkSplitter
from klaw.llm.types import ChatMessage, Completion, Delta, ReasoningDelta, Request, TextDelta, ToolCall, Usage

MAX_REPLY_BYTES = 4 * 1024 * 1024
"""Text, thinking and tool arguments of one answer together. The largest models write less than 1 MiB."""
MAX_TOOL_CALLS = 128
"""What OpenAI allows in tools of one request; a model that asks for more at once is in a loop."""

_CODE = re.compile(r"[a-z0-9_.-]{1,64}")
_RETRY_LATER = frozenset({408, 425, 429})
_TOO_LONG = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})
"""How providers call a prompt that does not fit: OpenAI and its likes, llama.cpp."""
_SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""429 codes that no waiting cures."""


def request_body(request: Request, extra: Mapping[str, Any]) -> bytes:
    """Encode a request as JSON. ``extra`` members are added or replace ours; a null one removes ours."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in request.tools
        ]
    body.update(extra)
    kept = {key: value for key, value in body.items() if value is not None}
    # Lone surrogates cannot be encoded; a question mark in a prompt beats a turn that fails for ever.
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _message(message: ChatMessage) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        encoded["content"] = message.content or None
        encoded["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return encoded


def error_code(payload: object) -> str | None:
    """The machine-readable code of an error object (``{"error": {"code": ...}}``), or None if there is no short one."""
    error = payload.get("error") if isinstance(payload, dict) else None
    if isinstance(error, dict):
        for key in ("code", "type"):
            value = error.get(key)
            if isinstance(value, str) and _CODE.fullmatch(value):
                return value
    return None


def refused(status: int, code: str | None, retry_after_s: float | None = None) -> ProviderRefused:
    """The error for a status code, with what is known of it: ContextTooLong where the code says so."""
    retryable = (status in _RETRY_LATER or status >= 500) and code not in _SPENT
    detail = f" ({code})" if code is not None and code != str(status) else ""
    kind = ContextTooLong if code in _TOO_LONG else ProviderRefused
    return kind(
        f"the LLM provider answered with status {status}{detail}",
        status=status,
        retryable=retryable,
        retry_after_s=retry_after_s,
    )


class _Call:
    """A tool call that is still arriving."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class Assembly:
    """Puts chunks together: gives deltas as they come and the completion at the end.

    Args:
        new_id: makes ids for tool calls of providers that send none.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._splitter = ThinkSplitter()
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._bytes = 0
        self._thought = False
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._done = False

    @property
    def complete(self) -> bool:
        """Whether the provider said that the answer is over, in either way."""
        return self._done or self._finish_reason is not None

    @property
    def done(self) -> bool:
        """Whether the provider said ``[DONE]``."""
        return self._done

    def feed_event(self, data: str) -> Iterator[Delta]:
        """Take the data of one event. The result must be exhausted.

        Raises:
            ProviderMalformed: not JSON, not a chunk, or too much.
            ProviderRefused: an error object.
        """
        if data.strip() == "[DONE]":
            self._done = True
            return
        if data.strip():
            yield from self.feed(_parse(data))

    def feed_whole(self, body: bytes) -> Iterator[Delta]:
        """Take a completion that came in one piece. Raises like ``feed_event``."""
        yield from self.feed(_parse(body.decode("utf-8", "replace")))
        self._done = True

    def feed(self, chunk: object) -> Iterator[Delta]:
        """Take one decoded chunk. Raises like ``feed_event``."""
        if not isinstance(chunk, dict):
            raise ProviderMalformed("the LLM provider sent something that is no chunk of an answer")
        if chunk.get("error"):
            raise _error_in_stream(chunk)
        self._take_usage(chunk.get("usage"))
        choices = chunk.get("choices")
        if not isinstance(choices, list | None):
            raise ProviderMalformed("the LLM provider sent choices that are no list")
        for choice in (choices or [])[:1]:
            if not isinstance(choice, dict):
                raise ProviderMalformed("the LLM provider sent a choice that is no object")
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self._finish_reason = reason if _CODE.fullmatch(reason) else "other"
            delta = choice.get("delta") or choice.get("message") or {}
            if not isinstance(delta, dict):
                raise ProviderMalformed("the LLM provider sent a delta that is no object")
            yield from self._take_delta(delta)

    def finish(self) -> Iterator[Delta]:
        """The response is over; give what was held back. Call ``completion`` next."""
        for delta in self._splitter.end():
            yield self._note(delta)

    def completion(self) -> Completion:
        """The whole answer.

        Raises:
            ProviderNetworkError: the response ended too early.
            ProviderMalformed: the answer is empty, or a tool call has no name.
        """
        if not self.complete:
            raise ProviderNetworkError("the LLM provider's answer was cut off")
        text = "".join(self._text)
        calls = tuple(self._finished_call(self._calls[index]) for index in sorted(self._calls))
        reason = self._finish_reason or ("tool_calls" if calls else "stop")
        if not text.strip() and not calls:
            what = "only thinking and no answer" if self._thought else "an empty answer"
            raise ProviderMalformed(f"the model gave {what} (finish reason: {reason})")
        return Completion(text=text, tool_calls=calls, finish_reason=reason, usage=self._usage)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _take_delta(self, delta: dict[str, Any]) -> Iterator[Delta]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            yield self._note(ReasoningDelta(self._clean(thought)))
        text = delta.get("content")
        if not isinstance(text, str | None):
            raise ProviderMalformed("the LLM provider sent content that is no text")
        if text:
            for piece in self._splitter.feed(self._clean(text)):
                yield self._note(piece)
        calls = delta.get("tool_calls")
        if not isinstance(calls, list | None):
            raise ProviderMalformed("the LLM provider sent tool calls that are no list")
        for call in calls or []:
            self._take_call(call)

    def _note(self, delta: Delta) -> Delta:
        match delta:
            case TextDelta(text):
                self._text.append(text)
            case ReasoningDelta():
                self._thought = True
        return delta

    def _take_call(self, part: object) -> None:
        function = part.get("function") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(function, dict | None):
            raise ProviderMalformed("the LLM provider sent a tool call that is no object")
        function = function or {}
        call = self._call_of(part)
        if isinstance(part.get("id"), str) and not call.id:
            call.id = self._clean(part["id"])
        if isinstance(function.get("name"), str) and not call.name:
            call.name = self._clean(function["name"])
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # Ollama's older servers send the object itself
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(arguments, str | None):
            raise ProviderMalformed("the LLM provider sent tool arguments that are no text")
        call.arguments.append(self._clean(arguments or ""))

    def _call_of(self, part: dict[str, Any]) -> _Call:
        """Find the call that a part belongs to: by its index, else a new one for each new id."""
        index = part.get("index")
        if type(index) is not int:
            last = max(self._calls, default=-1)
            known = self._calls.get(last)
            new = known is None or (bool(part.get("id")) and part.get("id") != known.id)
            index = last + 1 if new else last
        if index not in self._calls and len(self._calls) >= MAX_TOOL_CALLS:
            raise ProviderMalformed(f"the model asked for more than {MAX_TOOL_CALLS} tool calls at once")
        return self._calls.setdefault(index, _Call())

    def _finished_call(self, call: _Call) -> ToolCall:
        if not call.name:
            raise ProviderMalformed("the model called a tool without a name")
        return ToolCall(id=call.id or self._new_id(), name=call.name, arguments="".join(call.arguments) or "{}")

    def _clean(self, text: str) -> str:
        """Count the text, and replace lone surrogates (JSON can carry them, nothing else can)."""
        encoded = text.encode("utf-16-le", "surrogatepass")
        self._bytes += len(text.encode("utf-8", "replace"))
        if self._bytes > MAX_REPLY_BYTES:
            raise ProviderMalformed(f"the LLM provider's answer is longer than {MAX_REPLY_BYTES} bytes")
        return encoded.decode("utf-16-le", "replace")

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
        prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if prompt is not None and completion is not None:
            self._usage = Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=_count(cached))


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _parse(text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        # Not "from exc": a JSONDecodeError carries the whole document.
        raise ProviderMalformed("the LLM provider sent something that is no JSON") from None
    return parsed


def _error_in_stream(chunk: dict[str, Any]) -> ProviderError:
    error = chunk["error"]
    status = error.get("code") if isinstance(error, dict) else None
    if type(status) is not int or not 400 <= status <= 599:
        status = 500  # it had begun to answer, so what failed is the provider
    return refused(status, error_code(chunk))
