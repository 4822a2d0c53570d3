"""The client's promises over real connections that break: everything once, in order, and nothing sent twice."""

import random

import pytest
import trio

from klaw.actor.backoff import Backoff
from klaw.client.client import Client
from klaw.client.connection import connect
from klaw.client.streams import CAPACITY, ConnectedEvent, DisconnectedEvent, Event
from klaw.errors import ClientClosed, ConnectionLost, InvalidName, RequestRefused, ServerRefused, ServerUnreachable
from klaw.wire.frames import Delta, Error, MessageFrame, Notice, Status, Stop
from tests.support.programs.fake_server import FakeServer, Link
from tests.support.waiting import HANG_S, until

FAST = Backoff(0.001, 0.005)


async def take(client: Client, count: int) -> list[MessageFrame]:
    """The next ``count`` entries."""
    entries: list[MessageFrame] = []
    with trio.fail_after(HANG_S):
        while len(entries) < count:
            event = await client.next_event()
            if isinstance(event, MessageFrame):
                entries.append(event)
    return entries


async def next_of(client: Client, kind: type[Event]) -> Event:
    with trio.fail_after(HANG_S):
        while not isinstance(event := await client.next_event(), kind):
            pass
    return event


async def test_a_send_returns_its_seq_and_is_seen_as_an_entry() -> None:
    async with FakeServer().serving() as server, connect(server.url) as client:
        assert await client.send("main", "Привет!") == 1
        (entry,) = await take(client, 1)
        assert (entry.seq, entry.role, entry.content) == (1, "user", "Привет!")


async def test_resume_gives_what_was_missed_and_then_what_comes() -> None:
    server = FakeServer()
    for number in range(5):
        server.store("main", "assistant", f"old {number}")
    async with server.serving(), connect(server.url, chats={"main": 3}) as client:
        assert [entry.seq for entry in await take(client, 2)] == [4, 5]
        await server.say("main", "assistant", "новое")
        assert [(entry.seq, bool(entry.replayed)) for entry in await take(client, 1)] == [(6, False)]


async def test_everything_once_and_in_order_when_connections_break_at_any_frame() -> None:
    """resume: 20 runs with connections that live for a random number of frames."""
    for seed in range(20):
        chance = random.Random(seed)
        server = FakeServer()
        server.frame_budget = lambda chance=chance: chance.randint(3, 9)

        async def answer(link: Link, frame: object, seq: int, server: FakeServer = server) -> None:
            if seq % 3 == 0:
                await server.say("main", "assistant", f"answer to {seq}")

        server.after_send = answer
        sent = [f"сообщение {number}" for number in range(12)]
        async with server.serving(), connect(server.url, chats={"main": 0}, backoff=FAST) as client:

            async def send_all(client: Client = client, sent: list[str] = sent) -> None:
                for text in sent:
                    await client.send("main", text)

            with trio.fail_after(HANG_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(send_all)
                    entries = await take(client, 12)
                while len(entries) < len(server.chats["main"]):
                    entries += await take(client, 1)
        assert [entry.seq for entry in entries] == list(range(1, len(server.chats["main"]) + 1))
        assert [entry.content for entry in entries] == [each.content for each in server.chats["main"]]
        stored = [each.content for each in server.chats["main"] if each.role == "user"]
        assert stored == sent


async def test_a_send_whose_ack_was_lost_is_sent_again_with_its_id() -> None:
    server = FakeServer()

    async def lose_first_ack(link: Link, frame: object) -> bool:
        if len(server.sends) == 1:
            server.store("main", "user", "hello", id=server.sends[0].id)
            await link.cut()
            return True
        return False

    server.on_send = lose_first_ack
    async with server.serving(), connect(server.url, chats={"main": 0}, backoff=FAST) as client:
        with trio.fail_after(HANG_S):
            assert await client.send("main", "hello", "my-id") == 1
        assert [entry.id for entry in await take(client, 1)] == ["my-id"]
    assert [frame.id for frame in server.sends] == ["my-id", "my-id"]
    assert len(server.chats["main"]) == 1


async def test_unacked_sends_keep_their_order_over_a_reconnect() -> None:
    server = FakeServer()
    seen: list[str] = []

    async def swallow(link: Link, frame: object) -> bool:
        seen.append(server.sends[-1].text)
        return len(server.hellos) == 1

    server.on_send = swallow
    async with server.serving(), connect(server.url, backoff=FAST) as client, trio.open_nursery() as nursery:
        for text in "abc":
            nursery.start_soon(client.send, "main", text)
            await until(lambda text=text: text in seen)
        await server.cut_all()
        assert [entry.content for entry in await take(client, 3)] == ["a", "b", "c"]


async def test_a_cancelled_send_is_not_sent_again() -> None:
    server = FakeServer()

    async def swallow(link: Link, frame: object) -> bool:
        return True

    server.on_send = swallow
    async with server.serving(), connect(server.url, backoff=FAST) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, "main", "x")
            await until(lambda: len(server.sends) == 1)
            nursery.cancel_scope.cancel()
        await server.cut_all()
        await next_of(client, DisconnectedEvent)
        await next_of(client, ConnectedEvent)
        server.on_send = None
        await client.send("main", "y")
        assert [frame.text for frame in server.sends] == ["x", "y"]


