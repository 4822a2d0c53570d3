"""Bodies whose length nobody told: they count like frames of the WebSocket."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from starlette.requests import Request

from klaw.api.request_auth import BODY_S, Api
from klaw.config.schema import GatewayConfig
from klaw.errors import HttpRefusal
from klaw.gateway.connection_limits import UserAllowance


def request(pieces: int, *headers: tuple[bytes, bytes]) -> Request:
    """Whose body comes in pieces of 100 bytes, as fast as it is read."""
    left = pieces

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": b"x" * 100, "more_body": left > 0}

    connection = SimpleNamespace(operator=False, allowance=UserAllowance(8, 8_192, trio.current_time()))
    scope = {"type": "http", "headers": list(headers), "state": {"connection": connection}}
    return Request(scope, receive)


def api() -> Api:
    services: Any = SimpleNamespace(config=GatewayConfig())
    return Api(core=services, services=services, parts=services)


async def test_a_body_in_many_pieces_takes_its_time(autojump_clock: trio.testing.MockClock) -> None:
    """40 frames at once, then 8 a second; both are exact in binary, as a clock that jumps needs."""
    began = trio.current_time()
    assert len(await api().body(request(100, (b"content-length", b"10000")))) == 10_000
    assert trio.current_time() == began
    assert len(await api().body(request(100))) == 10_000
    assert trio.current_time() - began > 4
    with pytest.raises(HttpRefusal) as slow:
        await api().body(request(5_000))
    assert slow.value.status == 408
    assert trio.current_time() - began < 3 * BODY_S
