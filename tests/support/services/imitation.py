"""What all imitations share: paths, keys, and the answers that a test prepares.

In a test::

    async with serve_llm(OllamaService(models=(OllamaModel("qwen3:8b"),))) as service:
        service.answers.append(text_reply("Hello"))
        ...  # a client of service.root
        assert service.asked("/api/show")
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.llm_server import LlmServer, Recorded, Reply, Script, text_reply

Handler = Callable[[Recorded], Reply]


def json_reply(value: Any, status: int = 200, **changes: Any) -> Reply:
    return Reply(status=status, body=json.dumps(value).encode(), content_type="application/json", **changes)


def page_reply(status: int = 200) -> Reply:
    """A web page, as a router or a proxy shows one."""
    body = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>Log in</body></html>"
    return Reply(status=status, body=body, content_type="text/html")


class ServiceImitation(LlmServer):
    """``answers`` to questions are used up in order, then ``answer`` makes one for each."""

    lists = True

    def __init__(self, script: Callable[[Recorded], Script] | None = None, *, key: str | None = None) -> None:
        super().__init__(script)
        self.key = key
        self.answers: deque[Reply] = deque()
        self.answer: Callable[[Recorded], Reply] = lambda _request: text_reply("ok")
        self.replaced: dict[str, Reply] = {}
        """Answers in place of the service's own, by path."""
        self.respond = self._respond

    @property
    def root(self) -> str:
        """Its address without a path."""
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str) -> list[Recorded]:
        return [request for request in self.requests if request.path.partition("?")[0] == path]

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        """By method and path."""
        raise NotImplementedError

    def unknown(self, request: Recorded) -> Reply:
        """How it refuses a path that it does not have."""
        raise NotImplementedError

    def wrong_key(self, request: Recorded) -> Reply:
        raise NotImplementedError

    def given_key(self, request: Recorded) -> str | None:
        return request.headers.get("authorization", "").removeprefix("Bearer ") or None

    def is_public(self, path: str) -> bool:
        """Whether a path wants no key."""
        del path
        return False

    def next_answer(self, request: Recorded) -> Reply:
        return self.answers.popleft() if self.answers else self.answer(request)

    def _respond(self, request: Recorded) -> Reply:
        path = request.path.partition("?")[0]
        if path in self.replaced:
            return self.replaced[path]
        handler = self.handlers().get((request.method, path))
        if handler is None:
            return self.unknown(request)
        if self.key is not None and not self.is_public(path) and self.given_key(request) != self.key:
            return self.wrong_key(request)
        return handler(request)
