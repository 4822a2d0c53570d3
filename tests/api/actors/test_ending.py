"""The end of an HTTP connection."""

import trio
import trio.testing

from klaw.api.server import _StartedStream
from klaw.gateway.handshake import linger
from tests.support.waiting import HANG_S


async def test_a_connection_that_is_still_sending_may_end():
    """26.A5: hypercorn does not wait for what it sends before it ends a connection."""
    ours, theirs = trio.socket.socketpair()
    stream = _StartedStream(trio.SocketStream(ours), b"")
    with theirs, trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, bytes(10_000_000))
            await trio.testing.wait_all_tasks_blocked()
            await linger(stream)
            nursery.cancel_scope.cancel(reason="the connection has ended")
    await stream.aclose()
