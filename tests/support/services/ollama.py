"""Ollama: its own API, and the face of OpenAI's that it has beside it."""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from tests.support.llm_server import LlmServer, OpenAiScript, Reasoning, Recorded, Reply, Text, Tool, text_reply
from tests.support.services.imitation import Handler, ServiceImitation, json_reply

LINES = "application/x-ndjson"
NOW = "2026-11-26T08:00:00.000000Z"


@attrs.frozen(kw_only=True)
class OllamaModel:
    name: str
    longest: int = 131_072
    capabilities: tuple[str, ...] = ("completion", "tools")
    parameters: str = ""
    """Lines of the Modelfile, such as ``num_ctx 16384``."""
    family: str = "qwen3"


class OllamaScript:
    """Writes lines of JSON for ``/api/chat``; see ``llm_server.Script``."""

    def __init__(self, request: Recorded) -> None:
        self._model = request.body.get("model", "")
        self._calls = 0

    def frames(self, step: Text | Reasoning | Tool) -> list[bytes]:
        match step:
            case Text(text):
                return [self._line({"content": text})]
            case Reasoning(text):
                return [self._line({"content": "", "thinking": text})]
            case Tool():
                function = {"index": self._calls, "name": step.name, "arguments": json.loads(step.arguments or "{}")}
                self._calls += 1
                return [self._line({"content": "", "tool_calls": [{"id": step.id, "function": function}]})]

    def ending(self, reply: Reply) -> list[bytes]:
        reason = "stop" if reply.finish_reason == "tool_calls" else reply.finish_reason
        if reason is None:
            return [b"\n"]
        counts = {"prompt_eval_count": reply.usage[0], "eval_count": reply.usage[1]} if reply.usage else {}
        times = {"total_duration": 4883583458, "load_duration": 1334875, "prompt_eval_duration": 3, "eval_duration": 4}
        return [self._line({"content": ""}, done=True, done_reason=reason, **times, **counts)]

    def _line(self, message: dict[str, Any], **more: Any) -> bytes:
        tree = {"model": self._model, "created_at": NOW, "message": {"role": "assistant", **message}, "done": False}
        return json.dumps({**tree, **more}, ensure_ascii=False).encode() + b"\n"


def _script(request: Recorded) -> OllamaScript | OpenAiScript:
    return OllamaScript(request) if request.path == "/api/chat" else OpenAiScript(request)


class OllamaChats(LlmServer):
    """A scripted server of Ollama's chats, whatever path is asked."""

    def __init__(self) -> None:
        super().__init__(OllamaScript)

    async def _play(self, stream: Any, http: Any, request: Recorded, reply: Reply) -> bool:
        if reply.body is None and reply.content_type == "text/event-stream":
            reply = attrs.evolve(reply, content_type=LINES)
        return await super()._play(stream, http, request, reply)


