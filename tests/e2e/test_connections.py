"""Many connections over HTTP: short ones, kept-alive ones, many at once. They lock nobody out (26.A1, A4, A5)."""

import json
import socket
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection

import openai
import pytest
import trio
from websockets.sync.client import connect

from klaw.config.schema import GatewayConfig
from tests.e2e.test_http import http, token_for
from tests.e2e.test_http_attacks import all_of, answer_of, head, raw
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S

DEFAULTS = {
    name: getattr(GatewayConfig(), attribute)
    for name, attribute in {
        "maxConnections": "max_connections", "maxPending": "max_pending", "maxPerUser": "max_per_user",
        "maxPerAddress": "max_per_address", "connectsPerSecond": "connects_per_second",
        "userMessagesPerSecond": "user_messages_per_second",
    }.items()
}  # fmt: skip
in_thread = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(100))


@pytest.fixture
async def server(tmp_path):
    async with serve_llm() as llm:
        llm.respond = lambda request: text_reply("You said: ", request.last_user)
        async with served(write_home(tmp_path, llm=llm.url, gateway=DEFAULTS)) as running:
            yield running


def ask(server, token, sock=None):
    """GET a list on a connection of its own; the status. It is closed after the answer, unless given."""
    connection = HTTPConnection("127.0.0.1", server.config["gateway"]["port"], timeout=HANG_S)
    connection.sock = sock
    connection.request("GET", "/api/v1/facts?limit=1", headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    response.read()
    if sock is None:
        connection.close()
    return response.status


async def test_short_connections_of_two_users_are_all_answered_and_leave_nothing_behind(server):
    tokens = [token_for(server, user)[1] for user in ("anna", "boris")]
    most = 2 * DEFAULTS["maxPerUser"]

    def short():
        return {ask(server, token) for _ in range(most) for token in tokens}

    assert await in_thread(short) == {200}
    assert (await server.status_when(lambda status: status["http_connections"] == 0))["connections"] == 0


async def test_kept_alive_connections_give_way_and_are_counted(server):
    """As many as there are places in all, and then some; a third user is served over HTTP and WebSocket."""
    tokens = [token_for(server, user)[1] for user in ("anna", "boris")]
    clara = token_for(server, "clara")[1]
    address = ("127.0.0.1", server.config["gateway"]["port"])

    def keep(stack, count):
        return {
            ask(server, token, stack.enter_context(socket.create_connection(address)))
            for _ in range(count)
            for token in tokens
        }

    with ExitStack() as kept:
        assert await in_thread(keep, kept, DEFAULTS["maxConnections"]) == {200}
        assert await in_thread(ask, server, clara) == 200
        status = await server.status_when(lambda status: status["http_connections"] > 0)
        assert status["http_connections"] <= DEFAULTS["maxConnections"]
    await server.status_when(lambda status: status["http_connections"] == 0)


async def test_users_who_hold_all_their_places_leave_some_to_others(server):
    """Two users with 64 WebSockets each, from one address: a third is served over HTTP and WebSocket."""
    tokens = [token_for(server, user)[1] for user in ("anna", "boris", "clara")]

    def log_in(stack, token):
        ws = stack.enter_context(connect(server.url, compression=None, proxy=None, open_timeout=HANG_S))
        ws.send(json.dumps({"type": "hello", "version": 2, "token": token}))
        return json.loads(ws.recv(HANG_S))["type"]

    def hold():
        with ExitStack() as held:
            for token in tokens[:2]:
                assert {log_in(held, token) for _ in range(DEFAULTS["maxPerUser"])} == {"welcome"}
                assert log_in(held, token) == "error", "has one too many"
            assert [log_in(held, tokens[2]) for _ in range(2)] == ["welcome"] * 2
            assert ask(server, tokens[2]) == 200

    await in_thread(hold)


async def test_fifty_calls_of_the_openai_sdk_at_once_are_all_answered(server):
    """They came as connection errors: 16 places for newcomers, 32 for a user."""
    token = token_for(server, "anna")[1]
    answers = []
    url = f"http://127.0.0.1:{server.config['gateway']['port']}/v1"

    def call(number):
        with openai.OpenAI(base_url=url, api_key=token, timeout=HANG_S, max_retries=0) as client:
            said = [{"role": "user", "content": f"n{number}"}]
            answers.append(client.chat.completions.create(model="klaw", messages=said).choices[0].message.content)

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(in_thread, call, number)
    assert sorted(answers) == sorted(f"You said: n{number}" for number in range(50))


async def test_http2_is_refused_and_an_upgrade_to_it_is_not_taken(server):
    """26.A4: prior knowledge and h2c were served, their control frames uncounted."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    async with raw(server, preface) as stream:
        assert (await all_of(stream)).startswith(b"HTTP/1.1 505")
    async with raw(server, head(server, "GET /healthz HTTP/1.1")) as stream:
        assert (await answer_of(stream)).startswith(b"HTTP/1.1 200")
        await stream.send_all(preface)
        assert b"HTTP/1.1 505" in await all_of(stream)
    h2c = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    async with raw(server, head(server, "GET /healthz HTTP/1.1", *h2c)) as stream:
        assert (await answer_of(stream)).startswith(b"HTTP/1.1 200")


async def test_a_head_that_is_too_large_is_refused_with_a_body_also_behind_another(server):
    large = head(server, "GET /healthz HTTP/1.1", "X-Large: " + "x" * 100_000)
    async with raw(server, large) as stream:
        assert await all_of(stream) != b""
    async with raw(server, head(server, "GET /healthz HTTP/1.1")) as stream:
        assert (await answer_of(stream)).startswith(b"HTTP/1.1 200")
        await stream.send_all(large)
        refusal = await all_of(stream)
        assert b"HTTP/1.1 431" in refusal
        assert refusal.endswith(b"Request Header Fields Too Large\n")


async def test_a_login_and_a_new_token_are_valid_at_once(server):
    """26.A5: they were refused for up to a second."""
    for number in range(3):
        token = token_for(server, f"user{number}")[1]
        async with http(server) as client:
            logged_in = await client.post("/api/v1/login", json={"token": token})
            cookie = logged_in.headers["set-cookie"].split(";")[0]
            me = await client.get("/api/v1/me", headers={"Cookie": cookie})
            assert (me.status_code, me.json()["user"]) == (200, f"user{number}")
            with_token = await client.get("/api/v1/me", headers={"Authorization": f"Bearer {token}"})
            assert with_token.status_code == 200


async def test_a_client_that_goes_in_the_middle_of_its_request_leaves_no_connection(server):
    async with raw(server, head(server, "POST /api/v1/render HTTP/1.1", "Content-Length: 100") + b"{"):
        await server.status_when(lambda status: status["http_connections"] == 1)
    await server.status_when(lambda status: status["http_connections"] == 0)
