"""Editing a message on the page, having it answered again, and going from one variant to another; on a phone, in both
languages, while another session of the chat looks on."""

import time

import pytest

from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_newcomer import entry

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
LANGUAGES = {
    "en-GB": ("New chat", "Edit", "Answer again", "The variant before", "Variant 2 of 2"),
    "ru-RU": ("Новый чат", "Изменить", "Ответить заново", "Предыдущий вариант", "Вариант 2 из 2"),
}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize("locale", LANGUAGES)
async def test_a_message_is_edited_and_answered_again_and_the_first_variant_is_shown(tmp_path, locale):
    new, edit, again, before, group = LANGUAGES[locale]

    def texts(page):
        """Not what is rendered: one of two pages is behind the other."""
        found = page.locator("article.user .text, article.assistant.text .text").all_text_contents()
        return [each.strip() for each in found]

    def become(page, wanted):
        """A page loads its chat anew in between."""
        deadline = time.monotonic() + HANG_S
        while not wanted(texts(page)):
            assert time.monotonic() < deadline, texts(page)
            page.wait_for_timeout(20)

    def look(page, wrong):
        begin_chat(page, "main", new)
        say(page, "One")
        page.wait_for_selector("article.assistant[data-seq='2']:has-text('#1 One')")
        other = page.context.new_page()
        other.goto(page.url)
        other.wait_for_selector("article.assistant[data-seq='2']:has-text('#1 One')")

        page.locator(f"article.user[data-seq='1'] footer [aria-label='{edit}']").click()
        field = page.locator("article.user[data-seq='1'] form textarea")
        assert field.input_value() == "One"
        field.press("Escape")
        page.wait_for_selector("article.user[data-seq='1'] .text:visible")
        page.locator(".composer textarea").press("ArrowUp")
        field.fill(f"Two {HOSTILE}")
        page.locator("article.user form button.main").click()
        for each in (page, other):
            each.wait_for_selector("article.assistant[data-seq='4']:has-text('#2 Two')")
            each.wait_for_selector("article.user[data-seq='3'] .variants:has-text('2/2')")
            become(each, lambda said: len(said) == 2 and said[0] == f"Two {HOSTILE}")
        assert page.locator("article.user .variants").get_attribute("aria-label") == group

        page.wait_for_selector(".doing button", state="hidden")
        entry(page, again, "article.assistant[data-seq='4']")
        for each in (page, other):
            each.wait_for_selector("article.assistant[data-seq='5'] .variants:has-text('2/2')")
        page.locator("article.user[data-seq='3'] .variants").get_by_label(before).click()
        for each in (page, other):
            each.wait_for_selector("article.user[data-seq='1'] .variants:has-text('1/2')")
            become(each, lambda said: said == ["One", "#1 One"])
        assert page.evaluate(WIDE) == []
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = lambda request: text_reply(f"#{len(llm.requests)} {request.messages[-1]['content']}")
        async with served(write_home(tmp_path, providers={"stub": {"baseUrl": llm.url}})) as server:
            await in_browser(look, base(server), locale=locale, viewport=PHONE)