async def test_a_lost_frame_is_asked_for() -> None:
    """A gap in the seqs is filled from the history, in order."""
    server = FakeServer()
    async with server.serving(), connect(server.url, chats={"main": 0}) as client:
        await next_of(client, Status)
        server.hide = {1, 2}
        for text in ("a", "b", "c"):
            await server.say("main", "assistant", text)
        assert [entry.content for entry in await take(client, 3)] == ["a", "b", "c"]


async def test_a_consumer_that_does_not_read_loses_no_message_and_blocks_no_ack() -> None:
    """The reader never waits for the consumer; what had no room is fetched when there is some."""
    server = FakeServer()
    async with server.serving(), connect(server.url, chats={"main": 0}) as client:
        total = CAPACITY * 2 + 7
        for number in range(total):
            await server.say("main", "assistant", str(number))
            if number % 3 == 0:
                await server.tell(Delta(chat="main", turn="t", offset=number, text="x"), "main")
        with trio.fail_after(HANG_S):
            assert await client.send("main", "still there?") == total + 1
        entries = await take(client, total + 1)
        assert [entry.seq for entry in entries] == list(range(1, total + 2))


async def test_a_repeated_ack_after_the_replayed_message_is_no_second_entry() -> None:
    server = FakeServer()
    async with server.serving(), connect(server.url, chats={"main": 0}) as client:
        assert await client.send("main", "one", "same") == 1
        assert await client.send("main", "one", "same") == 1
        await server.say("main", "assistant", "two")
        assert [entry.seq for entry in await take(client, 2)] == [1, 2]


async def test_a_message_whose_sender_gave_up_is_seen_with_its_text() -> None:
    """Its acknowledgement comes when nobody knows the text any more."""
    server, sent, gave_up = FakeServer(), trio.Event(), trio.Event()

    async def answer_late(link: Link, frame: object) -> bool:
        sent.set()
        await gave_up.wait()
        return False

    server.on_send = answer_late
    async with server.serving(), connect(server.url, chats={"main": 0}) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.send, "main", "said in haste", "mine")
        await sent.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(HANG_S):
            await trio.testing.wait_all_tasks_blocked()
            gave_up.set()
            (entry,) = await take(client, 1)
        assert (entry.seq, entry.id, entry.content) == (1, "mine", "said in haste")


async def test_a_server_with_older_data_is_followed_from_where_it_is() -> None:
    server = FakeServer()
    server.store("main", "user", "only one")
    async with server.serving(), connect(server.url, chats={"main": 9}) as client:
        notice = await next_of(client, Notice)
        assert notice.code == "server_behind"
        await server.say("main", "assistant", "second")
        assert [entry.seq for entry in await take(client, 1)] == [2]


async def test_refusals_become_exceptions_with_code() -> None:
    server = FakeServer()

    async def refuse(link: Link, frame: object) -> bool:
        id_ = server.sends[-1].id
        await link.give(Error(code="rate_limited", message="too fast", id=id_, retryable=True, retry_after_ms=50))
        return True

    server.on_send = refuse
    async with server.serving(), connect(server.url) as client:
        with pytest.raises(RequestRefused) as refused:
            await client.send("main", "x")
        assert (refused.value.code, refused.value.retryable, refused.value.retry_after_ms) == ("rate_limited", True, 50)
        with pytest.raises(RequestRefused, match="too long"):
            await client.send("main", "я" * 40_000)
        with pytest.raises(InvalidName):
            await client.send("../x", "hi")
        assert len(server.sends) == 1


