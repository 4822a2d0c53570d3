"""Anthropic's messages API. Pure; knows neither HTTP nor Trio."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from klaw.llm.errors import ProviderError, ProviderMalformed
from klaw.llm.providers import thinking_members
from klaw.llm.providers.adapt import schema_in_prompt
from klaw.llm.providers.dialect import MAX_TOOL_CALLS, Assembly, CallInProgress, count, encode, refuse_sampling
from klaw.llm.providers.refusals import error_code, refused, refused_in_stream
from klaw.llm.types import ChatMessage, Delta, Echo, Request, Thinking, Usage

BASE_URL = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"
MAX_TOKENS = 4096
"""Where the caller has no limit: the API wants one."""
HIGHEST_TEMPERATURE = 1.0

THINKING = "thinking_blocks"
"""In ``Echo.message``: the blocks of thinking as they came, in their order. Of the text and the calls among them only
the places are kept: a text, and None for a call."""
_NO_THINKING = {"type": "disabled"}
_OF_CALL = ("type", "id", "name", "input", "cache_control")
NO_BEGINNING = "(Earlier messages are left out.)"

_CACHED = {"cache_control": {"type": "ephemeral"}}
_BREAK = "\n\n"
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicDialect:
    def url(self, base_url: str | None) -> str:
        base = (base_url or BASE_URL).rstrip("/")
        return f"{base if base.endswith('/v1') else f'{base}/v1'}/messages"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        key = {"x-api-key": api_key} if api_key is not None else {}
        return {"anthropic-version": VERSION, **key}

    def body(self, request: Request, extra: Mapping[str, Any]) -> bytes:
        refuse_sampling(request, takes=("stop", "top_p"))
        if request.json_schema is not None and not request.json_schema.strict:
            request = schema_in_prompt(request)
        if request.tool_choice is not None and request.thinking is not None:  # the API takes only one of them
            request = attrs.evolve(request, thinking=Thinking(level="off"))
        system = [message for message in request.messages if message.role == "system"]
        most, dialogue = request.max_tokens or MAX_TOKENS, _dialogue(request.messages, request.stable_messages)
        thinking = thinking_members.of_anthropic(request, dialogue, most)
        effort = {"effort": thinking.pop("effort")} if "effort" in thinking else {}
        body: dict[str, Any] = {
            "model": request.model,
            "max_tokens": most,
            "stream": True,
            "system": _system(system) or None,
            "messages": dialogue,
            "output_config": effort or None,
            "stop_sequences": request.sampling.get("stop"),
            "top_p": request.sampling.get("top_p"),
            **thinking,
        }
        if request.temperature is not None and thinking.get("thinking", _NO_THINKING) == _NO_THINKING:
            body["temperature"] = min(request.temperature, HIGHEST_TEMPERATURE)
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
                for tool in request.tools
            ]
            # Tools come before the system prompt, so this part is read again even when core memory has changed.
            body["tools"][-1] |= _CACHED
            named = {"type": "tool", "name": request.tool_choice}
            choice = {None: {"type": "auto"}, "required": {"type": "any"}}.get(request.tool_choice, named)
            if request.tool_choice is not None or not request.parallel_calls:
                body["tool_choice"] = {**choice, "disable_parallel_tool_use": not request.parallel_calls}
        elif names := {call.name: None for message in request.messages for call in message.tool_calls}:
            # With calls in the history the API wants to know the tools, also when none may be called any more.
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            body["tool_choice"] = {"type": "none"}
        if request.json_schema is not None:
            form = {"type": "json_schema", "schema": dict(request.json_schema.schema)}
            body["output_config"] = {"format": form, **effort}
        return encode(body, extra)

    def assembly(self, new_id: Callable[[], str]) -> "AnthropicAssembly":
        return AnthropicAssembly(new_id)


def _system(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    if not messages:
        return []
    first = messages[0]
    stable = first.content[: first.stable_chars].rstrip("\n")
    rest = _BREAK.join([first.content[first.stable_chars :].lstrip("\n"), *(other.content for other in messages[1:])])
    blocks: list[dict[str, Any]] = []
    if stable:
        blocks.append({"type": "text", "text": stable} | _CACHED)
    if rest.strip():
        blocks.append({"type": "text", "text": f"{_BREAK}{rest}" if stable else rest})
    return blocks


def _dialogue(messages: Sequence[ChatMessage], stable: int) -> list[dict[str, Any]]:
    """Neighbours of one role become one message, as the API wants of tool results."""
    dialogue: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        if message.role == "system":
            continue
        blocks = _blocks(message)
        if place == stable - 1 and blocks:
            blocks[-1] |= _CACHED
        role = "assistant" if message.role == "assistant" else "user"
        if dialogue and dialogue[-1]["role"] == role:
            dialogue[-1]["content"] += blocks
        elif blocks:
            dialogue.append({"role": role, "content": blocks})
    if dialogue and dialogue[0]["role"] == "assistant":
        dialogue.insert(0, {"role": "user", "content": [{"type": "text", "text": NO_BEGINNING}]})
    return dialogue


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    text = [_text(message.content)] if message.content.strip() else []
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": text}]
    images: list[dict[str, Any]] = []
    for image in message.images:
        data = base64.b64encode(image.data).decode()
        images.append({"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}})
    echo = message.echo or Echo()
    calls: list[dict[str, Any]] = []
    for place, call in enumerate(message.tool_calls):
        own = {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call.arguments)}
        calls.append({**echo.of_call(place, len(message.tool_calls)), **own})
    # The API wants its signed thinking back in front of calls; in front of anything else it needs none.
    kept = echo.message.get(THINKING, ()) if calls else ()
    if kept.count(None) == len(calls) > 0:  # it thought between them, too
        rest = iter(calls)
        whole = [next(rest) if each is None else _text(each) if isinstance(each, str) else each for each in kept]
        return [{**block} for block in whole]
    return [{**block} for block in kept if isinstance(block, dict)] + images + text + calls


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _arguments(text: str) -> dict[str, Any]:
    """The API wants an object; a call with anything else was answered with an error."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {"arguments": text}


