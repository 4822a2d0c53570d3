"""Operations over the WebSocket: who asks, and what a call may cost."""

import json
from contextlib import suppress

import attrs
import trio
from trio_websocket import ConnectionClosed

from klaw.errors import StorageError
from klaw.gateway import requests
from klaw.gateway.tokens import add_token
from klaw.operations.operation import OperationError
from klaw.wire.frames import MAX_RESULT_CHARS
from tests.support.gateway_world import QUICK, world
from tests.support.waiting import until

NOW = "2026-11-21T12:00:00.000Z"


async def test_an_operation_is_carried_out_for_the_user_of_the_token(tmp_path):
    async with world(tmp_path) as w:
        _, anna = add_token(w.tokens, "anna", NOW)
        _, boss = add_token(w.tokens, "boss", NOW, operator=True)
        for token, user, operator in ((anna, "anna", False), (boss, "boss", True)):
            async with w.client(token=token) as c:
                told = await c.call("health", ref="r1")
                assert told == {
                    "type": "result", "ref": "r1", "result": {"state": "ok", "user": user, "operator": operator}
                }  # fmt: skip


async def test_an_error_names_the_arguments_and_quotes_nothing(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        told = await c.call("chats_messages", chat="main", limit="secret", before="secret")
        assert (told["type"], told["code"]) == ("error", "bad_args")
        assert {each["field"] for each in told["errors"]} == {"limit", "before"}
        assert "secret" not in json.dumps(told)

        async def fail():
            await trio.lowlevel.checkpoint()
            raise StorageError("the disk is broken")

        w.chats.answer = fail
        told = await c.call("chats_list")
        assert (told["code"], told["retryable"]) == ("storage", True)


async def test_a_slow_call_stops_neither_frames_nor_other_calls_and_ends_with_the_connection(tmp_path):
    ended = trio.Event()
    async with world(tmp_path) as w:

        async def slow():
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

        w.chats.answer = slow
        async with w.client() as c:
            await c.say("call", operation="chats_list", ref="slow")
            await c.say("send", id="m1", chat="main", text="x")
            assert (await c.get("ack"))["id"] == "m1"
            assert (await c.call("health"))["result"]["state"] == "ok"
        await ended.wait()


async def test_calls_that_wait_are_bounded(tmp_path):
    go = trio.Event()
    async with world(tmp_path) as w, w.client() as c:

        async def slow():
            await go.wait()
            return {}

        w.chats.answer = slow
        for number in range(requests.MAX_REQUESTS):
            await c.say("call", operation="chats_list", ref=f"r{number}")
        refused = await c.call("health")
        assert (refused["code"], refused["retryable"]) == ("busy", True)
        assert str(requests.MAX_REQUESTS) in refused["message"]
        go.set()
        assert {(await c.hear())["type"] for _ in range(requests.MAX_REQUESTS)} == {"result"}
        assert (await c.call("health"))["type"] == "result"


async def test_a_call_has_the_deadline_of_its_operation(tmp_path, quick_clock):
    async with world(tmp_path) as w, w.client() as c:
        w.chats.answer = trio.sleep_forever
        told = await c.call("chats_list")
        assert (told["code"], told["retryable"]) == ("too_slow", True)


async def test_a_result_that_is_too_long_is_refused_and_long_ones_wait_for_a_reader(tmp_path):
    async with world(tmp_path) as w, w.client() as c:

        async def much():
            await trio.lowlevel.checkpoint()
            return {"text": "x" * MAX_RESULT_CHARS}

        w.chats.answer = much
        told = await c.call("chats_list")
        assert told["code"] == "result_too_large"
        assert f"{MAX_RESULT_CHARS:,}" in told["message"]

        async def page():
            await trio.lowlevel.checkpoint()
            return {"text": "x" * 1_000_000}

        w.chats.answer = page
        for number in range(5):  # together more than the outbox holds
            await c.say("call", operation="chats_list", ref=str(number))
        assert {(await c.hear())["ref"] for _ in range(5)} == {"0", "1", "2", "3", "4"}


async def test_calls_count_as_frames(tmp_path):
    config = attrs.evolve(QUICK, messages_per_second=0.001, burst=2)
    async with world(tmp_path, config) as w, w.client() as c:
        assert (await c.call("health"))["type"] == "result"
        assert (await c.call("health"))["type"] == "result"
        assert (await c.call("health"))["code"] == "rate_limited"


def test_an_error_of_the_operation_is_told_as_it_is():
    from klaw.gateway.answers import error_frame

    frame = error_frame(OperationError("unknown_fact", "there is no such fact", field="fact"))
    assert (frame.code, frame.message, frame.errors[0].field) == ("unknown_fact", "fact: there is no such fact", "fact")


async def test_a_client_that_asks_and_does_not_read_is_not_read_either(tmp_path):
    """Otherwise it is dropped and comes again, which costs the others more."""
    count = 5_000
    config = attrs.evolve(QUICK, outbox_frames=16)
    async with world(tmp_path, config) as w, w.slow_client() as c, trio.open_nursery() as nursery:

        async def ask():
            for number in range(count):
                await c.say("approve", id="no such question", allow=False, ref=str(number))

        nursery.start_soon(ask)
        taken = -1
        while taken != w.gateway.connections()[0]["frames_in"]:
            taken = w.gateway.connections()[0]["frames_in"]
            await trio.sleep(0.3)
        assert taken < count
        assert [(await c.hear())["ref"] for _ in range(count)] == [str(number) for number in range(count)]


async def test_the_end_of_a_client_that_did_not_read_is_noticed(tmp_path):
    """Not only when a ping has had no answer: until then it would keep its place among the user's connections."""
    config = attrs.evolve(QUICK, outbox_frames=16, ping_s=1_000.0)
    async with world(tmp_path, config) as w:
        async with w.slow_client() as c, trio.open_nursery() as nursery:

            async def ask():
                with suppress(ConnectionClosed):
                    while True:
                        await c.say("approve", id="no such question", allow=False)

            nursery.start_soon(ask)
            await until(lambda: w.gateway.connections()[0]["outbox"] >= 8)
            await trio.aclose_forcefully(c.ws._stream)
            nursery.cancel_scope.cancel()
        await until(lambda: not w.gateway.connections())