async def test_a_message_that_has_become_too_long_is_given_back() -> None:
    """26.A6: each connection would be closed for it."""
    server = FakeServer()

    async def take_less(link: Link, frame: object) -> bool:
        if server.max_frame_bytes > 500:
            server.max_frame_bytes = 500
            await link.cut()
            return True
        return False

    server.on_send = take_less
    async with server.serving(), connect(server.url, backoff=FAST) as client:
        with trio.fail_after(HANG_S):
            with pytest.raises(RequestRefused, match="too long: at most 500 bytes"):
                await client.send("main", "x" * 1_000)
            assert await client.send("main", "hello") == 1


async def test_a_request_fails_with_its_connection() -> None:
    server = FakeServer()
    async with server.serving(), connect(server.url, backoff=Backoff(30, 30)) as client:
        assert await client.call("health") == {"state": "idle"}
        server.frame_budget = lambda: 0
        server.links[0].frames_left = 0
        with pytest.raises(ConnectionLost):
            await client.call("health")
        with pytest.raises(ConnectionLost):
            client.post(Stop(chat="main"))


async def test_no_server_is_said_at_once() -> None:
    server = FakeServer()
    async with server.serving():
        pass
    with pytest.raises(ServerUnreachable):
        async with connect(server.url):
            pass


async def test_a_patient_client_waits_for_the_server() -> None:
    server = FakeServer()
    async with server.serving():
        pass
    async with trio.open_nursery() as nursery:

        async def talk() -> None:
            async with connect(server.url, first_s=HANG_S, backoff=FAST) as client:
                assert await client.send("main", "hi") == 1
            nursery.cancel_scope.cancel()

        nursery.start_soon(talk)
        await trio.testing.wait_all_tasks_blocked()
        async with server.serving():
            await trio.sleep_forever()


async def test_a_server_that_does_not_come_back_ends_everything() -> None:
    server = FakeServer()
    async with trio.open_nursery() as nursery:
        up = trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            with up:
                async with server.serving():
                    task_status.started()
                    await trio.sleep_forever()

        await nursery.start(serve)
        async with connect(server.url, again_s=0.02, backoff=FAST) as client:
            up.cancel()
            with pytest.raises(ServerUnreachable):
                await client.send("main", "x")
            with pytest.raises(ServerUnreachable):
                await take(client, 1)


async def test_a_refused_token_is_final() -> None:
    server = FakeServer()

    async def refuse(link: Link, hello: object) -> bool:
        await link.give(Error(code="unauthorized", message="no such token"))
        await link.websocket.aclose(4401, "unauthorized")
        return True

    server.on_hello = refuse
    async with server.serving():
        with pytest.raises(ServerRefused) as refused:
            async with connect(server.url, token="wrong", first_s=HANG_S):
                pass
    assert refused.value.code == "unauthorized"
    assert len(server.hellos) == 1
    assert server.hellos[0].token == "wrong"


async def test_a_revoked_token_ends_a_running_client() -> None:
    async with FakeServer().serving() as server, connect(server.url, backoff=FAST) as client:
        await until(lambda: server.links)
        await server.links[0].give(Error(code="unauthorized", message="the token was revoked"))
        await server.links[0].websocket.aclose(4401, "unauthorized")
        with pytest.raises(ServerRefused, match="revoked"):
            await take(client, 1)


async def test_something_else_on_the_port_is_no_klaw() -> None:
    server = FakeServer()

    async def chatter(link: Link, hello: object) -> bool:
        await link.websocket.send_message("hello, I am something else")
        return True

    server.on_hello = chatter
    async with server.serving():
        with pytest.raises(ServerRefused) as refused:
            async with connect(server.url):
                pass
    assert refused.value.code == "not_klaw"


async def test_leaving_closes_politely_and_fails_who_still_waits() -> None:
    server = FakeServer()
    closed: list[int] = []
    async with server.serving(), trio.open_nursery() as nursery:
        failed = trio.Event()
        async with connect(server.url) as client:

            async def wait(client: Client = client) -> None:
                with pytest.raises(ClientClosed):
                    await take(client, 1)
                failed.set()

            nursery.start_soon(wait)
            await until(lambda: server.links)
            websocket = server.links[0].websocket
        await until(lambda: websocket.closed is not None)
        closed.append(websocket.closed.code)
        with trio.fail_after(HANG_S):
            await failed.wait()
    assert closed == [1000]


async def test_an_error_of_the_body_comes_out_as_itself() -> None:
    async with FakeServer().serving() as server:
        with pytest.raises(KeyError, match="mine"):
            async with connect(server.url):
                raise KeyError("mine")


@pytest.mark.parametrize("url", ["http://localhost/ws", "ws://", "nonsense", "ws://localhost:0/"])
async def test_a_wrong_url_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match="looks like"):
        async with connect(url):
            pass
