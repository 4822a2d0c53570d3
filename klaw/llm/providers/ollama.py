"""Ollama's own chat API, which is asked where the context has a length that OpenAI's API has no word for. Pure."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from klaw.llm.errors import ProviderMalformed
from klaw.llm.providers import thinking_members
from klaw.llm.providers.dialect import MAX_TOOL_CALLS, Assembly, CallInProgress, count, encode, refuse_sampling
from klaw.llm.providers.refusals import parsed, refused_in_stream
from klaw.llm.types import ChatMessage, Delta, Request, Usage


class OllamaDialect:
    def url(self, base_url: str | None) -> str:
        return f"{(base_url or '').rstrip('/').removesuffix('/v1')}/api/chat"

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        return {"authorization": f"Bearer {api_key}"} if api_key is not None else {}

    def body(self, request: Request, extra: Mapping[str, Any]) -> bytes:
        refuse_sampling(request, takes=("stop", "seed", "top_p", "presence_penalty", "frequency_penalty"))
        options = {
            **request.sampling,
            "num_ctx": request.context_tokens,
            "temperature": request.temperature,
            "num_predict": request.max_tokens,
        }
        own = extra.get("options")
        options |= own if isinstance(own, dict) else {}
        names = {call.id: call.name for message in request.messages for call in message.tool_calls}
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [_message(message, names) for message in request.messages],
            "stream": True,
            "think": thinking_members.of_ollama(request),
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
                }
                for each in request.tools
            ]
        if request.json_schema is not None:
            body["format"] = dict(request.json_schema.schema) or "json"
        set_options = {name: value for name, value in options.items() if value is not None}
        return encode(body, {**extra, "options": set_options})

    def assembly(self, new_id: Callable[[], str]) -> "OllamaAssembly":
        return OllamaAssembly(new_id)


def _message(message: ChatMessage, names: Mapping[str, str]) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        encoded["images"] = [base64.b64encode(image.data).decode() for image in message.images]
    if message.tool_calls:
        calls = ((call.name, parsed(call.arguments)) for call in message.tool_calls)
        encoded["tool_calls"] = [
            {"function": {"name": name, "arguments": given if isinstance(given, dict) else {}}} for name, given in calls
        ]
    if message.tool_call_id is not None:
        encoded["tool_name"] = names.get(message.tool_call_id, "")
    return {**message.echo.message, **encoded} if message.echo is not None else encoded


class OllamaAssembly(Assembly):
    """Reads lines of JSON; a tool call comes whole."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__(new_id)
        self._calls: list[CallInProgress] = []
        self._thoughts: list[str] = []
        self._usage: Usage | None = None

    def feed(self, event: object) -> Iterator[Delta]:
        if not isinstance(event, dict):
            raise ProviderMalformed("the LLM provider sent a line that is not an object")
        if event.get("error"):
            raise refused_in_stream(event)
        message = event.get("message")
        if not isinstance(message, dict | None):
            raise ProviderMalformed("the LLM provider sent a message that is not an object")
        yield from self._take(message or {})
        if event.get("done") is True:
            reason = event.get("done_reason") or "stop"
            self._end("tool_calls" if self._calls and reason == "stop" else reason)
            prompt, completion = count(event.get("prompt_eval_count")), count(event.get("eval_count"))
            if completion is not None:  # without the first, all of the prompt was in the cache
                self._usage = Usage(prompt_tokens=prompt or 0, completion_tokens=completion)
            self.done = True

    def _take(self, message: Mapping[str, Any]) -> Iterator[Delta]:
        thought, content = message.get("thinking") or "", message.get("content") or ""
        if not isinstance(thought, str) or not isinstance(content, str):
            raise ProviderMalformed("the LLM provider sent content that is not text")
        if thought:
            self._thoughts.append(thought)
            yield from self._think(thought)
        if content:
            yield from self._say(content)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and len(self._calls) < MAX_TOOL_CALLS:
                given = function.get("arguments") or {}
                made = CallInProgress()
                made.id = self._clean(str(call.get("id") or ""))
                made.name = self._clean(str(function.get("name") or ""))
                made.arguments = [
                    self._clean(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
                ]
                self._calls.append(made)

    def _called(self) -> list[CallInProgress]:
        if self._thoughts:  # models that think between their calls want it back with these
            self._echo = {"thinking": self._clean("".join(self._thoughts))} if self._calls else {}
        return self._calls

    def _counted(self) -> Usage | None:
        return self._usage
