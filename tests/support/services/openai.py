"""Services that speak OpenAI's API and list their models each in a form of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tests.support.llm_server import Recorded, Reply
from tests.support.services.imitation import Handler, ServiceImitation, json_reply


def error_of(message: str, kind: str, code: Any, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class OpenAiService(ServiceImitation):
    """``rows`` are what ``/models`` lists. ``refuses``: members of a chat's body, and the words that refuse them."""

    base = "/v1"

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], *, key: str | None = None, refuses: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(key=key)
        self.rows = list(rows)
        self.refuses = dict(refuses or {})

    @property
    def address(self) -> str:
        """What ``baseUrl`` should be."""
        return self.root + self.base

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        return {("GET", f"{self.base}/models"): self.models, ("POST", f"{self.base}/chat/completions"): self.chat}

    def unknown(self, request: Recorded) -> Reply:
        text = f"Invalid URL ({request.method} {request.path})"
        return json_reply(error_of(text, "invalid_request_error", None), 404)

    def wrong_key(self, request: Recorded) -> Reply:
        given = self.given_key(request)
        shown = (
            f"Incorrect API key provided: {given[:3]}***{given[-4:]}." if given else "You didn't provide an API key."
        )
        return json_reply(error_of(shown, "invalid_request_error", "invalid_api_key"), 401)

    def models(self, _request: Recorded) -> Reply:
        return json_reply({"object": "list", "data": self.rows})

    def chat(self, request: Recorded) -> Reply:
        model = request.body.get("model")
        if all(row["id"] != model for row in self.rows):
            text = f"The model `{model}` does not exist or you do not have access to it."
            return json_reply(error_of(text, "invalid_request_error", "model_not_found"), 404)
        for member, text in self.refuses.items():
            if member in request.body:
                return json_reply(error_of(text, "invalid_request_error", "unsupported_parameter", member), 400)
        return self.next_answer(request)


def openai_rows(*names: str, owner: str = "system", **more: Any) -> list[dict[str, Any]]:
    """Rows as OpenAI's own list has them, with what another service adds."""
    return [{"id": name, "object": "model", "created": 1686935002, "owned_by": owner, **more} for name in names]


class OpenRouterService(OpenAiService):
    """Its list is for everybody; only ``/key`` and chats want the key."""

    base = "/api/v1"

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        about = {"label": "klaw", "usage": 0, "limit": None, "is_free_tier": False}
        return {**super().handlers(), ("GET", f"{self.base}/key"): lambda _request: json_reply({"data": about})}

    def is_public(self, path: str) -> bool:
        return path == f"{self.base}/models"

    def unknown(self, request: Recorded) -> Reply:
        del request
        return Reply(status=404, body=b"<!DOCTYPE html><html><title>Not Found</title></html>", content_type="text/html")

    def wrong_key(self, request: Recorded) -> Reply:
        text = "User not found." if self.given_key(request) else "No auth credentials found"
        return json_reply({"error": {"message": text, "code": 401}}, 401)


@attrs.frozen(kw_only=True)
class OpenRouterModel:
    id: str
    context: int = 131_072
    served_context: int | None = None
    most: int | None = 16_384
    inputs: tuple[str, ...] = ("text",)
    parameters: tuple[str, ...] = ("max_tokens", "temperature", "tools", "tool_choice", "structured_outputs")
    prompt: str = "0.000001"
    completion: str = "0.000002"

    def row(self) -> dict[str, Any]:
        prices = {"prompt": self.prompt, "completion": self.completion, "request": "0", "image": "0"}
        prices |= {"web_search": "0", "internal_reasoning": "0", "input_cache_read": "0.0000001"}
        modality = f"{'+'.join(self.inputs)}->text"
        return {
            "id": self.id,
            "canonical_slug": self.id,
            "hugging_face_id": "",
            "name": self.id,
            "created": 1_754_586_000,
            "description": "A model.",
            "context_length": self.context,
            "architecture": {
                "modality": modality,
                "input_modalities": list(self.inputs),
                "output_modalities": ["text"],
                "tokenizer": "Other",
                "instruct_type": None,
            },
            "pricing": prices,
            "top_provider": {
                "context_length": self.served_context or self.context,
                "max_completion_tokens": self.most,
                "is_moderated": False,
            },
            "per_request_limits": None,
            "supported_parameters": list(self.parameters),
            "default_parameters": {},
        }


class GeminiService(OpenAiService):
    """The OpenAI face of Google's API, and its own list of models beside it, which says what they can do."""

    base = "/v1beta/openai"

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        return {**super().handlers(), ("GET", "/v1beta/models"): lambda _request: json_reply({"models": self.rows})}

    def given_key(self, request: Recorded) -> str | None:
        return request.headers.get("x-goog-api-key") or super().given_key(request)

    def wrong_key(self, request: Recorded) -> Reply:
        del request
        text = "API key not valid. Please pass a valid API key."
        return json_reply({"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}, 400)


class LlamaCppService(OpenAiService):
    """llama-server with one model."""

    def __init__(self, name: str, *, context: int, caps: Mapping[str, bool], vision: bool = False, **more: Any) -> None:
        meta = {"vocab_type": 2, "n_vocab": 151936, "n_ctx_train": 131072, "n_embd": 2048, "n_params": 3, "size": 4}
        super().__init__(openai_rows(name, owner="llamacpp", meta=meta), **more)
        self.props = {
            "default_generation_settings": {"id": 0, "n_ctx": context, "speculative": False, "is_processing": False},
            "total_slots": 1,
            "model_path": f"/models/{name}.gguf",
            "chat_template": "{%- for message in messages %}{{ message.content }}{%- endfor %}",
            "chat_template_caps": dict(caps),
            "modalities": {"vision": vision, "audio": False},
            "build_info": "b6123-0a1b2c3d",
        }

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        names = [
            {"name": row["id"], "model": row["id"], "digest": "", "capabilities": ["completion"]} for row in self.rows
        ]
        both = {"models": names, "object": "list", "data": self.rows}
        return {
            **super().handlers(),
            ("GET", "/v1/models"): lambda _request: json_reply(both),
            ("GET", "/api/tags"): lambda _request: json_reply(both),  # it has a little of Ollama's face
            ("GET", "/props"): lambda _request: json_reply(self.props),
        }

    def unknown(self, request: Recorded) -> Reply:
        del request
        return json_reply({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, 404)

    def wrong_key(self, request: Recorded) -> Reply:
        del request
        return json_reply({"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}, 401)


class LmStudioService(OpenAiService):
    """``rows`` are those of ``/api/v0/models``; OpenAI's list has less. What it does not have it answers with 200."""

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        plain = openai_rows(*(row["id"] for row in self.rows), owner="organization_owner")
        return {
            **super().handlers(),
            ("GET", "/v1/models"): lambda _request: json_reply({"object": "list", "data": plain}),
            ("GET", "/api/v0/models"): lambda _request: json_reply({"object": "list", "data": self.rows}),
        }

    def unknown(self, request: Recorded) -> Reply:
        return json_reply({"error": f"Unexpected endpoint or method. ({request.method} {request.path})"})


def lmstudio_row(name: str, *, loaded: int | None = None, longest: int = 32_768, **more: Any) -> dict[str, Any]:
    state = {"state": "loaded", "loaded_context_length": loaded} if loaded else {"state": "not-loaded"}
    about = {"publisher": "lmstudio-community", "arch": "qwen2", "compatibility_type": "gguf", "quantization": "Q4_K_M"}
    return {"id": name, "object": "model", "type": "llm", **about, **state, "max_context_length": longest, **more}
