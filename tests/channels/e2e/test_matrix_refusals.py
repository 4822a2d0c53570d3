"""What a homeserver refuses, and what it says when it is not well."""

import json
from pathlib import Path

import pytest
import trio

from klaw.channels.matrix import Matrix
from klaw.channels.messenger import (
    ConversationClosed,
    IncomingFile,
    Part,
    RefusedByMessenger,
    TooManyRequests,
    Unreachable,
    WrongToken,
)
from tests.support.llm_server import Hang, LlmServer, Recorded, Reply, serve_llm
from tests.support.matrix import account
from tests.support.services.imitation import json_reply, page_reply
from tests.support.services.synapse import MISSING, Synapse, environment
from tests.support.waiting import HANG_S


class Imitation(LlmServer):
    lists = True


PART = Part(text="hello", formatted="<p>hello</p>")
TOKEN = "syt_c2VjcmV0_abcdefgh_12345"


def error(status: int, code: str, text: str, **more) -> Reply:
    headers = more.pop("headers", ())
    return json_reply({"errcode": code, "error": text, **more}, status, headers=headers)


async def refused_post(reply: Reply) -> Exception:
    """What sending a message raises when the homeserver answers so."""
    async with serve_llm(Imitation()) as server:
        server.respond = lambda _request: reply
        matrix = Matrix(TOKEN, f"http://127.0.0.1:{server.port}")
        with pytest.raises((ConversationClosed, RefusedByMessenger, Unreachable, WrongToken)) as raised:
            await matrix.post("!room", PART, "key")
        await matrix.close()
    assert TOKEN not in str(raised.value)
    return raised.value


async def test_wrong_token_is_told_in_words(synapse: Synapse) -> None:
    matrix = Matrix("syt_wrong", synapse.url)
    with pytest.raises(WrongToken, match="M_UNKNOWN_TOKEN"):
        await matrix.open()
    await matrix.close()


async def test_token_that_was_logged_out_is_refused(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        await klaw.person.ask("POST", "logout", {})
        with pytest.raises(WrongToken):
            await klaw.receive()


async def test_real_homeserver_limits_too_many_messages(tmp_path: Path) -> None:
    folder = environment()
    if folder is None:
        pytest.skip(MISSING)
    synapse = Synapse(folder, tmp_path, rc_message={"per_second": 0.1, "burst_count": 3})
    try:
        await synapse.start()
        async with account(synapse) as klaw:
            room = await klaw.person.create_room()

            async def post_many() -> None:
                for number in range(10):
                    await klaw.matrix.post(room, PART, f"k{number}")

            with pytest.raises(TooManyRequests) as limited:
                await post_many()
            assert 0 < limited.value.after_s <= 10
            assert limited.value.conversation is None
    finally:
        synapse.stop()


async def test_pause_that_the_homeserver_asks_for_is_told() -> None:
    by_body = await refused_post(error(429, "M_LIMIT_EXCEEDED", "Too Many Requests", retry_after_ms=2_500))
    assert isinstance(by_body, TooManyRequests)
    assert by_body.after_s == 2.5
    by_header = await refused_post(error(429, "M_LIMIT_EXCEEDED", "slow", headers=(("Retry-After", "7"),)))
    assert isinstance(by_header, TooManyRequests)
    assert by_header.after_s == 7
    by_proxy = await refused_post(page_reply(429))
    assert isinstance(by_proxy, TooManyRequests)
    assert by_proxy.after_s > 0


@pytest.mark.parametrize("reply", [error(500, "M_UNKNOWN", "Internal server error"), page_reply(502), page_reply(503)])
async def test_error_of_the_homeserver_may_pass(reply: Reply) -> None:
    failed = await refused_post(reply)
    assert type(failed) is Unreachable
    assert str(reply.status) in str(failed)


async def test_answer_that_never_ends_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    assert isinstance(await refused_post(Reply(before_head=(Hang(),))), Unreachable)


async def test_refusal_quotes_the_homeserver_but_not_the_token() -> None:
    failed = await refused_post(error(400, "M_BAD_JSON", f"Bad token {TOKEN} in <b>body</b>"))
    assert type(failed) is RefusedByMessenger
    assert "M_BAD_JSON Bad token ***" in str(failed)


@pytest.mark.parametrize(("status", "code"), [(401, "M_UNKNOWN_TOKEN"), (403, "M_USER_DEACTIVATED")])
async def test_account_that_is_gone_is_a_wrong_token(status: int, code: str) -> None:
    assert isinstance(await refused_post(error(status, code, "no")), WrongToken)


async def test_page_in_place_of_a_homeserver_is_named() -> None:
    async with serve_llm(Imitation()) as server:
        server.respond = lambda _request: page_reply()
        matrix = Matrix(TOKEN, f"http://127.0.0.1:{server.port}")
        with pytest.raises(RefusedByMessenger, match="is not the address of a Matrix homeserver"):
            await matrix.open()
        await matrix.close()
        assert len(server.requests) == 2
        assert all("authorization" not in request.headers for request in server.requests)


async def test_domain_leads_to_its_homeserver(synapse: Synapse) -> None:
    person = await synapse.person("klaw")

    def respond(request: Recorded) -> Reply:
        found = json.dumps({"m.homeserver": {"base_url": synapse.url}}).encode()
        is_asked = request.path == "/.well-known/matrix/client"
        return Reply(body=found, content_type="application/json") if is_asked else page_reply(404)

    async with serve_llm(Imitation()) as server:
        server.respond = respond
        matrix = Matrix(person.token, f"http://127.0.0.1:{server.port}/")
        bot = await matrix.open()
        await matrix.close()
    assert (bot.id, bot.name, bot.link) == (person.id, person.id, f"https://matrix.to/#/{person.id}")


async def test_old_homeserver_gives_files_at_its_old_address(synapse: Synapse) -> None:
    def respond(request: Recorded) -> Reply:
        if request.path == "/_matrix/media/v3/download/klaw.test/abc":
            return Reply(body=b"data", content_type="application/octet-stream")
        return error(404, "M_UNRECOGNIZED", "Unrecognized request")

    async with serve_llm(Imitation()) as server:
        server.respond = respond
        matrix = Matrix(TOKEN, f"http://127.0.0.1:{server.port}")
        file = IncomingFile(name="a", type="", bytes=None, place="mxc://klaw.test/abc")
        with trio.fail_after(HANG_S):
            assert [piece async for piece in matrix.download(file)] == [b"data"]
        await matrix.close()
