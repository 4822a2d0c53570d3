"""A WebSocket as the gateway sees it: its end, and its share of the event loop."""

import socket

import trio
from wsproto.connection import Connection, ConnectionType

from klaw.gateway.link import Close, WebSocketLink
from tests.support.gateway_world import QUICK
from tests.support.waiting import HANG_S
from tools.attack_hostile import framed


def _link(ours: socket.socket) -> WebSocketLink:
    ours.setblocking(False)
    return WebSocketLink(ours, Connection(ConnectionType.SERVER), "c1", QUICK)


async def test_messages_that_came_together_are_taken_in_turn_with_other_work():
    """26.A: a connection that sends many frames at once does not make the others wait for all of them."""
    ours, theirs = socket.socketpair()
    count, turns = 20, 0
    with ours, theirs:
        theirs.send(b"".join(framed(1, b"{}") for _ in range(count)))
        link = _link(ours)

        async def others():
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async def body():
            for _ in range(count):
                await link.receive()

        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(others)
                await link.run(body)
                nursery.cancel_scope.cancel()
    assert turns >= count


async def test_a_goodbye_that_nobody_can_hear_is_no_error():
    ours, theirs = socket.socketpair()
    with ours:
        link = _link(ours)

        async def body():
            theirs.close()
            link.end(Close.BINARY_FRAME)
            await trio.sleep_forever()

        with trio.fail_after(HANG_S):
            await link.run(body)
    assert link.closing is Close.BINARY_FRAME
