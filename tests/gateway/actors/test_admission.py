"""Who may come in and how connections begin and end: hello, tokens, origins, limits, shutdown."""

import errno
import socket
from contextlib import AsyncExitStack, suppress

import attrs
import pytest
import trio
from trio_websocket import WebSocketConnection
from wsproto.connection import Connection

from klaw.actor.clock import SystemClock, new_id
from klaw.actor.supervisor import Vitals
from klaw.config.schema import AttachmentsConfig
from klaw.errors import CannotListen, ConfigError
from klaw.gateway.hub import Hub
from klaw.gateway.listener import Gateway
from klaw.gateway.services import Services
from klaw.gateway.tokens import Authenticator, add_token, allow_local, revoke_tokens
from klaw.store.attachments import Attachments
from klaw.toolbox.approvals import Approvals
from tests.support.gateway_world import QUICK, UPGRADE, FakeChats, _Started, world
from tests.support.waiting import HANG_S
from tools.attack_hostile import PING, TEXT, framed

NOW = "2026-11-21T12:00:00.000Z"


async def test_welcome_says_who_one_is_and_what_is_degraded(tmp_path):
    async with world(tmp_path) as w, w.client(hello=False) as c:
        w.chats.degraded = {"no_model": "full text only"}
        welcome = await c.hello(client="test 1")
        assert (welcome["type"], welcome["version"], welcome["user"]) == ("welcome", 2, "local")
        assert welcome["degraded"] == [{"code": "no_model", "text": "full text only"}]
        assert welcome["limits"]["max_frame_bytes"] == 65_536
        report = w.gateway.connections()[0]
        assert (report["id"], report["client"], report["peer"]) == (welcome["session"], "test 1", "loopback")
        await w.gateway.ping()


@pytest.mark.parametrize(
    ("raw", "code", "close"),
    [
        ('{"type": "send", "id": "m1", "chat": "main", "text": "x"}', "hello_first", 4400),
        ("nonsense", "bad_json", 4400),
        ('{"type": "hello"}', "bad_frame", 4400),
        ('{"type": "hello", "version": true}', "bad_frame", 4400),
        ('{"type": "hello", "version": 2, "chats": {"../x": 0}}', "bad_chat", 4400),
        ('{"type": "hello", "version": 2, "chats": {"main": -1}}', "bad_frame", 4400),
        ('{"type": "hello", "version": 1}', "wrong_version", 4406),
        ('{"type": "hello", "version": 2, "token": "wrong"}', "unauthorized", 4401),
        (b"hello", "binary_frame", 1003),
    ],
)
async def test_a_bad_first_frame_gets_its_error_and_close_code(tmp_path, raw, code, close):
    async with world(tmp_path) as w, w.client(hello=False) as c:
        await c.raw(raw)
        assert (await c.hear())["code"] == code
        assert await c.closed() == close


async def test_no_hello_in_time_closes(tmp_path, quick_clock):
    async with world(tmp_path) as w:
        async with w.client(hello=False) as c:
            assert (await c.hear())["code"] == "hello_timeout"
            assert await c.closed() == 4408
        silent = await w.raw_tcp()
        async with silent:
            with trio.fail_after(HANG_S):
                assert await silent.receive_some() == b""


async def test_with_tokens_every_connection_needs_one(tmp_path):
    async with world(tmp_path) as w:
        _, anna = add_token(w.tokens, "anna", NOW)
        _, boris = add_token(w.tokens, "boris", NOW)
        async with w.client(hello=False) as c:
            assert (await c.hello())["code"] == "unauthorized"
            assert await c.closed() == 4401
        async with w.client(hello=False) as c:
            assert (await c.hello(token=anna))["user"] == "anna"
            await c.say("send", id="m1", chat="main", text="mine")
            await c.hear()
        bearer = [(b"Authorization", b"Bearer " + boris.encode())]
        async with w.client(headers=bearer, hello=False) as c:
            assert (await c.hello())["user"] == "boris"
            assert (await c.call("chats_messages", chat="main"))["code"] == "unknown_chat"
        assert await w.upgrade_status((b"Authorization", b"Bearer wrong")) == 401


@pytest.mark.parametrize(("version", "old"), [(1, "client"), (3, "server")])
async def test_another_version_is_told_what_to_update(tmp_path, version, old):
    async with world(tmp_path) as w, w.client(hello=False) as c:
        await c.say("hello", version=version)
        assert (await c.hear())["message"] == f"the server speaks protocol version 2, not {version}: update the {old}"
        assert await c.closed() == 4406


