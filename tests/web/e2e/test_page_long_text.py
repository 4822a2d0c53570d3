"""26.A6: a text that is longer than a message may be, in a real browser. It was kept as unsent, and sent after each
welcome, which closed the connection again, of all chats."""

import json

import pytest

from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat, say

pytestmark = needs_chromium
LONG = "Страница договора. " * 4_000
WORDS = {
    "ru-RU": ("Новый чат", "слишком длинное", "Прикрепить файлом"),
    "en-US": ("New chat", "This is too long", "Attach as a file"),
}
UNSENT = """([chat, text]) => localStorage.setItem("klaw.unsent.0001", JSON.stringify(
    {type: "send", id: "0001", chat, text, files: [{sha256: "0".repeat(64), name: "план.pdf"}]}))"""


@pytest.fixture
async def server(tmp_path):
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as running:
        llm.respond = lambda _: text_reply("Хорошо.")
        yield running


@pytest.mark.parametrize("locale", WORDS)
async def test_it_stays_in_the_field_and_can_be_attached(server, locale):
    button, refused, attach = WORDS[locale]

    def look(page, wrong):
        begin_chat(page, "договор", button)
        page.fill("textarea", LONG)
        page.keyboard.press("Enter")
        told = page.locator("p.offline[role=alert]")
        told.filter(has_text=refused).wait_for()  # before the welcome the page does not know how much is allowed
        assert page.input_value("textarea") == LONG
        page.reload()
        assert page.input_value("textarea") == LONG
        page.keyboard.press("Enter")
        page.click(f"text={attach}")
        wait_until(page, "document.querySelector('textarea').value === ''")
        assert not told.is_visible()
        say(page, "Прочти.")
        page.wait_for_selector("article.assistant[data-seq]")
        assert page.inner_text("article.user .files .name") == "text.txt"
        assert wrong == []

    await in_browser(look, base(server), locale=locale)


async def test_one_that_is_stored_as_unsent_becomes_a_draft_again(server):
    def look(page, wrong):
        begin_chat(page, "main", "New chat")
        say(page, "Hello")
        page.wait_for_selector("article.assistant[data-seq]")
        page.fill("textarea", "half a thought")
        page.evaluate(UNSENT, ["main", LONG])
        page.evaluate(UNSENT.replace("0001", "0002"), ["other", LONG])
        page.reload()
        page.wait_for_selector("p.offline[role=alert]:visible")
        assert page.input_value("textarea") == f"half a thought\n\n{LONG}"
        assert page.inner_text("klaw-files .chip .name") == "план.pdf"
        page.click("klaw-files .chip button")
        say(page, "Again")
        page.wait_for_selector("article.assistant[data-seq='4']")
        kept = page.evaluate("JSON.stringify(Object.entries(localStorage).filter(([key]) => /unsent|draft/.test(key)))")
        assert json.loads(kept) == [["klaw.draft.other", LONG]]
        assert wrong == []

    await in_browser(look, base(server))


async def test_a_text_that_the_browser_cannot_keep_can_be_written_and_attached(server):
    def look(page, wrong):
        begin_chat(page, "main", "New chat")
        paste = "field => { field.value = 'word '.repeat(1600000); field.dispatchEvent(new Event('input')); }"
        page.eval_on_selector("textarea", paste)
        page.type("textarea", "x")
        page.keyboard.press("Enter")
        page.click("text=Attach as a file")
        wait_until(page, "document.querySelector('textarea').value === ''")
        assert wrong == []

    await in_browser(look, base(server))
