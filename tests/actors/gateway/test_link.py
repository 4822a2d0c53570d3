"""A connection whose peer is gone before the server says goodbye."""

import socket

import trio
from wsproto.connection import Connection, ConnectionType

from klaw.gateway.link import Close, WebSocketLink
from tests.support.waiting import HANG_S


async def test_a_goodbye_that_nobody_can_hear_is_no_error():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours:
        link = WebSocketLink(
            ours,
            Connection(ConnectionType.SERVER),
            "c1",
            messages_per_second=1,
            burst=1,
            capacity=16,
            max_bytes=1024,
            ping_s=60,
        )

        async def body():
            theirs.close()
            link.end(Close.BINARY_FRAME)
            await trio.sleep_forever()

        with trio.fail_after(HANG_S):
            await link.run(body)
    assert link.closing is Close.BINARY_FRAME
