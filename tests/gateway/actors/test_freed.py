"""What a closed WebSocket connection leaves behind: nothing that waits for the garbage collection."""

import gc

from klaw.gateway.link import WebSocketLink
from klaw.gateway.session import ClientSession
from tests.support.gateway_world import world
from tests.support.waiting import until


def sessions():
    return [each for each in gc.get_objects() if type(each) in (ClientSession, WebSocketLink)]


async def test_a_closed_connection_is_freed_at_once(tmp_path):
    async with world(tmp_path) as w:
        gc.collect()
        gc.disable()
        of_other_tests = sessions()
        try:
            async with w.client(chats={"main": 0}) as c:
                await c.until("caught_up")
                await c.raw("no frame")
                await c.until("error")
            await until(lambda: len(sessions()) == len(of_other_tests))
        finally:
            gc.enable()
