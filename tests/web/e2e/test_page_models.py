"""Choosing a model for a chat on the page, and for one answer; on a phone, in both languages."""

import pytest

from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_newcomer import entry

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
LANGUAGES = {"en-GB": ("New chat", "Answer again with …"), "ru-RU": ("Новый чат", "Ответить заново …")}


@pytest.mark.parametrize("locale", LANGUAGES)
async def test_another_model_for_one_answer_and_for_a_chat(tmp_path, locale):
    new, again = LANGUAGES[locale]

    def look(page, wrong):
        begin_chat(page, "main", new)
        say(page, "Who are you?")
        page.wait_for_selector("article.assistant.text[data-seq='2']:has-text('echo')")
        page.wait_for_selector("klaw-chat .model:has-text('echo')")
        entry(page, again, "article.assistant")
        page.locator("dialog .choice", has_text="stub/big").click()
        page.wait_for_selector("article.assistant.text[data-seq='3']:has-text('big')")
        page.wait_for_selector("article[data-seq='3'] .variants:has-text('2/2')")
        assert page.locator("article.user .text").all_inner_texts() == ["Who are you?"]
        assert page.inner_text("klaw-chat .model") == "echo"
        page.click("klaw-chat .model")
        page.locator("dialog .choice", has_text="stub/big").click()
        page.wait_for_selector("klaw-chat .model:has-text('big')")
        say(page, "And now?")
        page.wait_for_selector("article.assistant.text[data-seq='7']:has-text('big')")
        assert page.evaluate(WIDE) == []
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = lambda request: text_reply(f"I am {request.body['model']}.")
        provider = {"baseUrl": llm.url, "models": {"big": {"contextTokens": 32768}}}
        async with served(write_home(tmp_path, providers={"stub": provider})) as server:
            await in_browser(look, base(server), locale=locale, viewport=PHONE)
