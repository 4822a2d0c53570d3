"""The scriptable LLM server (see ``llm_server``), speaking Anthropic's messages API."""

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.support.llm_server import LlmServer, Reasoning, Recorded, Reply, Text, Tool, serve_llm

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
CACHE = (3, 5)
"""Prompt tokens that the server says it read from its cache and wrote to it; a part of ``Reply.usage``."""


class AnthropicScript:
    """See ``llm_server.Script``."""

    def __init__(self, request: Recorded) -> None:
        self._request = request
        self._index = -1
        self._open = ""

    def frames(self, step: Text | Reasoning | Tool) -> list[bytes]:
        match step:
            case Text(text):
                return [*self._begin("text", {"text": ""}), self._delta("text_delta", text=text)]
            case Reasoning(text):
                block = self._begin("thinking", {"thinking": "", "signature": ""})
                return [*block, self._delta("thinking_delta", thinking=text)]
            case Tool():
                begin = self._begin("tool_use", {"id": step.id, "name": step.name, "input": {}}, always=True)
                parts = ["", *step.split()]  # the API begins with an empty part
                return begin + [self._delta("input_json_delta", partial_json=part) for part in parts]

    def ending(self, reply: Reply) -> list[bytes]:
        frames = self._end()
        if reply.finish_reason is not None:
            delta = {"stop_reason": _REASONS.get(reply.finish_reason, reply.finish_reason), "stop_sequence": None}
            counts = {"usage": {"output_tokens": reply.usage[1], **self._prompt(reply)}} if reply.usage else {}
            frames.append(named_event("message_delta", {"delta": delta, **counts}))
        if reply.done:
            frames.append(named_event("message_stop", {}))
        return frames

    # -- inside ----------------------------------------------------------------------------------------------------

    def _prompt(self, reply: Reply) -> dict[str, int]:
        assert reply.usage is not None
        read, written = CACHE
        return {
            "input_tokens": reply.usage[0] - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }

    def _begin(self, kind: str, block: dict[str, Any], *, always: bool = False) -> list[bytes]:
        if kind == self._open and not always:
            return []
        before = self._end()
        if self._index < 0:
            message = {"type": "message", "role": "assistant", "content": [], "model": self._request.body.get("model")}
            before = [named_event("message_start", {"message": message}), named_event("ping", {})]
        self._open, self._index = kind, self._index + 1
        start = {"index": self._index, "content_block": {"type": kind, **block}}
        return [*before, named_event("content_block_start", start)]

    def _delta(self, kind: str, **what: str) -> bytes:
        return named_event("content_block_delta", {"index": self._index, "delta": {"type": kind, **what}})

    def _end(self) -> list[bytes]:
        was_open, self._open = self._open, ""
        return [named_event("content_block_stop", {"index": self._index})] if was_open else []


def named_event(name: str, value: dict[str, Any]) -> bytes:
    """An event of the API: its type stands beside the data and in it."""
    data = json.dumps({"type": name, **value}, ensure_ascii=False)
    return f"event: {name}\ndata: {data}\n\n".encode("utf-8", "surrogatepass")


def anthropic_error(
    status: int, kind: str, message: str = "provider text", headers: Sequence[tuple[str, str]] = ()
) -> Reply:
    """An error status with the API's error object."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return Reply(status=status, body=body, content_type="application/json", headers=headers)


def serve_anthropic() -> AbstractAsyncContextManager[LlmServer]:
    """Run a server on a free loopback port for the body."""
    return serve_llm(LlmServer(AnthropicScript))