class AnthropicAssembly(Assembly):
    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__(new_id)
        self._calls: dict[int, CallInProgress] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._inputs: dict[int, str] = {}
        """Inputs that came whole with their block; pieces that follow replace them."""
        self._usage: dict[str, int] = {}

    def _take_whole(self, answer: object) -> Iterator[Delta]:
        message = _object(answer, "answer")
        if message.get("type") == "error":
            raise _error_in_stream(message)
        content = message.get("content")
        if not isinstance(content, list):
            raise ProviderMalformed("the LLM provider sent content that is not a list")
        for index, block in enumerate(content):
            yield from self._begin(index, _object(block, "block"))
        self._take_usage(message.get("usage"))
        self._end(message.get("stop_reason"))

    def feed(self, event: object) -> Iterator[Delta]:
        """Events of unknown types are skipped, as the API asks."""
        event = _object(event, "event")
        match event.get("type"):
            case "error":
                raise _error_in_stream(event)
            case "message_start":
                self._take_usage(_object(event.get("message") or {}, "message").get("usage"))
            case "content_block_start":
                yield from self._begin(_index(event), _object(event.get("content_block"), "block"))
            case "content_block_delta":
                yield from self._go_on(_index(event), _object(event.get("delta"), "delta"))
            case "message_delta":
                self._end(_object(event.get("delta") or {}, "delta").get("stop_reason"))
                self._take_usage(event.get("usage"))
            case "message_stop":
                self.done = True

    def _called(self) -> list[CallInProgress]:
        for (place, key), pieces in self._pieces.items():
            self._blocks[place][key] = str(self._blocks[place].get(key) or "") + "".join(pieces)
        self._pieces.clear()
        self._echo = {THINKING: self._in_order()} if self._blocks else {}
        for index, whole in self._inputs.items():
            if not "".join(self._calls[index].arguments).strip():
                self._calls[index].arguments = [whole]
        return [self._calls[index] for index in sorted(self._calls)]

    def _in_order(self) -> list[dict[str, Any] | str | None]:
        """See ``THINKING``. Where all thinking comes first, it stands there alone."""
        if max(self._blocks) < len(self._blocks):
            return [self._blocks[place] for place in sorted(self._blocks)]
        texts = {index: "".join(pieces) for index, pieces in self._texts.items()}
        places = {**texts, **dict.fromkeys(self._calls), **self._blocks}
        found = [places[place] for place in sorted(places)]
        return [each for each in found if not isinstance(each, str) or each.strip()]

    def _begin(self, index: int, block: dict[str, Any]) -> Iterator[Delta]:
        match block.get("type"):
            case "text":
                yield from self._text_of(block.get("text"), index)
            case "thinking" | "redacted_thinking":
                self._blocks[index] = {**block}
                yield from self._think(str(block.get("thinking") or ""))
            case "tool_use":
                self._begin_call(index, block)

    def _go_on(self, index: int, delta: dict[str, Any]) -> Iterator[Delta]:
        match delta.get("type"):
            case "text_delta":
                yield from self._text_of(delta.get("text"), index)
            case "thinking_delta" | "signature_delta":
                for key in ("thinking", "signature"):
                    if isinstance(more := delta.get(key), str) and index in self._blocks:
                        self._pieces.setdefault((index, key), []).append(more)
                yield from self._think(str(delta.get("thinking") or ""))
            case "input_json_delta":
                part = delta.get("partial_json")
                if not isinstance(part, str | None):
                    raise ProviderMalformed("the LLM provider sent tool arguments that are not text")
                if index in self._calls:  # else they belong to a block that the provider itself deals with
                    self._calls[index].arguments.append(self._clean(part or ""))

    def _text_of(self, text: object, index: int) -> Iterator[Delta]:
        if not isinstance(text, str | None):
            raise ProviderMalformed("the LLM provider sent content that is not text")
        if text:
            self._texts.setdefault(index, []).append(text)
            yield from self._say(text)

    def _begin_call(self, index: int, block: dict[str, Any]) -> None:
        if index not in self._calls and len(self._calls) >= MAX_TOOL_CALLS:
            return
        call = self._calls[index] = CallInProgress()
        own, name, whole = block.get("id"), block.get("name"), block.get("input")
        call.id = self._clean(own) if isinstance(own, str) else ""
        call.name = self._clean(name) if isinstance(name, str) else ""
        call.echo = {key: value for key, value in block.items() if key not in _OF_CALL and value is not None}
        if isinstance(whole, dict) and whole:
            self._inputs[index] = self._clean(json.dumps(whole, ensure_ascii=False))

    def _take_usage(self, usage: object) -> None:
        """Later counts replace earlier ones; an event need not repeat them all."""
        if isinstance(usage, dict):
            self._usage |= {name: number for name, value in usage.items() if (number := count(value)) is not None}

    def _counted(self) -> Usage | None:
        counts = self._usage
        if "input_tokens" not in counts or "output_tokens" not in counts:
            return None
        read, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
        return Usage(
            prompt_tokens=counts["input_tokens"] + (read or 0) + (written or 0),
            completion_tokens=counts["output_tokens"],
            cached_tokens=read,
            cache_write_tokens=written,
        )


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProviderMalformed(f"the LLM provider sent a {what} that is not an object")
    return value


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    if type(index) is not int:
        raise ProviderMalformed("the LLM provider sent a block without its number")
    return index


def _error_in_stream(event: dict[str, Any]) -> ProviderError:
    status = _STATUS.get(error_code(event) or "")
    return refused_in_stream(event) if status is None else refused(status, event)
