"""Connecting Telegram on the page, and letting people in, in both languages, on a phone too."""

import pytest

from tests.support.browser import awaited, in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.services.telegram import serve_telegram
from tests.support.waiting import until
from tests.web.e2e.test_page import base
from tests.web.e2e.test_page_languages import WIDE

pytestmark = needs_chromium

WORDS = {
    "en-GB": {"connect": "Connect Telegram", "do": "Connect", "in": "Let in", "end": "Disconnect", "yes": "Yes",
              "works": "Works as @klaw_bot.", "wrong": "no token of a Telegram bot", "done": "You are connected"},
    "ru-RU": {"connect": "Подключить Telegram", "do": "Подключить", "in": "Впустить", "end": "Отключить", "yes": "Да",
              "works": "Работает как @klaw_bot.", "wrong": "no token of a Telegram bot", "done": "вы подключены"},
}  # fmt: skip
SIZES = {"en-GB": {"width": 1100, "height": 800}, "ru-RU": {"width": 360, "height": 740}}


@pytest.mark.parametrize("locale", WORDS)
async def test_a_bot_is_connected_and_a_person_let_in(tmp_path, locale):
    words, hostile = WORDS[locale], "<img src=x onerror=alert(1)> **Anna**"
    async with serve_llm() as llm, serve_telegram() as telegram, served(write_home(tmp_path, llm=llm.url)) as server:
        anna = telegram.person(hostile, locale[:2])

        async def said(text):
            return await until(lambda: next((each for each in anna.chat.of_bot if text in each.text), None))

        def look(page, wrong):
            page.wait_for_selector("nav a")
            page.evaluate("location.hash = '#/channels'")
            page.click(f"klaw-channels button:has-text('{words['connect']}')")
            page.fill("dialog input[name=token]", "no-token")
            page.fill("dialog input[name=api_url]", telegram.url)
            page.click("dialog button.main")
            page.wait_for_selector(f"dialog .error:has-text('{words['wrong']}')")
            page.fill("dialog input[name=token]", telegram.token)
            page.click("dialog button.main")
            page.wait_for_selector("dialog img.qr")
            link = page.get_attribute("dialog a[target=_blank]", "href")
            assert link.startswith("https://t.me/klaw_bot?start=")
            assert page.evaluate(WIDE) == []
            page.keyboard.press("Escape")
            page.wait_for_selector(f"klaw-channels p:has-text('{words['works']}')")
            awaited(anna.says, "hello")
            page.click(f"klaw-channels li button:has-text('{words['in']}')")
            awaited(said, words["done"])
            page.wait_for_selector(f"klaw-channels li:has-text('{hostile}')")
            llm.replies.append(text_reply("Nice to meet you."))
            awaited(anna.says, "hello again")
            awaited(said, "Nice to meet you.")
            assert page.evaluate(WIDE) == []
            page.click(f"klaw-channels li button:has-text('{words['end']}')")
            page.click(f"dialog button:has-text('{words['yes']}')")
            page.wait_for_selector(f"klaw-channels li:has-text('{hostile}')", state="detached")
            assert wrong == []

        await in_browser(look, base(server), locale=locale, viewport=SIZES[locale])
    assert telegram.token not in server.stderr
