"""26.A3: texts that are made so that Markdown or the colours of code take minutes, beside the texts of others."""

from contextlib import asynccontextmanager, suppress

import httpx2
import trio

from tests.e2e.test_http import http, token_for, until_served, world
from tests.support.children import children, stopped
from tests.support.waiting import until

CHILD = "klaw.web.child"
RENDER = "/api/v1/render"
YOU = '<p dir="auto"><em>you</em></p>\n'
SPACES = " " * 8_000
AUTOIT = f"**a**\n\n```autoit\n{SPACES}\n```\n"
AMPLIFIED = f"[a]: http://{'b' * 25_000}\n\n" + "[a] " * 6_000


@asynccontextmanager
async def two_users(tmp_path):
    async with world(tmp_path) as server:
        tokens = [token_for(server, name)[1] for name in ("anna", "boris")]
        async with http(server, tokens[0]) as anna, http(server, tokens[1]) as boris:
            await until_served(anna)
            yield server, anna, boris


async def html_of(client, *texts):
    answer = await client.post(RENDER, json={"texts": texts})
    assert answer.status_code == 200, answer.text
    return answer.json()["html"]


async def ask(client, *texts):
    """Whatever comes of it."""
    with suppress(httpx2.HTTPError):
        await client.post(RENDER, json={"texts": texts})


@asynccontextmanager
async def stopped_child(server, client):
    """A client whose texts are being rendered by a child that never ends by itself."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, client, AUTOIT)
        async with stopped(CHILD, server.process.pid):
            yield nursery
            nursery.cancel_scope.cancel()
            await until(lambda: not (server.running and children(CHILD, server.process.pid)))


async def test_a_hostile_text_loses_its_colours_or_is_shown_as_it_is_and_the_others_are_rendered(tmp_path):
    async with two_users(tmp_path) as (_, anna, _boris):
        coloured, after = await html_of(anna, AUTOIT, "*you*")
        assert coloured.startswith('<p dir="auto"><strong>a</strong></p>'), "only the colours were given up"
        assert SPACES in coloured
        assert after == YOU
        for text in (AMPLIFIED, "![[[[" * 100_000, "a|b\n" * 100_000):
            html, after = await html_of(anna, text, "*you*")
            assert html.startswith("<p>"), text[:20]
            assert "<a" not in html, text[:20]
            assert len(html) < 3 * len(text), text[:20]
            assert after == YOU
        [code] = await html_of(anna, "```python\nimport this\n```")
        assert '<span class="kn">import</span>' in code


async def test_texts_of_others_do_not_wait_for_one_user(tmp_path):
    async with two_users(tmp_path) as (server, anna, boris), stopped_child(server, anna) as nursery:
        for _ in range(6):  # more than there are places
            nursery.start_soon(ask, anna, *[AUTOIT] * 100)
        assert await html_of(boris, "*you*") == [YOU]
        assert len(children(CHILD, server.process.pid)) == 1, "one user's texts wait for each other"


async def test_a_client_that_goes_ends_the_rendering(tmp_path):
    async with two_users(tmp_path) as (server, anna, _boris):
        async with stopped_child(server, anna):
            pass  # leaving it closes the connection, and waits for the end of the child
        assert await html_of(anna, "*me*") == [YOU.replace("you", "me")]


async def test_a_stop_does_not_wait_for_the_rendering(tmp_path):
    async with two_users(tmp_path) as (server, anna, _boris), stopped_child(server, anna):
        assert await server.terminate() == 0
