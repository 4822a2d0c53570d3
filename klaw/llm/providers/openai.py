"""OpenAI's chat completions: request bodies out, chunks in. Pure; knows neither HTTP nor Trio."""

import base64
import enum
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from klaw.llm.errors import ProviderError, ProviderMalformed
from klaw.llm.providers.dialect import CODE, MAX_TOOL_CALLS, Assembly, CallInProgress, count, encode, parse, refused
from klaw.llm.types import ChatMessage, Delta, ReasoningDelta, Request, TextDelta, Usage

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


class OpenAiDialect:
    """See ``klaw.llm.providers.dialect.Dialect``. What nearly all servers speak, with their small differences."""

    def url(self, base_url: str | None) -> str:
        return f"{(base_url or '').rstrip('/')}/chat/completions"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        return {"authorization": f"Bearer {api_key}"} if api_key is not None else {}

    def body(self, request: Request, extra: Mapping[str, Any]) -> bytes:
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [_message(message) for message in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                    },
                }
                for tool in request.tools
            ]
        if request.json_schema is not None:
            schema = {"name": request.json_schema.name, "schema": dict(request.json_schema.schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return encode(body, extra)

    def assembly(self, new_id: Callable[[], str]) -> "OpenAiAssembly":
        return OpenAiAssembly(new_id)


def _message(message: ChatMessage) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        text = [{"type": "text", "text": message.content}] if message.content else []
        urls = (f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}" for image in message.images)
        encoded["content"] = text + [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    if message.tool_calls:
        encoded["content"] = message.content or None
        encoded["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return encoded


class OpenAiAssembly(Assembly):
    """See ``klaw.llm.providers.dialect.Assembly``."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__(new_id)
        self._splitter = ThinkSplitter()
        self._calls: list[tuple[int, CallInProgress]] = []
        """In the order of arrival, with the index that the provider gave or that was made up."""
        self._usage: Usage | None = None

    def feed_whole(self, body: bytes) -> Iterator[Delta]:
        yield from self.feed(parse(body.decode("utf-8", "replace")))
        self.done = True

    def feed(self, event: object) -> Iterator[Delta]:
        if not isinstance(event, dict):
            raise ProviderMalformed("the LLM provider sent something that is not a chunk of an answer")
        if event.get("error"):
            raise _error_in_stream(event)
        self._take_usage(event.get("usage"))
        choices = event.get("choices")
        if not isinstance(choices, list | None):
            raise ProviderMalformed("the LLM provider sent choices that are not a list")
        for choice in (choices or [])[:1]:
            if not isinstance(choice, dict):
                raise ProviderMalformed("the LLM provider sent a choice that is not an object")
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self._finish_reason = reason if CODE.fullmatch(reason) else "other"
            delta = choice.get("delta") or choice.get("message") or {}
            if not isinstance(delta, dict):
                raise ProviderMalformed("the LLM provider sent a delta that is not an object")
            yield from self._take_delta(delta)

    def finish(self) -> Iterator[Delta]:
        for delta in self._splitter.end():
            yield self._note(delta)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _called(self) -> list[CallInProgress]:
        return [call for _, call in sorted(self._calls, key=lambda numbered: numbered[0])]

    def _counted(self) -> Usage | None:
        return self._usage

    def _take_delta(self, delta: dict[str, Any]) -> Iterator[Delta]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            yield self._note(ReasoningDelta(self._clean(thought)))
        text = delta.get("content")
        if not isinstance(text, str | None):
            raise ProviderMalformed("the LLM provider sent content that is not text")
        if text:
            for piece in self._splitter.feed(self._clean(text)):
                yield self._note(piece)
        calls = delta.get("tool_calls")
        if not isinstance(calls, list | None):
            raise ProviderMalformed("the LLM provider sent tool calls that are not a list")
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
            raise ProviderMalformed("the LLM provider sent a tool call that is not an object")
        function = function or {}
        call = self._call_of(part, function)
        if isinstance(part.get("id"), str) and not call.id:
            call.id = self._clean(part["id"])
        if isinstance(function.get("name"), str) and not call.name:
            call.name = self._clean(function["name"])
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # Ollama's older servers send the object itself
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(arguments, str | None):
            raise ProviderMalformed("the LLM provider sent tool arguments that are not text")
        call.arguments.append(self._clean(arguments or ""))

    def _call_of(self, part: dict[str, Any], function: dict[str, Any]) -> CallInProgress:
        """Find the call that a part belongs to: the last one of its index (of all, without one).

        Another id together with a name begins a new call whatever the index: some servers give all calls the same.
        """
        index = part.get("index")
        same = [call for known, call in self._calls if type(index) is not int or known == index]
        known = same[-1] if same else None
        other_id = bool(part.get("id")) and known is not None and part.get("id") != known.id
        if known is not None and not (other_id and (function.get("name") or type(index) is not int)):
            return known
        if len(self._calls) >= MAX_TOOL_CALLS:
            raise ProviderMalformed(f"the model asked for more than {MAX_TOOL_CALLS} tool calls at once")
        made = CallInProgress()
        self._calls.append((index if type(index) is int else len(self._calls), made))
        return made

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        details = details if isinstance(details, dict) else {}
        cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
        prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
        if prompt is not None and completion is not None:
            self._usage = Usage(
                prompt_tokens=prompt,
                completion_tokens=completion,
                cached_tokens=count(cached),
                cache_write_tokens=count(details.get("cache_write_tokens")),
            )


def _error_in_stream(chunk: dict[str, Any]) -> ProviderError:
    error = chunk["error"]
    status = error.get("code") if isinstance(error, dict) else None
    if type(status) is not int or not 400 <= status <= 599:
        status = 500  # it had begun to answer, so what failed is the provider
    return refused(status, chunk)


class _At(enum.Enum):
    """Where in the answer the splitter stands."""

    START = enum.auto()
    """Nothing but white space and perhaps a part of the opening tag so far."""
    THINKING = enum.auto()
    AFTER = enum.auto()
    """Right behind the closing tag; white space is dropped."""
    ANSWER = enum.auto()


class ThinkSplitter:
    """Splits ``<think>...</think>`` at the start of an answer from the answer itself. Feed it text as it arrives.

    A tag may be cut anywhere; only what could be a part of a tag is held back.

    Only thinking at the very start counts: later tags are what the model says about tags.
    """

    def __init__(self) -> None:
        self._at = _At.START
        self._held = ""

    def feed(self, text: str) -> Iterator[Delta]:
        """Take the next text and give what is certain. The result must be exhausted before the next call."""
        self._held += text
        if self._at is _At.START:
            bare = self._held.lstrip()
            if bare.startswith(THINK_OPEN):
                self._at, self._held = _At.THINKING, bare[len(THINK_OPEN) :]
            elif not THINK_OPEN.startswith(bare):
                self._at = _At.ANSWER
        if self._at is _At.THINKING:
            yield from self._think()
        if self._at is _At.AFTER:
            self._held = self._held.lstrip()
            if self._held:
                self._at = _At.ANSWER
        if self._at is _At.ANSWER:
            yield from self._flush(TextDelta)

    def end(self) -> Iterator[Delta]:
        """The text is over: give what was held back."""
        yield from self._flush(ReasoningDelta if self._at is _At.THINKING else TextDelta)

    def _think(self) -> Iterator[Delta]:
        thought, closed, rest = self._held.partition(THINK_CLOSE)
        if closed:
            self._held = thought
            yield from self._flush(ReasoningDelta)
            self._at, self._held = _At.AFTER, rest
            return
        keep = next((n for n in range(len(THINK_CLOSE) - 1, 0, -1) if thought.endswith(THINK_CLOSE[:n])), 0)
        tail = thought[len(thought) - keep :]
        self._held = thought[: len(thought) - keep]
        yield from self._flush(ReasoningDelta)
        self._held = tail

    def _flush(self, kind: type[TextDelta] | type[ReasoningDelta]) -> Iterator[Delta]:
        held, self._held = self._held, ""
        if held:
            yield kind(held)
