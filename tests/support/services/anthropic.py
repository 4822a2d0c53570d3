"""Anthropic's API: its list of models, and messages with signed thinking, whose rules it holds clients to."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import attrs

from tests.support.llm_server import Reasoning, Recorded, Reply, Text, Tool
from tests.support.programs.anthropic_server import AnthropicScript, anthropic_error
from tests.support.services.imitation import Handler, ServiceImitation, json_reply

LEAST_BUDGET = 1_024


def signature(thinking: str) -> str:
    """What the service signs a block of thinking with; clients cannot make it."""
    return hashlib.sha256(f"a secret of the service {thinking}".encode()).hexdigest()


class SignedScript(AnthropicScript):
    """Thinking with its signature at the end of each block."""

    def __init__(self, request: Recorded) -> None:
        super().__init__(request)
        self._thinking = ""

    def frames(self, step: Text | Reasoning | Tool) -> list[bytes]:
        if not isinstance(step, Reasoning):
            return super().frames(step)
        self._thinking += step.text
        return super().frames(step)

    def _end(self) -> list[bytes]:
        signed = []
        if self._open == "thinking":
            signed = [self._delta("signature_delta", signature=signature(self._thinking))]
            self._thinking = ""
        return signed + super()._end()


@attrs.frozen(kw_only=True)
class AnthropicModel:
    id: str
    context: int = 200_000
    most: int = 64_000
    thinking: bool = True

    def row(self) -> dict[str, Any]:
        supported = {"supported": True}
        thinking = {"supported": self.thinking, "types": {"enabled": supported, "adaptive": {"supported": False}}}
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.id,
            "created_at": "2025-09-29T00:00:00Z",
            "max_input_tokens": self.context,
            "max_tokens": self.most,
            "capabilities": {
                "batch": supported,
                "citations": supported,
                "image_input": supported,
                "pdf_input": supported,
                "structured_outputs": supported,
                "thinking": thinking,
            },
        }


class AnthropicService(ServiceImitation):
    """``bare``: the rows of the list only have ids, as they had for years."""

    def __init__(self, *models: AnthropicModel, key: str | None = "sk-ant-right-key-0001", bare: bool = False) -> None:
        super().__init__(SignedScript, key=key)
        self.models = models
        self.bare = bare

    @property
    def address(self) -> str:
        return f"{self.root}/v1"

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        return {("GET", "/v1/models"): self._list, ("POST", "/v1/messages"): self._messages}

    def given_key(self, request: Recorded) -> str | None:
        return request.headers.get("x-api-key")

    def unknown(self, request: Recorded) -> Reply:
        del request
        return anthropic_error(404, "not_found_error", "Not found")

    def wrong_key(self, request: Recorded) -> Reply:
        text = "invalid x-api-key" if self.given_key(request) else "x-api-key header is required"
        return anthropic_error(401, "authentication_error", text)

    def _list(self, request: Recorded) -> Reply:
        if "anthropic-version" not in request.headers:
            return anthropic_error(400, "invalid_request_error", "anthropic-version: header is required")
        asked = parse_qs(request.path.partition("?")[2])
        limit, after = int(asked.get("limit", ["20"])[0]), asked.get("after_id", [""])[0]
        if not 1 <= limit <= 1000:
            return anthropic_error(400, "invalid_request_error", "limit: Input should be less than or equal to 1000")
        rows = [each.row() for each in self.models]
        if self.bare:
            rows = [{key: row[key] for key in ("type", "id", "display_name", "created_at")} for row in rows]
        start = next((at + 1 for at, row in enumerate(rows) if row["id"] == after), 0)
        page = rows[start : start + limit]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return json_reply({"data": page, "has_more": start + limit < len(rows), **ends})

    def _messages(self, request: Recorded) -> Reply:
        if "anthropic-version" not in request.headers:
            return anthropic_error(400, "invalid_request_error", "anthropic-version: header is required")
        if (wrong := self.wrong_in(request.body)) is not None:
            return anthropic_error(400, "invalid_request_error", wrong)
        if all(model.id != request.body["model"] for model in self.models):
            return anthropic_error(404, "not_found_error", f"model: {request.body['model']}")
        return self.next_answer(request)

    def wrong_in(self, body: Mapping[str, Any]) -> str | None:
        """What the API refuses in a request."""
        for name in ("model", "max_tokens", "messages"):
            if name not in body:
                return f"{name}: Field required"
        thinking = body.get("thinking") or {"type": "disabled"}
        thinks = thinking.get("type") in ("enabled", "adaptive")
        if thinking.get("type") == "enabled":
            budget = thinking.get("budget_tokens", 0)
            if budget < LEAST_BUDGET:
                return f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}"
            if budget >= body["max_tokens"]:
                return "`max_tokens` must be greater than `thinking.budget_tokens`"
        if thinks and body.get("temperature", 1) != 1:
            return "`temperature` may only be set to 1 when thinking is enabled"
        if thinks and body.get("tool_choice", {}).get("type") in ("any", "tool"):
            return "Thinking may not be enabled when tool_choice forces tool use."
        return _wrong_in_messages(body["messages"], thinks=thinks)


def _wrong_in_messages(messages: list[dict[str, Any]], *, thinks: bool) -> str | None:
    called: set[str] = set()
    last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    for at, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text", "text": "x"}]
        kinds = [block["type"] for block in blocks]
        if not blocks:
            return f"messages.{at}: all messages must have non-empty content"
        for place, block in enumerate(blocks):
            where = f"messages.{at}.content.{place}"
            if block["type"] == "text" and not block["text"].strip():
                return f"{where}.text: text content blocks must be non-empty"
            if block["type"] == "thinking" and block.get("signature") != signature(block["thinking"]):
                return f"{where}: Invalid `signature` in `thinking` block"
            if block["type"] == "tool_result" and block["tool_use_id"] not in called:
                return f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {block['tool_use_id']}."
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if called - answered:
            names = ", ".join(sorted(called - answered))
            return (
                f"messages.{at - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: {names}."
            )
        called = {block["id"] for block in blocks if block["type"] == "tool_use"}
        goes_on = at == last and called and at + 1 < len(messages)
        if thinks and goes_on and kinds[0] not in ("thinking", "redacted_thinking"):
            return (
                f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`."
                " When `thinking` is enabled, a final `assistant` message must start with a thinking block."
            )
    return None


def thoughts_of(body: Mapping[str, Any]) -> str:
    """All thinking that a request sends back, for tests that look for it."""
    return json.dumps([m for m in body["messages"] if m["role"] == "assistant" and "thinking" in json.dumps(m)])
