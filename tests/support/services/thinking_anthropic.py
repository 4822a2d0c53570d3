"""Anthropic's messages API as documented for thinking: blocks are signed, and a request that does not bring
them back as they were is refused with the API's own words. Plays the answers of ``plans``, one for each request."""

import hashlib
import hmac
import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from tests.support.llm_server import LlmServer, Raw, Recorded, Reply
from tests.support.programs.anthropic_server import AnthropicScript, anthropic_error, named_event

_KEY = b"signs what was thought"
THINKS = ("thinking", "redacted_thinking")
MUST_BEGIN = (
    "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is"
    " enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use`"
    " and `tool_result` blocks). To avoid this requirement, disable `thinking`."
)
CHANGED = (
    "messages.{at}.content.{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be"
    " modified. These blocks must remain as they were in the original response."
)


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": _signature(text)}


def redacted(data: str) -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": data}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(own: str, name: str = "current_time", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": own, "name": name, "input": given}


def _signature(thinking: str) -> str:
    return hmac.new(_KEY, thinking.encode(), hashlib.sha256).hexdigest()


class ThinkingAnthropic(LlmServer):
    """``plans``: the blocks of the next answers; thinking is left out of them where it is off. Afterwards: "Noon."."""

    def __init__(self, *plans: Sequence[dict[str, Any]]) -> None:
        super().__init__(AnthropicScript)
        self.plans = deque(plans)
        self.issued: list[list[dict[str, Any]]] = []
        self.refused: list[str] = []
        self.respond = self._answer

    def _answer(self, request: Recorded) -> Reply:
        if (why := self._wrong(request.body)) is not None:
            self.refused.append(why)
            return anthropic_error(400, "invalid_request_error", why)
        plan = self.plans.popleft() if self.plans else [text("Noon.")]
        blocks = [block for block in plan if _thinks(request.body) or block["type"] not in THINKS]
        self.issued.append(blocks)
        calls = any(block["type"] == "tool_use" for block in blocks)
        events = [
            named_event("message_start", {"message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}),
            *(event for index, block in enumerate(blocks) for event in _events(index, block)),
            named_event(
                "message_delta",
                {"delta": {"stop_reason": "tool_use" if calls else "end_turn"}, "usage": {"output_tokens": 40}},
            ),
            named_event("message_stop", {}),
        ]
        return Reply(steps=tuple(map(Raw, events)), finish_reason=None, usage=None, done=False)

    def _wrong(self, body: dict[str, Any]) -> str | None:
        """Why the API refuses a request."""
        thinking = body.get("thinking", {"type": "disabled"})
        budget = thinking.get("budget_tokens", 1024)
        if thinking["type"] == "enabled" and budget < 1024:
            return "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        if thinking["type"] == "enabled" and body["max_tokens"] <= budget:
            return "`max_tokens` must be greater than `thinking.budget_tokens`."
        if _thinks(body) and body.get("temperature", 1) != 1:
            return "`temperature` may only be set to 1 when thinking is enabled."
        if thinking["type"] == "adaptive" and not body["model"].startswith("new"):
            return "adaptive thinking is not supported on this model"
        if thinking["type"] == "enabled" and body["model"].startswith("new"):
            return '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'
        return self._wrong_messages(body)

    def _wrong_messages(self, body: dict[str, Any]) -> str | None:
        messages = body["messages"]
        questions = [
            at
            for at, message in enumerate(messages)
            if message["role"] == "user" and all(block["type"] != "tool_result" for block in message["content"])
        ]
        begin = questions[-1] + 1
        for at, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            for place, block in enumerate(message["content"]):
                if block["type"] == "thinking" and block.get("signature") != _signature(block["thinking"]):
                    return f"messages.{at}.content.{place}: Invalid `signature` in `thinking` block"
            if message["content"][-1]["type"] in THINKS:
                return f"messages.{at}: The final block in an assistant message cannot be `thinking`."
            if at >= begin and _thinks(body) and (why := self._changed(at, message["content"])) is not None:
                return why
        if begin < len(messages) and body.get("thinking", {}).get("type") == "enabled":
            kind = messages[begin]["content"][0]["type"]
            if kind not in THINKS:
                return MUST_BEGIN.format(at=begin, kind=kind)
        return None

    def _changed(self, at: int, content: list[dict[str, Any]]) -> str | None:
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        own = next((each for each in self.issued if [b["id"] for b in each if b["type"] == "tool_use"] == calls), [])
        for place, block in enumerate(own):
            if block["type"] in THINKS and (place >= len(content) or content[place] != block):
                return CHANGED.format(at=at, place=place)
        return None


def _thinks(body: dict[str, Any]) -> bool:
    return body.get("thinking", {}).get("type") in ("enabled", "adaptive")


def _events(index: int, block: dict[str, Any]) -> list[bytes]:
    """A block in small pieces."""
    match block["type"]:
        case "thinking":
            begin = {"type": "thinking", "thinking": "", "signature": ""}
            halves = _halves(block["thinking"])
            deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": each} for each in halves]
            deltas += [{"type": "signature_delta", "signature": each} for each in _halves(block["signature"])]
        case "text":
            begin, deltas = text(""), [{"type": "text_delta", "text": each} for each in _halves(block["text"])]
        case "tool_use":
            begin = {**block, "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": each} for each in _halves(json.dumps(block["input"]))
            ]
        case _:
            begin, deltas = block, []
    return [
        named_event("content_block_start", {"index": index, "content_block": begin}),
        *(named_event("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        named_event("content_block_stop", {"index": index}),
    ]


def _halves(whole: str) -> list[str]:
    return [whole[: len(whole) // 2], whole[len(whole) // 2 :]]
