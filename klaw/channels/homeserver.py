"""Requests to a Matrix homeserver, and what its refusals mean."""

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2
import trio

from klaw.bounded_body import BoundedBody
from klaw.channels.matrix_events import at, text_at
from klaw.channels.messenger import ChannelError, RefusedByMessenger, TooManyRequests, Unreachable, WrongToken
from klaw.errors import ToolRefused
from klaw.llm.providers.http import client_of, connection_failure, parse_retry_after
from klaw.llm.providers.refusals import error_text, readable, shown

REQUEST_S = 60.0
MAX_ANSWER_BYTES = 64 << 20
UNKNOWN_PAUSE_S = 5.0
_BAD_TOKEN = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED")


class Homeserver:
    """A homeserver, asked with the token of one account. ``code`` of its errors is Matrix's (``M_FORBIDDEN``)."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url.rstrip("/"), token
        self._client = client_of(url, {}, REQUEST_S)

    async def close(self) -> None:
        await self._client.aclose()

    async def find(self) -> None:
        """Learn the homeserver's own address from the domain, if that is what people gave; nobody is shown the token
        before. Raises ChannelError."""
        if not await self.optional("/_matrix/client/versions", is_public=True):
            found = await self.optional("/.well-known/matrix/client", is_public=True)
            address = text_at(found, "m.homeserver", "base_url").rstrip("/")
            if urlsplit(address).scheme not in ("http", "https"):
                raise RefusedByMessenger(f"{self._url} is not the address of a Matrix homeserver")
            await self._client.aclose()
            self._url, self._client = address, client_of(address, {}, REQUEST_S)

    async def optional(self, path: str, **more: Any) -> dict[str, Any]:
        """What a GET brings; empty: it is refused."""
        try:
            return await self.ask("GET", path, **more)
        except RefusedByMessenger:
            return {}

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> dict[str, Any]:
        """The JSON object that a request brings; see ``exchange``."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = readable(bytes(await self.exchange(method, path, content, **more)))
        if not isinstance(answer, dict):
            raise RefusedByMessenger(f"{self._url} does not answer as a Matrix homeserver")
        return answer

    async def exchange(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        media_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        within_s: float = REQUEST_S,
        at_most: int = MAX_ANSWER_BYTES,
        is_public: bool = False,
    ) -> bytearray:
        """The body that a request brings; one that ``is_public`` needs no token. Raises ChannelError;
        RefusedByMessenger, too, if the body has more than ``at_most`` bytes."""
        headers = {"content-type": media_type}
        if not is_public:
            headers["authorization"] = f"Bearer {self._token}"
        opened = self._client.stream(method, self._url + path, content=content, params=params, headers=headers)
        try:
            with trio.move_on_after(within_s):
                async with opened as response:
                    body = BoundedBody(at_most, response.headers.get("content-encoding", ""))
                    is_whole = await body.read(response.aiter_raw())
                if response.status_code != 200:
                    raise self._refusal(response, readable(bytes(body.data)))
                if not is_whole:
                    raise RefusedByMessenger(f"it is larger than {at_most:,} bytes")
                return body.data
        except httpx2.TimeoutException:
            pass
        except (httpx2.TransportError, httpx2.InvalidURL, ToolRefused, UnicodeError) as error:
            raise Unreachable(f"the homeserver {self._url} cannot be reached{connection_failure(error)}") from None
        raise Unreachable(f"the homeserver {self._url} does not answer")

    def _refusal(self, response: httpx2.Response, payload: object) -> ChannelError:
        status, code = response.status_code, text_at(payload, "errcode")
        if status == 429:
            asked_s = parse_retry_after(response.headers.get("retry-after"), time.time())
            return TooManyRequests(at(payload, "retry_after_ms", of=int) / 1000 or asked_s or UNKNOWN_PAUSE_S)
        words = shown(error_text(payload), [self._token])
        text = f"the homeserver answered {status}: {' '.join(filter(None, (code, words)))}".rstrip(": ")
        kind = WrongToken if code in _BAD_TOKEN else Unreachable if status >= 500 else RefusedByMessenger
        error = kind(text)
        error.code = code
        return error
