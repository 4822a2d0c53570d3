"""Sending, acknowledgements and what the server refuses, over real WebSockets."""

import json

import attrs
import pytest
import trio

from klaw.domain.names import LOCAL_USER
from klaw.errors import ActorStopped, ChatBusy, StorageFull, TooManyChats
from klaw.gateway import requests
from tests.support.gateway_world import QUICK, world
from tests.support.waiting import HANG_S


async def test_a_message_is_acknowledged_with_its_seq_and_kept_as_it_was(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        text = "  Привет, мир! 👋\nhow are you?  "
        await c.say("send", id="m1", chat="main", text=text)
        assert await c.hear() == {"type": "ack", "id": "m1", "chat": "main", "seq": 1}
        assert w.chats.rows["local:main"][0].content == text


async def test_a_repeated_id_gets_the_same_ack_and_no_second_row(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        for _ in range(2):
            await c.say("send", id="m1", chat="main", text="x")
            assert await c.hear() == {"type": "ack", "id": "m1", "chat": "main", "seq": 1}
        assert len(w.chats.rows["local:main"]) == 1


async def test_an_id_used_in_another_chat_is_a_conflict(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        await c.say("send", id="m1", chat="one", text="x")
        await c.hear()
        await c.say("send", id="m1", chat="two", text="x")
        error = await c.hear()
        assert (error["code"], error["id"], error["chat"], error["retryable"]) == ("id_conflict", "m1", "two", False)


async def test_many_sends_are_stored_and_acknowledged_in_order(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        for number in range(100):
            await c.say("send", id=f"m{number}", chat="main", text=str(number))
        acks = [await c.hear() for _ in range(100)]
        assert [(ack["id"], ack["seq"]) for ack in acks] == [(f"m{n}", n + 1) for n in range(100)]


async def test_too_many_in_flight_is_busy_and_nothing_is_lost(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        w.chats.gate = trio.Event()
        for number in range(requests.MAX_IN_FLIGHT + 1):
            await c.say("send", id=f"m{number}", chat="main", text="x")
        error = await c.hear()
        assert (error["code"], error["retryable"]) == ("busy", True)
        assert error["id"] == f"m{requests.MAX_IN_FLIGHT}"
        w.chats.gate.set()
        acks = [await c.hear() for _ in range(requests.MAX_IN_FLIGHT)]
        assert {ack["type"] for ack in acks} == {"ack"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageFull("x"), "storage_full"),
        (TooManyChats("x"), "too_many_chats"),
        (ChatBusy("x"), "busy"),
        (ActorStopped("x"), "unavailable"),
        (RuntimeError("secret text"), "internal"),
    ],
)
async def test_each_failure_has_its_code_and_the_connection_lives(tmp_path, error, code):
    async with world(tmp_path) as w, w.client() as c:
        w.chats.fail_with = error
        await c.say("send", id="m1", chat="main", text="x")
        frame = await c.hear()
        assert (frame["type"], frame["code"], frame["id"]) == ("error", code, "m1")
        assert "secret" not in json.dumps(frame)
        w.chats.fail_with = None
        await c.say("send", id="m1", chat="main", text="x")
        assert (await c.hear())["type"] == "ack"


BAD = [
    ("not json", "bad_json"),
    ('{"type": "send", "id": NaN}', "bad_json"),
    ("[" * 50_000, "bad_json"),
    ("[1]", "bad_frame"),
    ('"text"', "bad_frame"),
    ("{}", "bad_frame"),
    ('{"type": 5}', "bad_frame"),
    ('{"type": "nonsense"}', "unknown_type"),
    ('{"type": "welcome"}', "unknown_type"),
    ('{"type": "send", "id": "m1", "chat": "main"}', "bad_frame"),
    ('{"type": "send", "id": "m1", "chat": "main", "text": 5}', "bad_frame"),
    ('{"type": "send", "id": "m1", "chat": "main", "text": ""}', "empty_text"),
    ('{"type": "send", "id": "m1", "chat": "main", "text": " \\n\\t "}', "empty_text"),
    ('{"type": "send", "id": "m1", "chat": "main", "text": "a\\u0000b"}', "bad_text"),
    ('{"type": "send", "id": "m1", "chat": "main", "text": "a\\ud800b"}', "bad_text"),
    ('{"type": "send", "id": "m1", "chat": "../x", "text": "x"}', "bad_chat"),
    ('{"type": "send", "id": "m1", "chat": "", "text": "x"}', "bad_chat"),
    ('{"type": "send", "id": "-", "chat": "main", "text": "x"}', "bad_id"),
    ('{"type": "stop", "chat": "nowhere"}', "unknown_chat"),
    ('{"type": "history", "chat": "main"}', "unknown_type"),
    ('{"type": "call"}', "bad_frame"),
    ('{"type": "call", "operation": 5}', "bad_frame"),
    ('{"type": "call", "operation": "health", "args": []}', "bad_frame"),
    ('{"type": "call", "operation": "nonsense"}', "unknown_operation"),
    ('{"type": "call", "operation": "chat_context"}', "unknown_operation"),
    ('{"type": "call", "operation": "health", "args": {"x": 1}}', "bad_args"),
    ('{"type": "call", "operation": "chats_messages", "args": {"chat": "nowhere"}}', "unknown_chat"),
    ('{"type": "call", "operation": "chats_messages", "args": {"chat": "main", "limit": 201}}', "bad_args"),
    ('{"type": "call", "operation": "chats_messages", "args": {"chat": "main", "limit": 1.0}}', "bad_args"),
    ('{"type": "call", "operation": "chats_messages", "args": {"chat": "main", "before": 1e99}}', "bad_args"),
    ('{"type": "call", "operation": "chats_messages", "args": {"chat": "main", "before": 1, "after": 1}}', "bad_args"),
    ('{"type": "hello", "version": 2}', "hello_again"),
]


@pytest.mark.parametrize(("raw", "code"), BAD)
async def test_bad_input_gets_its_error_and_the_connection_lives(tmp_path, raw, code):
    async with world(tmp_path) as w, w.client() as c:
        w.chats.append(LOCAL_USER, "main", "x")
        await c.raw(raw)
        assert (await c.hear())["code"] == code
        assert (await c.call("health"))["result"]["state"] == "ok"


async def test_errors_carry_the_marks_of_the_frame(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        await c.say("stop", chat="nowhere", ref="r1")
        error = await c.hear()
        assert (error["ref"], error["chat"]) == ("r1", "nowhere")
        await c.say("watch", chat="nowhere", seq="5", ref="r2")
        assert (await c.hear())["ref"] == "r2"
        await c.say("send", id="m7", chat="main", text="")
        assert (await c.hear())["id"] == "m7"


async def test_a_binary_frame_is_refused_and_closes_with_1003(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        await c.raw(b"\x00\x01")
        assert (await c.hear())["code"] == "binary_frame"
        assert await c.closed() == 1003


async def test_the_frame_limit_counts_bytes(tmp_path):
    async with world(tmp_path) as w:
        limit = QUICK.max_frame_bytes
        empty = len(json.dumps({"type": "send", "id": "m1", "chat": "main", "text": ""}))
        async with w.client() as c:
            await c.say("send", id="m1", chat="main", text="x" * (limit - empty))
            assert (await c.hear())["type"] == "ack"
            await c.raw(
                json.dumps({"type": "send", "id": "m2", "chat": "main", "text": "я" * 33_000}, ensure_ascii=False)
            )
            assert (await c.hear())["code"] == "frame_too_large"
            assert await c.closed() == 1009
        async with w.client() as c:
            await c.say("send", id="m3", chat="main", text="x" * 2_000_000)
            assert await c.closed() == 1009
        assert len(w.chats.rows["local:main"]) == 1


async def test_too_many_messages_a_second_are_refused_and_not_stored(tmp_path):
    config = attrs.evolve(QUICK, messages_per_second=0.001, burst=5)
    async with world(tmp_path, config) as w, w.client() as c:
        for number in range(8):
            await c.say("send", id=f"m{number}", chat="main", text="x")
        heard = [await c.hear() for _ in range(8)]
        limited = [frame for frame in heard if frame["type"] == "error"]
        assert {frame["code"] for frame in limited} == {"rate_limited"}
        assert [frame["id"] for frame in limited] == ["m5", "m6", "m7"]
        assert all(frame["retry_after_ms"] > 0 and frame["retryable"] for frame in limited)
        assert len(w.chats.rows["local:main"]) == 5


async def test_a_closed_connection_leaves_no_watch_behind_and_a_repeated_send_is_safe(tmp_path):
    async with world(tmp_path) as w:
        w.chats.gate = trio.Event()
        async with w.client() as c:
            await c.say("send", id="m1", chat="main", text="x")
            with trio.fail_after(HANG_S):
                while w.hub.watchers("local:main") == 0:
                    await trio.lowlevel.checkpoint()
        with trio.fail_after(HANG_S):
            while w.hub.watchers("local:main") or w.gateway.connections():
                await trio.lowlevel.checkpoint()
        w.chats.gate.set()
        async with w.client() as c:
            await c.say("send", id="m1", chat="main", text="x")
            assert (await c.hear())["type"] == "ack"