class OllamaService(ServiceImitation):
    """``default_context`` is what OLLAMA_CONTEXT_LENGTH says. A question loads its model, with ``options.num_ctx`` if
    it has that, so that ``/api/ps`` lists it: in ``loaded``, name to context."""

    def __init__(self, *models: OllamaModel, default_context: int = 4_096) -> None:
        super().__init__(_script)
        self.models = {model.name: model for model in models}
        self.default_context = default_context
        self.loaded: dict[str, int] = {}

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        return {
            ("GET", "/"): lambda _request: Reply(body=b"Ollama is running", content_type="text/plain; charset=utf-8"),
            ("GET", "/api/version"): lambda _request: json_reply({"version": "0.12.6"}),
            ("GET", "/api/tags"): lambda _request: json_reply({"models": [self._tag(each) for each in self._all()]}),
            ("GET", "/api/ps"): self._ps,
            ("POST", "/api/show"): self._show,
            ("POST", "/api/chat"): self._chat,
            ("GET", "/v1/models"): self._openai_models,
            ("POST", "/v1/chat/completions"): self._openai_chat,
        }

    def unknown(self, request: Recorded) -> Reply:
        del request
        return Reply(status=404, body=b"404 page not found", content_type="text/plain")

    def _all(self) -> list[OllamaModel]:
        return list(self.models.values())

    def _tag(self, model: OllamaModel) -> dict[str, Any]:
        details = {"parent_model": "", "format": "gguf", "family": model.family, "families": [model.family]}
        details |= {"parameter_size": "8.2B", "quantization_level": "Q4_K_M"}
        about = {"modified_at": NOW, "size": 5_200_000_000, "digest": "a" * 64, "details": details}
        return {"name": model.name, "model": model.name, **about}

    def _ps(self, _request: Recorded) -> Reply:
        about = {"expires_at": NOW, "size_vram": 0}
        told = [{**self._tag(self.models[n]), **about, "context_length": long} for n, long in self.loaded.items()]
        return json_reply({"models": told})

    def _show(self, request: Recorded) -> Reply:
        model = self.models.get(str(request.body.get("model")))
        if model is None:
            return json_reply({"error": f"model '{request.body.get('model')}' not found"}, 404)
        info = {"general.architecture": model.family, f"{model.family}.context_length": model.longest}
        about = {"modelfile": "# Modelfile", "template": "{{ .Prompt }}", "details": self._tag(model)["details"]}
        told = {**about, "model_info": info, "capabilities": list(model.capabilities), "modified_at": NOW}
        return json_reply(told | ({"parameters": model.parameters} if model.parameters else {}))

    def _chat(self, request: Recorded) -> Reply:
        body = request.body
        model = self.models.get(str(body.get("model")))
        if model is None:
            return json_reply({"error": f"model '{body.get('model')}' not found"}, 404)
        refused = {
            "tools": "tools" in body and "tools" not in model.capabilities,
            "thinking": bool(body.get("think")) and "thinking" not in model.capabilities,
            "chat": "completion" not in model.capabilities,
        }
        if (what := next((word for word, is_refused in refused.items() if is_refused), None)) is not None:
            name = f"registry.ollama.ai/library/{model.name}" if what == "tools" else f'"{model.name}"'
            return json_reply({"error": f"{name} does not support {what}"}, 400)
        for message in body.get("messages", ()):
            if not isinstance(message.get("content", ""), str):
                text = "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
                return json_reply({"error": text}, 400)
            for call in message.get("tool_calls", ()):
                if not isinstance(call["function"]["arguments"], dict):
                    text = (
                        "json: cannot unmarshal string into Go struct field .arguments of type map[string]interface {}"
                    )
                    return json_reply({"error": text}, 400)
        self.loaded[model.name] = min(model.longest, int(body.get("options", {}).get("num_ctx", self._default(model))))
        reply = self.next_answer(request)
        return attrs.evolve(reply, content_type=LINES) if reply.body is None else reply

    def _default(self, model: OllamaModel) -> int:
        own = [int(line.split()[1]) for line in model.parameters.splitlines() if line.startswith("num_ctx")]
        return own[0] if own else self.default_context

    def _openai_models(self, _request: Recorded) -> Reply:
        told = [{"id": each.name, "object": "model", "created": 1, "owned_by": "library"} for each in self._all()]
        return json_reply({"object": "list", "data": told})

    def _openai_chat(self, request: Recorded) -> Reply:
        model = self.models.get(str(request.body.get("model")))
        if model is None:
            text = f"model '{request.body.get('model')}' not found"
            return json_reply({"error": {"message": text, "type": "api_error", "param": None, "code": None}}, 404)
        if request.body.get("tools") and "tools" not in model.capabilities:
            text = f"registry.ollama.ai/library/{model.name} does not support tools"
            error = {"message": text, "type": "invalid_request_error", "param": None, "code": None}
            return json_reply({"error": error}, 400)
        self.loaded[model.name] = min(model.longest, self._default(model))
        return self.next_answer(request)


def calls_then_says(tool: Tool, *said: str) -> list[Reply]:
    """Two answers: a call of a tool, and what is said after its result."""
    return [Reply(steps=(tool,), finish_reason="tool_calls"), text_reply(*said)]