async def test_a_revoked_token_closes_at_the_next_frame(tmp_path):
    async with world(tmp_path) as w:
        _, anna = add_token(w.tokens, "anna", NOW)
        add_token(w.tokens, "boris", NOW)
        async with w.client(token=anna) as sender, w.client(token=anna, chats={"main": 0}) as watcher:
            await watcher.get("status")
            revoke_tokens(w.tokens, "anna")
            w.chats.append("anna", "main", "private")
            assert (await watcher.hear())["code"] == "unauthorized"
            assert await watcher.closed() == 4401
            await sender.say("send", id="m1", chat="main", text="x")
            assert (await sender.hear())["code"] == "unauthorized"
            assert await sender.closed() == 4401
        assert len(w.chats.rows["anna:main"]) == 1


async def test_a_connection_without_token_ends_when_the_first_token_is_made_and_is_told_what_to_do(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        add_token(w.tokens, "anna", NOW)
        await c.say("call", operation="chats_list")
        refused = await c.hear()
        assert refused["code"] == "unauthorized"
        assert "klaw token add local" in refused["message"]
        assert await c.closed() == 4401


async def test_the_revocation_of_the_last_token_opens_nothing(tmp_path):
    async with world(tmp_path) as w:
        token, anna = add_token(w.tokens, "anna", NOW)
        async with w.client(token=anna):
            revoke_tokens(w.tokens, token.id)
        async with w.client(hello=False) as c:
            refused = await c.hello()
            assert refused["code"] == "unauthorized"
            assert "klaw token allow-local" in refused["message"]
            assert await c.closed() == 4401
        allow_local(w.tokens, allowed=True)
        async with w.client() as c:
            allow_local(w.tokens, allowed=False)
            await c.say("call", operation="chats_list")
            assert (await c.hear())["code"] == "unauthorized"


FORWARDED = (
    b"Forwarded", b"X-Forwarded-For", b"X-Forwarded-Host", b"X-Forwarded-Proto", b"X-Real-IP", b"Via",
    b"CF-Connecting-IP", b"True-Client-IP", b"x-client-ip",
)  # fmt: skip


@pytest.mark.parametrize("value", [b"203.0.113.5", b""])
@pytest.mark.parametrize("name", FORWARDED)
async def test_what_a_proxy_passes_on_is_not_from_this_machine_at_any_step(tmp_path, name, value):
    """Neither in the request, nor when hello comes after the last token was revoked and this machine is let in."""
    async with world(tmp_path) as w:
        assert await w.upgrade_status((name, value)) == 401
        token, _ = add_token(w.tokens, "anna", NOW)
        async with w.client(headers=[(name, value)], hello=False) as c:
            revoke_tokens(w.tokens, token.id)
            allow_local(w.tokens, allowed=True)
            assert (await c.hello())["code"] == "unauthorized"
        _, anna = add_token(w.tokens, "anna", NOW)
        async with w.client(headers=[(name, value)], hello=False) as c:
            assert (await c.hello())["code"] == "unauthorized"
        async with w.client(headers=[(name, value)], token=anna), w.client():
            pass


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"Origin", b"https://evil.example")], 403),
        ([(b"Origin", b"null")], 403),
        ([(b"Origin", b"http://127.0.0.1:1")], 403),
        ([(b"X-Forwarded-For", b"203.0.113.5")], 401),
    ],
)
async def test_foreign_pages_and_proxied_peers_are_refused(tmp_path, headers, status):
    async with world(tmp_path) as w:
        assert await w.upgrade_status(*headers) == status


async def test_the_own_page_and_allowed_origins_may_connect(tmp_path):
    config = attrs.evolve(QUICK, allowed_origins=("https://chat.example",))
    async with world(tmp_path, config) as w:
        for origin in (f"http://127.0.0.1:{w.port}", "https://chat.example"):
            async with w.client(headers=[(b"Origin", origin.encode())]):
                pass


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"426"),
        (b"GET /else HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"\x16\x03\x01 no http\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60_000 + b"\r\n\r\n", b"431"),
    ],
)
async def test_what_is_no_websocket_gets_an_http_answer(tmp_path, request_head, status):
    async with world(tmp_path) as w:
        assert (await w.http(request_head)).startswith(b"HTTP/1.1 " + status)
        async with w.client():
            pass


