"""Thinking on the page, in a real browser: folded while it comes, opened by a click, gone with a reload."""

import pytest
import trio

from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import Reasoning, Reply, Text, Tool, Wait, serve_llm
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat, say

pytestmark = needs_chromium

WORDS = {
    "ru-RU": {
        "new": "Новый чат", "thinks": "Размышляет…", "thought": "Размышление заняло", "why": "На чём основан ответ",
    },
    "en-GB": {"new": "New chat", "thinks": "Thinking…", "thought": "Thought for", "why": "Why this answer"},
}  # fmt: skip
SECRET = "Add them <b>slowly</b>."


@pytest.mark.parametrize("locale", WORDS)
@pytest.mark.parametrize("width", [360, 1200])
async def test_thinking_is_folded_and_opens_by_a_click(tmp_path, locale, width):
    words = WORDS[locale]
    answers, calls = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def look(page, wrong):
        begin_chat(page, "garden", words["new"])
        say(page, "Two and two?")
        fold = page.locator(".live details.thinking")
        fold.wait_for()
        assert words["thinks"] in fold.locator("summary").inner_text()
        assert not fold.locator(".text").is_visible()
        fold.locator("summary").click()
        wait_until(page, "() => document.querySelector('.thinking .text').innerText.includes('slowly')")
        assert fold.locator(".text").inner_text() == SECRET
        assert page.locator(".thinking b").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        token.run_sync_soon(calls.set)
        page.wait_for_selector("article.tool_call details.thinking")
        token.run_sync_soon(answers.set)
        page.wait_for_selector("article.assistant.text details.thinking")
        stored = page.locator("article.assistant.text details.thinking")
        assert stored.locator("summary").inner_text().startswith(words["thought"])
        assert "More." in stored.locator(".text").text_content()
        assert page.locator(".live details").count() == 0
        page.click(f"text={words['why']}")
        page.wait_for_selector("dialog .hint")
        spoken = {"ru-RU": "Модель размышляла", "en-GB": "The model thought for"}[locale]
        wait_until(page, "words => document.querySelector('dialog').innerText.includes(words)", spoken)
        page.reload()
        page.wait_for_selector("article.assistant.text")
        assert page.locator("details.thinking").count() == 0
        assert wrong == []

    async with serve_llm() as llm:
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"m": {"tools": True}}}
        home = write_home(tmp_path, routing={"default": "stub/m"}, providers={"stub": stub})
        async with served(home) as server:
            called = (Reasoning(SECRET[:9]), Reasoning(SECRET[9:]), Wait(calls), Tool("c1", "current_time", "{}"))
            llm.replies.append(Reply(steps=called, finish_reason="tool_calls"))
            llm.replies.append(Reply(steps=(Reasoning("More."), Wait(answers), Text("Four."))))
            await in_browser(look, base(server), locale=locale, viewport={"width": width, "height": 740})
