"""Answers of ``/embeddings`` and ``/rerank`` for the scripted server: vectors and scores of the words that texts share,
whatever the language."""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from tests.support.llm_server import LlmServer, Recorded, Reply, error_reply

DIMENSION = 64
_WORD = re.compile(r"\w{3,}")


def stems(text: str) -> set[str]:
    """The beginnings of a text's words."""
    return {word[:5] for word in _WORD.findall(text.lower())}


def vector(text: str, dimension: int = DIMENSION) -> list[float]:
    """Of length 3 or so, as services that do not normalise have it."""
    made = [0.0] * dimension
    for stem in stems(text) or {text}:
        made[int(hashlib.sha256(stem.encode()).hexdigest(), 16) % dimension] += 3.0
    return made


def json_reply(value: object, **changes: Any) -> Reply:
    return Reply(body=json.dumps(value, ensure_ascii=False).encode(), content_type="application/json", **changes)


def embedded(request: Recorded, dimension: int | None = None) -> dict[str, Any]:
    """What a service says to a request for vectors; the last text's first."""
    wanted = dimension or request.body.get("dimensions", DIMENSION)
    data = [
        {"object": "embedding", "index": index, "embedding": vector(text, wanted)}
        for index, text in enumerate(request.body["input"])
    ]
    tokens = sum(len(text) // 4 + 1 for text in request.body["input"])
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data[::-1], "model": request.body["model"], "usage": usage}


def reranked(request: Recorded) -> dict[str, Any]:
    """What a service says to a request for an order: logits, the best first, as llama.cpp has them."""
    question = stems(request.body["query"])
    results = [
        {"index": index, "relevance_score": 4.0 * len(question & stems(text)) - 7.5}
        for index, text in enumerate(request.body["documents"])
    ]
    results.sort(key=lambda each: -float(each["relevance_score"]))
    return {"model": request.body["model"], "results": results, "usage": {"total_tokens": 40}}


def answer(request: Recorded) -> Reply:
    """A service that has both."""
    if request.path.endswith("/embeddings"):
        return json_reply(embedded(request))
    if request.path.endswith("/rerank"):
        return json_reply(reranked(request))
    return error_reply(404, "not_found", f"no {request.path}")


def asked(server: LlmServer, path: str) -> list[Recorded]:
    """The requests for an address."""
    return [request for request in server.requests if request.path.endswith(path)]


def spoiled(change: Callable[[dict[str, Any]], object]) -> Callable[[Recorded], Reply]:
    """A service whose answers are changed in place; what ``change`` returns, if anything, is sent instead."""

    def respond(request: Recorded) -> Reply:
        said = embedded(request) if request.path.endswith("/embeddings") else reranked(request)
        return json_reply(change(said) or said)

    return respond
