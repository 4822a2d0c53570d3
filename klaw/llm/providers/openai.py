"""OpenAI's chat completions. Pure; knows neither HTTP nor Trio."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs

from klaw.llm.errors import ProviderMalformed
from klaw.llm.providers import thinking_members
from klaw.llm.providers.dialect import MAX_ECHO_BYTES, MAX_TOOL_CALLS, Assembly, CallInProgress, count, encode
from klaw.llm.providers.refusals import is_json, refused_in_stream
from klaw.llm.types import ChatMessage, Delta, Echo, Request, Usage

MIN_REPEATED = 3
"""A shorter text may be repeated on purpose."""
MAX_IMAGES = 4
_THINKING = re.compile(r"think|reason|thought", re.IGNORECASE)
_ECHOED = re.compile(r"reason|think|thought|signature|encrypted|extra_content|provider_specific", re.IGNORECASE)
"""Members of a message that belong to its thinking, or sign it: what providers may want back."""
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_OF_CALL = ("index", "id", "type", "function", "name", "arguments")
_OF_FUNCTION = ("name", "arguments")
_GROWS = frozenset({"text", "summary", "thinking", "data", *_THOUGHTS})
"""Come in pieces; other texts come whole."""
_PLACES = ("image_url", "url", "b64_json", "data", "source")
_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,")


@attrs.frozen
class OpenAiDialect:
    service: str = ""
    """The address, which tells how the service is asked to think."""

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
            **thinking_members.of_openai(request, self.service),
            **request.sampling,
        }
        if request.tools:
            named = (attrs.asdict(tool, recurse=False) for tool in request.tools)
            body["tools"] = [{"type": "function", "function": each} for each in named]
            body["parallel_tool_calls"] = None if request.parallel_calls else False
            choice = request.tool_choice
            named_tool = {"type": "function", "function": {"name": choice}}
            body["tool_choice"] = choice if choice in (None, "required") else named_tool
        if (form := request.json_schema) is not None:
            schema = {"name": form.name, "schema": dict(form.schema), "strict": form.strict}
            wanted = {"type": "json_schema", "json_schema": schema}
            body["response_format"] = wanted if form.schema else {"type": "json_object"}
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
        encoded["tool_calls"] = []
        for place, call in enumerate(message.tool_calls):
            echo = message.echo.of_call(place, len(message.tool_calls)) if message.echo is not None else {}
            function = {**echo.get("function", {}), "name": call.name, "arguments": call.arguments}
            encoded["tool_calls"].append({**echo, "id": call.id, "type": "function", "function": function})
    if message.tool_call_id is not None:
        encoded["tool_call_id"] = message.tool_call_id
    return {**message.echo.message, **encoded} if message.echo is not None else encoded


class OpenAiAssembly(Assembly):
    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__(new_id)
        self._calls: list[tuple[int, CallInProgress]] = []
        self._open: CallInProgress | None = None
        self._raw: list[str] = []
        """The text as it came, with thinking in it."""
        self._echo_size = 0
        self._usage: Usage | None = None

    def feed(self, event: object) -> Iterator[Delta]:
        if isinstance(event, list) and event:  # Google wraps errors so
            event = event[0]
        if not isinstance(event, dict):
            raise ProviderMalformed("the LLM provider sent something that is not a chunk of an answer")
        choices = event.get("choices")
        if event.get("error") or (not choices and _is_error(event)):
            raise refused_in_stream(event)
        self._take_usage(event.get("usage"))
        if not isinstance(choices, list | None):
            raise ProviderMalformed("the LLM provider sent choices that are not a list")
        for choice in (choices or [])[:1]:
            if not isinstance(choice, dict):
                raise ProviderMalformed("the LLM provider sent a choice that is not an object")
            if choice.get("index") not in (0, None):
                continue  # one answer is asked for
            if choice.get("error") or str(choice.get("finish_reason")).lower() == "error":
                raise refused_in_stream(choice)
            self._end(choice.get("finish_reason"))
            delta, whole = choice.get("delta") or {}, choice.get("message")
            if not isinstance(delta, dict) or not isinstance(whole, dict | None):
                raise ProviderMalformed("the LLM provider sent a delta that is not an object")
            if not delta or event.get("object") == "chat.completion" or self._repeats(choice, delta):
                delta = self._unsaid(whole or delta)
            yield from self._take_delta(delta)

    def _called(self) -> list[CallInProgress]:
        return [call for _, call in sorted(self._calls, key=lambda numbered: numbered[0])]

    def _counted(self) -> Usage | None:
        return self._usage

    def _repeats(self, choice: dict[str, Any], delta: dict[str, Any]) -> bool:
        """Whether the last piece is the whole text once more."""
        text = delta.get("content")
        ends = bool(choice.get("finish_reason")) and isinstance(text, str) and len(text) > MIN_REPEATED
        return ends and text == "".join(self._raw)

    def _unsaid(self, whole: dict[str, Any]) -> dict[str, Any]:
        """What did not come before, of a whole message that some servers send after all its parts."""
        text, said = whole.get("content"), "".join(self._raw)
        if said:
            text = text[len(said) :] if isinstance(text, str) and text.startswith(said) else None
        came = {"content": text, "tool_calls": None if self._calls else whole.get("tool_calls")}
        seen = ("images", "refusal") if said or self._images else ()
        return {key: value for key, value in {**whole, **came}.items() if key not in (*seen, *self._echo)}

    def _take_delta(self, delta: dict[str, Any]) -> Iterator[Delta]:
        for key, value in delta.items():
            if value and isinstance(value, str | list | dict) and _ECHOED.search(key):
                self._keep(self._echo, key, value)
        thought = next((text for key in _THOUGHTS if (text := "".join(_texts(delta.get(key))))), "")
        yield from self._think(thought or "".join(_texts(delta.get("reasoning_details"))))
        content = delta.get("content")
        google = delta["extra_content"].get("google") if isinstance(delta.get("extra_content"), dict) else None
        if isinstance(google, dict) and google.get("thought") is True and isinstance(content, str):  # all of it is
            content = [{"type": "thinking", "text": content}]
        yield from self._take_content(content)
        if isinstance(refusal := delta.get("refusal"), str):
            yield from self._take_content(refusal)
        for image in delta.get("images") or ():
            yield from self._take_image(image)
        calls = delta.get("tool_calls") or []
        if function := delta.get("function_call"):  # as it was before there were tools
            calls = [{"index": 0, "function": function}]
        for call in calls if isinstance(calls, list) else [calls]:
            self._take_call(call)

    def _take_content(self, content: object) -> Iterator[Delta]:
        if isinstance(content, str):
            self._raw.append(content)
            if content:
                yield from self._say(content)
            return
        if not isinstance(content, list | dict | None):
            raise ProviderMalformed("the LLM provider sent content that is not text")
        for part in content if isinstance(content, list) else filter(None, [content]):
            kind = str(part.get("type", "")) if isinstance(part, dict) else ""
            if _THINKING.search(kind) or (isinstance(part, dict) and part.get("thought") is True):
                yield from self._think("".join(_texts(part)))
            elif "image" in kind:
                yield from self._take_image(part)
            else:
                yield from self._take_content("".join(_texts(part)))

    def _take_image(self, image: object) -> Iterator[Delta]:
        """A picture as data is kept; one elsewhere is a link in the text, which nothing follows."""
        place: object = image
        while isinstance(place, dict):
            place = next((place[key] for key in _PLACES if key in place), None)
        if not isinstance(place, str):
            return
        if place.startswith(("https://", "http://")):
            yield from self._take_content(f"\n\n[image]({place[:2000]})\n\n")
            return
        with suppress(binascii.Error, ValueError):
            data = base64.b64decode(_DATA_URL.sub("", place, count=1), validate=True)
            if data and len(self._images) < MAX_IMAGES:
                self._images.append(data)
                self.size += 1  # a sign of life; not of the text

    def _take_call(self, part: object) -> None:
        if not isinstance(part, dict):
            return
        function = part.get("function", {key: part[key] for key in _OF_FUNCTION if key in part})
        function = function if isinstance(function, dict) else {}
        named = function.get("name")
        name = self._clean(named) if isinstance(named, str) else ""
        arguments = function.get("arguments")
        call = self._call_of(part, name, arguments)
        if call is None:
            return
        self._open = call
        if isinstance(part.get("id"), str) and not call.id:
            call.id = self._clean(part["id"])
        if name.startswith(call.name):  # the first, the same again, or all of it so far
            call.name = name
        elif name != call.name and not call.arguments:
            call.name += name
        inner = call.echo.get("function", {})
        for holder, known, echo in ((part, _OF_CALL, call.echo), (function, _OF_FUNCTION, inner)):
            for key, value in holder.items():
                if key not in known and value is not None:
                    self._keep(echo, key, value)
        if inner:
            call.echo["function"] = inner
        if arguments is not None and not isinstance(arguments, str):  # Ollama's older servers send the object itself
            arguments = json.dumps(arguments, ensure_ascii=False)
        if arguments:
            call.arguments.append(self._clean(arguments))

    def _call_of(self, part: dict[str, Any], name: str, arguments: object) -> CallInProgress | None:
        """Find the call that a part belongs to: the last one of its index (without one, of all); without id and name,
        the open one. None: there are too many.

        Another id together with a name begins a new call whatever the index: some servers give all calls the same. So
        does a name with arguments behind a call that is whole; with the same id, if they are others than those.
        """
        index, own = part.get("index"), part.get("id")
        same = [call for known, call in self._calls if type(index) is not int or known == index]
        known = same[-1] if same else None if name or own else self._open
        if known is not None:
            other_id = bool(own) and bool(known.id) and own != known.id
            behind = not own and bool(name) and (bool(arguments) or name != known.name)
            behind = behind and is_json("".join(known.arguments))
            behind = behind or (name == known.name and known.is_other(arguments))
            if not (other_id and (name or type(index) is not int)) and not behind:
                return known
        if len(self._calls) >= MAX_TOOL_CALLS:
            return None
        made = CallInProgress()
        self._calls.append((index if type(index) is int else len(self._calls), made))
        return made

    def _keep(self, echo: dict[str, Any], key: str, value: object) -> None:
        self.size += 1  # a sign of life; what of it is text counts as that
        with suppress(RecursionError):
            self._echo_size += len(value) if isinstance(value, str) else len(json.dumps(value))
            if self._echo_size <= MAX_ECHO_BYTES:
                echo[key] = _grown(echo.get(key), value, key)

    def _echoed(self, calls: list[dict[str, Any]]) -> Echo | None:
        return super()._echoed(calls) if self._echo_size <= MAX_ECHO_BYTES else None

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        details = details if isinstance(details, dict) else {}
        cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))
        prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
        made = usage.get("completion_tokens_details")
        thought = count(made.get("reasoning_tokens")) if isinstance(made, dict) else None
        if prompt is not None and completion is not None:
            # Some services count thinking only in the total.
            completion = max(completion, (count(usage.get("total_tokens")) or 0) - prompt)
            self._usage = Usage(
                prompt_tokens=prompt,
                completion_tokens=completion,
                cached_tokens=count(cached),
                cache_write_tokens=count(details.get("cache_write_tokens")),
                thinking_tokens=thought,
            )


def _is_error(event: dict[str, Any]) -> bool:
    texts = [event.get(key) for key in ("message", "detail", "error_msg", "errors")]
    status = event.get("base_resp")  # MiniMax
    named = "error" in (event.get("object"), event.get("type")) or (
        isinstance(status, dict) and status.get("status_code")
    )
    return bool(named) or any(bool(text) and isinstance(text, str | list) for text in texts)


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """The texts in a part of content or of thinking, whatever it is wrapped in."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth < 4:
        keys = ("text", "thinking", "refusal", "reasoning", "summary", "content")
        yield from _texts(next(filter(None, map(value.get, keys)), None), depth + 1)
    elif isinstance(value, list) and depth < 4:
        for part in value:
            yield from _texts(part, depth + 1)


def _grown(known: Any, more: Any, key: str) -> Any:
    if isinstance(known, str) and isinstance(more, str):
        return known + more if key in _GROWS else more
    if isinstance(known, dict) and isinstance(more, dict):
        return {**known, **{name: _grown(known.get(name), value, name) for name, value in more.items()}}
    if isinstance(more, list):
        parts = list(known) if isinstance(known, list) else []
        for part in more:
            if parts and _goes_on(parts[-1], part):
                parts[-1] = _grown(parts[-1], {name: value for name, value in part.items() if value is not None}, "")
            else:
                parts.append(part)
        return parts
    return more


def _goes_on(part: object, more: object) -> bool:
    """Whether an entry of a list is the next piece of the one before: at the same place, or not signed yet."""
    if not isinstance(part, dict) or not isinstance(more, dict) or part.get("type") != more.get("type"):
        return False
    if "index" in more or "index" in part:
        return bool(part.get("index") == more.get("index"))
    return part.get("id") == more.get("id") and not part.get("signature")