async def test_garbage_after_the_handshake_concerns_that_connection_only(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        stream = await w.raw_tcp()
        async with stream:
            await stream.send_all(UPGRADE)
            await stream.receive_some()
            await stream.send_all(b"\xff" * 200)
            with trio.fail_after(HANG_S):
                while await stream.receive_some():
                    pass
        await c.say("send", id="m1", chat="main", text="x")
        assert (await c.hear())["type"] == "ack"


async def test_connections_over_the_limit_get_503_and_a_freed_place_is_usable(tmp_path):
    async with world(tmp_path, attrs.evolve(QUICK, max_per_address=1)) as w:
        async with w.client():
            assert await w.upgrade_status() == 503
        with trio.fail_after(HANG_S):
            while w.gateway.connections():
                await trio.lowlevel.checkpoint()
        async with w.client():
            pass


async def test_silent_sockets_lock_nobody_out(tmp_path):
    """More of them than there are connections in all, some silent from the first byte, some after the handshake."""
    async with world(tmp_path) as w, w.client() as known, AsyncExitStack() as silent:
        for number in range(QUICK.max_connections + 20):
            stream = await silent.enter_async_context(await w.raw_tcp())
            if number % 2:
                await stream.send_all(UPGRADE)
                with trio.fail_after(HANG_S), suppress(trio.BrokenResourceError):
                    await stream.receive_some()
        async with w.client() as newcomer:
            for number, client in enumerate((known, newcomer)):
                await client.say("send", id=f"m{number}", chat="main", text="x")
                await client.get("ack")
        silent_sessions = [each for each in w.gateway.connections() if each["user"] is None or each["client"] is None]
        assert len(silent_sessions) <= QUICK.max_pending + 2


async def test_a_user_with_too_many_connections_is_told_so_and_others_are_not(tmp_path):
    async with world(tmp_path, attrs.evolve(QUICK, max_per_user=2)) as w:
        _, anna = add_token(w.tokens, "anna", NOW)
        _, boris = add_token(w.tokens, "boris", NOW)
        async with w.client(token=anna), w.client(token=anna) as second:
            async with w.client(hello=False) as c:
                refused = await c.hello(token=anna)
                assert (refused["code"], refused["retryable"]) == ("too_many_connections", True)
                assert await c.closed() == 4429
            async with w.client(token=boris):
                pass
            assert (await second.call("health"))["result"]["state"] == "ok"


async def test_the_frames_of_a_user_are_limited_on_all_connections_together(tmp_path):
    config = attrs.evolve(QUICK, user_messages_per_second=0.001)
    async with world(tmp_path, config) as w, w.client() as one, w.client() as other:
        await one.say("send", id="m1", chat="main", text="x")
        await one.get("ack")
        await other.say("send", id="n1", chat="main", text="x")
        refused = await other.hear()
        assert (refused["code"], refused["id"], refused["retryable"]) == ("rate_limited", "n1", True)
        assert 0 < refused["retry_after_ms"] <= 1_000_000


async def test_a_flood_of_frames_is_read_no_faster_than_it_may_be(tmp_path):
    """Every frame that comes too soon is answered, but the next one is read only after a pause."""
    config = attrs.evolve(QUICK, messages_per_second=4.0, burst=1)
    async with world(tmp_path, config) as w, w.client() as c, trio.open_nursery() as nursery:

        async def flood():
            for _ in range(200):
                await c.say("call", operation="health")

        nursery.start_soon(flood)
        begin = trio.current_time()
        for _ in range(6):
            await c.hear()
        assert trio.current_time() - begin > 0.5, "three of the six had to wait for a place"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flood", [framed(PING, b""), framed(0, b"", fin=False)], ids=["pings", "pieces"])
async def test_frames_that_are_no_messages_are_read_at_a_pace_too(tmp_path, monkeypatch, flood):
    """Counts what the library is given: a flood of tiny frames costs it as much as messages would."""
    given, receive = [], Connection.receive_data

    def counted(ws, data):
        given.append(len(data))
        receive(ws, data)

    monkeypatch.setattr(Connection, "receive_data", counted)
    config = attrs.evolve(QUICK, messages_per_second=20.0, burst=100)
    async with world(tmp_path, config) as w, await w.raw_tcp() as stream, w.client() as other:
        await stream.send_all(UPGRADE)
        await stream.receive_some()
        await stream.send_all(framed(TEXT, b'{"type":"hello","version":2}') + framed(TEXT, b"", fin=False))
        with trio.move_on_after(1.0):
            while True:
                await stream.send_all(flood * 1_000)
        assert (await other.call("health"))["result"]["state"] == "ok"
    assert sum(given) < 20_000, "a second's worth and one reading, of a megabyte and more"


async def test_a_silent_client_is_pinged_and_stays(tmp_path, monkeypatch):
    answer, pings, thrice = WebSocketConnection._handle_ping_event, [], trio.Event()

    async def counted(client, event):
        await answer(client, event)
        pings.append(event)
        if len(pings) == 3:
            thrice.set()

    monkeypatch.setattr(WebSocketConnection, "_handle_ping_event", counted)
    async with world(tmp_path, attrs.evolve(QUICK, ping_s=0.02)) as w, w.client() as c:
        with trio.fail_after(HANG_S):
            await thrice.wait()
        assert (await c.call("health"))["result"]["state"] == "ok"


async def test_a_client_that_answers_no_ping_is_dropped(tmp_path, quick_clock):
    async with world(tmp_path) as w:
        async with await w.raw_tcp() as stream:
            await stream.send_all(UPGRADE)
            await stream.receive_some()
            hello = b'{"type":"hello","version":2}'
            await stream.send_all(bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello)
            with trio.fail_after(HANG_S):
                received = b""
                while data := await stream.receive_some():
                    received += data
        assert b"welcome" in received


async def test_shutdown_says_goodbye_to_everybody_in_bounded_time(tmp_path):
    with trio.fail_after(HANG_S):
        async with world(tmp_path) as w, w.client() as c, await w.raw_tcp():
            w.gateway.mailbox.close("shutdown")
            assert (await c.hear())["code"] == "shutdown"
            assert await c.closed() == 1001
            with pytest.raises(OSError, match="connect"):
                await w.raw_tcp()


async def test_a_hard_cancel_ends_at_once(tmp_path):
    with trio.fail_after(HANG_S), trio.CancelScope() as scope:
        async with world(tmp_path) as w, w.client(chats={"main": 0}):
            scope.cancel()
            await trio.sleep_forever()


async def start(tmp_path, **changes):
    """Start a gateway and stop it as soon as it listens; the address."""
    found = []
    hub = Hub()
    services = Services(
        config=attrs.evolve(QUICK, **changes),
        chats=FakeChats(hub),
        hub=hub,
        auth=Authenticator(tmp_path / "tokens.json"),
        approvals=Approvals(events=hub, clock=SystemClock(), new_id=new_id, wait_s=60, watchers=hub.watchers),
        attachments=Attachments(tmp_path, AttachmentsConfig(), SystemClock()),
        clock=SystemClock(),
        perform=FakeChats(hub).perform,
    )

    def stop(host, port):
        found.append((host, port))
        gateway.mailbox.close("test")

    gateway = Gateway(services, stop)
    await gateway.run(Vitals(SystemClock()), _Started())
    return found[0]


async def test_an_open_address_needs_a_token(tmp_path):
    with pytest.raises(ConfigError, match="klaw token add"):
        await start(tmp_path, host="0.0.0.0")
    add_token(tmp_path / "tokens.json", "anna", NOW)
    assert (await start(tmp_path, host="0.0.0.0"))[0] == "0.0.0.0"


async def test_a_taken_port_is_named(tmp_path):
    async with world(tmp_path) as w:
        with pytest.raises(CannotListen, match=f"gateway.port: cannot listen on .*{w.port}"):
            await start(tmp_path, port=w.port)


async def test_running_out_of_file_descriptors_pauses_the_listener(tmp_path, quick_clock, monkeypatch, log_events):
    accept = socket.socket.accept
    failures = [OSError(code, "no") for code in (errno.EMFILE, errno.ECONNABORTED, errno.EMFILE, errno.EMFILE)]

    def failing(listening):
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", failing)
    async with world(tmp_path) as w, w.client():
        pass
    assert [entry["code"] for entry in log_events if entry["event"] == "accept_failed"] == ["EMFILE"] * 3


async def test_a_connection_lost_during_catch_up_leaves_nothing_behind(tmp_path):
    async with world(tmp_path) as w:
        w.chats.append("local", "main", "x")
        w.chats.read_gate = trio.Event()
        async with w.client(chats={"main": 0}) as c:
            await c.say("watch", chat="other", seq=0)
            with trio.fail_after(HANG_S):
                while not w.chats.reads:
                    await trio.lowlevel.checkpoint()
        with trio.fail_after(HANG_S):
            while w.gateway.connections() or w.hub.watchers("local:main"):
                await trio.lowlevel.checkpoint()


async def test_logs_name_connections_but_hold_no_content(tmp_path, log_events):
    canary = "canary-Жёлудь-7731"
    async with world(tmp_path) as w, w.client(client="test\x1b[31m") as c:
        await c.say("send", id="m1", chat="main", text=canary)
        await c.get("ack")
        await c.raw(canary)
        await c.get("error")
        w.chats.fail_with = RuntimeError(canary)
        await c.say("send", id="m2", chat=canary, text=canary)
        await c.get("error")
    entries = [entry for entry in log_events if entry["event"] == "client_connected"]
    assert entries[0]["client"] == "test[31m"
    assert (entries[0]["connection"], entries[0]["user"]) == ("c1", "local")
    assert "request_failed" in [entry["event"] for entry in log_events]
    assert canary not in repr(log_events)
