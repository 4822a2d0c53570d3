"""The stream that hypercorn writes to."""

import pytest
import trio
import trio.testing

from klaw.api.server import _StartedStream


async def test_what_is_sent_while_the_stream_ends_breaks_off():
    ours, theirs = (trio.SocketStream(each) for each in trio.socket.socketpair())
    async with ours, theirs, trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, b"a" * 4_000_000)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BrokenResourceError):
            await _StartedStream(ours, b"").send_all(b"b")
        nursery.cancel_scope.cancel()
