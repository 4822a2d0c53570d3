"""The page in a real browser."""

import httpx2
import trio

from klaw.gateway.auth import add_token, tokens_file
from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import until

pytestmark = needs_chromium


def base(server):
    return server.url.replace("ws://", "http://").removesuffix("/ws")


def begin_chat(page, name, button):
    page.click(f"text={button}")
    page.fill("dialog input", name)
    page.click("dialog button.main")
    page.wait_for_selector("textarea")


def say(page, text):
    page.fill("textarea", text)
    page.keyboard.press("Enter")


async def test_a_chat_on_a_phone_in_russian(tmp_path):
    def look(page, wrong):
        begin_chat(page, "огород", "Новый чат")
        say(page, "Что сажать?")
        page.wait_for_selector("article.assistant li strong")
        assert page.inner_text("article.assistant strong") == "картофель"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert "<script>" in page.inner_text("article.assistant")
        page.reload()
        page.wait_for_selector("article.assistant li strong")
        assert page.locator("article").count() == 2
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: text_reply("Например:\n\n", "- **картофель**\n- `<script>alert(1)</script>`")
        await in_browser(look, base(server), locale="ru-RU", viewport={"width": 360, "height": 740})


async def test_a_killed_server_loses_nothing_that_was_typed(tmp_path):
    killed, typed = trio.Event(), trio.Event()

    def look(page, wrong):
        begin_chat(page, "main", "New chat")
        say(page, "before")
        page.wait_for_selector("article.assistant[data-seq]")
        trio.from_thread.run_sync(killed.set)
        page.wait_for_selector("p.offline:visible")
        say(page, "while it was away")
        page.wait_for_selector("article.unsent")
        page.fill("textarea", "half a thought")
        trio.from_thread.run_sync(typed.set)
        page.wait_for_selector("article.assistant[data-seq='4']")
        assert page.locator("article.unsent").count() == 0
        assert page.input_value("textarea") == "half a thought"
        page.reload()
        page.wait_for_selector("article.assistant[data-seq='4']")
        assert page.input_value("textarea") == "half a thought"
        texts = page.locator("article.user .text").all_inner_texts()
        assert texts == ["before", "while it was away"]
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(in_browser, look, base(server))
        await killed.wait()
        await server.kill()
        await typed.wait()
        await server.start()


async def test_logging_in(tmp_path):
    def look(page, wrong):
        page.fill("#token", "klaw_wrong")
        page.click("form button.main")
        page.wait_for_function("document.querySelector('.error').textContent")
        page.fill("#token", secret)
        page.click("form button.main")
        page.wait_for_selector("text=New chat")
        page.click("text=Log out")
        page.wait_for_selector("#token")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        _, secret = add_token(tokens_file(server.home / "config"), "anna", "2026-01-01T00:00:00Z")
        async with httpx2.AsyncClient(base_url=base(server), trust_env=False) as client:

            async def is_refused():
                return (await client.get("/api/v1/me")).status_code == 401

            await until(is_refused)
        await in_browser(look, base(server))
