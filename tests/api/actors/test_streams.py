"""Answers and clients that go away."""

import json

import pytest
import trio
from starlette.requests import ClientDisconnect

from klaw.api import openai
from klaw.api.streams import KEEP_ALIVE_S, Stream, while_connected
from tests.support.waiting import HANG_S


async def gone():
    return {"type": "http.disconnect"}


async def there():
    await trio.sleep_forever()


async def wait(_stream):
    await trio.sleep_forever()


async def test_what_a_client_waited_for_is_cancelled_when_it_goes():
    with trio.fail_after(HANG_S):
        with pytest.raises(ClientDisconnect):
            await while_connected(gone, trio.sleep_forever)
        stream = Stream(wait)
        await stream({}, gone, None)
    assert not stream.begun


async def test_an_answer_or_an_error_comes_as_it_is():
    async def answer():
        return 7

    async def fail():
        raise KeyError

    assert await while_connected(there, answer) == 7
    with pytest.raises(KeyError):
        await while_connected(there, fail)


async def test_a_stream_without_news_says_that_it_lives(autojump_clock):
    sent = []

    async def send(message):
        sent.append((trio.current_time(), message.get("body")))

    async def play(stream):
        await stream.put("a")
        await trio.sleep(2.5 * KEEP_ALIVE_S)
        await stream.put("b")

    begin = trio.current_time()
    await Stream(play)({}, there, send)
    bodies = [(round(at - begin, 3), body) for at, body in sent if body]
    alive = (b": \n\n", b": \n\n")
    assert [body for _, body in bodies] == [b"a", *alive, b"b"]
    assert [at for at, _ in bodies[1:3]] == [KEEP_ALIVE_S, 2 * KEEP_ALIVE_S]


class SlowExchange:
    """Answers when a keep-alive was sent already."""

    on_thought, calls, finish_reason = None, (), "stop"

    async def tell(self, _stream, put, said, _error_of):
        await trio.sleep(1.5 * KEEP_ALIVE_S)
        for text in ("a", "b"):
            await put(said(text))


async def test_the_first_piece_of_a_chat_names_its_role_however_long_it_took(autojump_clock):
    sent = []

    async def send(message):
        sent.append(message.get("body", b""))

    await Stream(lambda stream: openai._stream(SlowExchange(), {}, stream, with_usage=False))({}, there, send)
    alive, first, second, *_ = [each for each in sent if each]
    assert alive == b": \n\n"
    assert json.loads(first[6:])["choices"][0]["delta"] == {"role": "assistant", "content": "a"}
    assert json.loads(second[6:])["choices"][0]["delta"] == {"content": "b"}
