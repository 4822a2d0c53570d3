"""The main way through the page in Firefox and in WebKit, Safari's engine (``make test-browsers``)."""

from functools import partial

import pytest
import trio

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from klaw.gateway.tokens import add_token, tokens_file
from tests.support.llm_server import Reply, Text, Wait, serve_llm
from tests.support.server import served, write_home
from tests.support.webdriver import KEYS, MISSING, opened
from tests.web.e2e.test_page import base

FIELD = "klaw-chat .composer textarea"
ANSWERS = "document.querySelectorAll('article.assistant[data-seq]').length"
IDLE = "document.querySelector('.doing button').hidden"


def say(page, text):
    page.act(FIELD, "value", text=text + KEYS["Enter"])


def walk(page, link, file, stream, server):
    page.open(link)
    page.wait("document.querySelector('klaw-chat textarea') && !location.hash.includes('code')")
    say(page, "Show me the code")
    page.wait("document.querySelector('.live .block pre')")
    trio.from_thread.run_sync(stream.set)
    page.wait(f"{ANSWERS} === 1 && {IDLE}")
    page.act("article.assistant .block .copy", "click")
    told = "[...document.querySelectorAll('.toast')].map((each) => each.textContent).find((each) => /cop/i.test(each))"
    assert page.wait(told) == "Copied."

    page.act("klaw-chat .menu-place .menu > button", "click")
    assert page.wait("document.querySelector(':popover-open')?.offsetHeight") < page.evaluate("return innerHeight / 2")
    page.evaluate("history.back()")
    page.wait("!document.querySelector(':popover-open')")

    page.act(FIELD, "value", text="many words " * 30)
    assert page.evaluate(f"return document.querySelector('{FIELD}').clientHeight") > 100
    page.act(FIELD, "clear")
    page.act(FIELD, "value", text=KEYS["Up"])
    page.act(".editing textarea", "value", text=" again" + KEYS["Enter"])
    page.wait(f"document.querySelector('.variants')?.textContent.includes('2/2') && {IDLE}")
    page.act(".variants button", "click")
    page.wait("document.querySelector('.variants')?.textContent.includes('1/2')")

    page.evaluate("document.querySelector('klaw-files input').hidden = false")
    page.act("klaw-files input", "value", text=str(file))
    page.wait("document.querySelector('.chip progress')?.hidden")
    say(page, "Read this")
    page.wait(f"document.querySelector('article.user[data-seq] .files') && {ANSWERS} === 2")

    page.evaluate("location.hash = '#/memory'")
    page.wait("document.querySelector('klaw-memory h1')")
    page.evaluate("history.back()")
    page.wait(f"{ANSWERS} === 2")

    trio.from_thread.run(server.kill)
    page.wait("document.querySelector('p.offline')?.hidden === false")
    say(page, "Written meanwhile")
    page.wait("document.querySelector('article.unsent')")
    trio.from_thread.run(server.start)
    page.wait(f"{ANSWERS} === 3 && !document.querySelector('article.unsent')")
    assert page.evaluate("return wrong") == []


def browser(name):
    why = f"{name} or its driver is not installed (make test-browsers)"
    return pytest.param(name, marks=pytest.mark.skipif(MISSING[name], reason=why))


@pytest.mark.parametrize("name", [browser(name) for name in MISSING])
async def test_the_page_in_another_browser(tmp_path, name):
    file, stream = tmp_path / "notes.txt", trio.Event()
    file.write_text("Two words")

    def look():
        with opened(name) as page:
            walk(page, code["url"], file, stream, server)

    home = write_home(tmp_path / "home")
    add_token(tokens_file(home / "config"), "local", "2026-01-01T00:00:00Z", operator=True)
    async with serve_llm() as llm, served(write_home(home, llm=llm.url)) as server:
        llm.replies.append(Reply(steps=(Text("```python\nprint(1)\n```\n\n"), Wait(stream), Text("The **end**."))))
        ask = partial(call, Paths.resolve(home, {}), "token_phone", address=base(server), asker={"user": "local"})
        code = await trio.to_thread.run_sync(ask)
        await trio.to_thread.run_sync(look)
