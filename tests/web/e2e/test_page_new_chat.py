"""New chats, their titles, the list with its groups, and temporary chats, on a phone in both languages."""

import re

import pytest

from klaw.domain.message import MAX_FIRST_TITLE
from klaw.domain.text import in_brief
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, say
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_memory import call

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
LANGUAGES = {
    "en-GB": {
        "mind": "What's on your mind?", "way": "Help me plan …", "start": "Help me plan ",
        "ask": "a weekend in Kazan with the children and our dog Bim", "title": "Weekend in Kazan", "today": "Today",
        "temporary": "Temporary chat", "badge": "Temporary", "keep": "Keep this chat", "pin": "Pin",
        "pinned": "Pinned", "new": "New chat", "rename": "Rename", "free": "🌱 Trips, “2027”!",
    },
    "ru-RU": {
        "mind": "О чём поговорим?", "way": "Помоги спланировать …", "start": "Помоги спланировать ",
        "ask": "выходные в Казани с детьми и собакой по имени Бим", "title": "Выходные в Казани", "today": "Сегодня",
        "temporary": "Временный чат", "badge": "Временный", "keep": "Сохранить этот чат", "pin": "Закрепить",
        "pinned": "Закреплённые", "new": "Новый чат", "rename": "Переименовать", "free": "🌱 Поездки, «2027»!",
    },
}  # fmt: skip
both = pytest.mark.parametrize("locale", LANGUAGES)


def heading(page, text):
    page.locator("klaw-chat header h1", has_text=re.compile(f"^{re.escape(text)}$")).wait_for()


def answers(llm, words, *, titles):
    """A model that answers everything the same, and makes titles once it may."""

    def respond(request):
        if "Write a title" not in str(request.body["messages"][0]["content"]):
            return text_reply("**Gladly.** First `pack`")
        return text_reply(words["title"]) if titles else text_reply("")

    llm.respond = respond


@both
async def test_the_first_question_needs_no_name_and_gets_a_title(tmp_path, locale):
    words = LANGUAGES[locale]

    def look(page, wrong):
        wait_until(page, "() => document.activeElement?.matches('klaw-chat textarea')")
        assert page.url.endswith("#/chats/")
        page.get_by_text(words["mind"], exact=True).wait_for()
        page.get_by_role("button", name=words["way"]).click()
        assert page.input_value("klaw-chat textarea") == words["start"]
        page.fill("klaw-chat textarea", words["start"] + words["ask"])
        page.reload()
        wait_until(
            page, "text => document.querySelector('klaw-chat textarea')?.value === text", words["start"] + words["ask"]
        )
        assert page.evaluate(WIDE) == []
        page.press("klaw-chat textarea", "Enter")
        page.wait_for_selector("article.assistant.text[data-seq='2']:has-text('Gladly')")
        assert re.search(r"#/chats/chat-\d[\da-z]{7}$", page.url)
        heading(page, words["title"])
        page.locator("klaw-chat header .menu > button").click()
        page.locator("klaw-chat header .menu div button", has_text=words["rename"]).click()
        page.fill("dialog input", words["free"])
        page.click("dialog button.main")
        heading(page, words["free"])
        page.click("klaw-chat .back")
        row = page.locator("klaw-chats .list li[data-chat]")
        row.locator(".name", has_text=words["free"]).wait_for()
        assert row.locator(".excerpt").inner_text() == "Gladly. First pack"
        assert page.locator(".list .group").all_inner_texts() == [words["today"]]
        row.locator(".menu > button").click()
        row.locator(".menu div button", has_text=words["pin"]).click()
        page.locator(".list .group", has_text=words["pinned"]).wait_for()
        assert page.evaluate(WIDE) == []
        page.click(f".side button:has-text('{words['new']}')")
        page.get_by_text(words["mind"], exact=True).wait_for()
        assert page.input_value("klaw-chat textarea") == ""
        assert wrong == []

    async with serve_llm() as llm:
        answers(llm, words, titles=True)
        async with served(write_home(tmp_path, llm=llm.url)) as server:
            await in_browser(look, base(server), locale=locale, viewport=PHONE)


@both
async def test_a_temporary_chat_says_what_it_is_until_it_is_kept(tmp_path, locale):
    words = LANGUAGES[locale]

    def look(page, wrong):
        page.click("klaw-chat .back")
        page.get_by_role("button", name=words["temporary"]).click()
        heading(page, words["temporary"])
        page.locator("klaw-chat header .badge", has_text=words["badge"]).wait_for()
        say(page, words["start"] + words["ask"])
        page.wait_for_selector("article.assistant.text[data-seq='2']:has-text('Gladly')")
        heading(page, in_brief(words["start"] + words["ask"], MAX_FIRST_TITLE))
        page.click("klaw-chat .back")
        page.locator(".list li[data-chat] .badge", has_text=words["badge"]).wait_for()
        assert page.evaluate(WIDE) == []
        page.click(".list li[data-chat] a")
        page.get_by_role("button", name=words["keep"]).click()
        page.locator("klaw-chat header .badge").wait_for(state="detached")
        page.click("klaw-chat .back")
        page.locator(".list li[data-chat] .badge").wait_for(state="detached")
        assert wrong == []

    async with serve_llm() as llm:
        answers(llm, words, titles=False)
        async with served(write_home(tmp_path, llm=llm.url)) as server:
            await in_browser(look, base(server), locale=locale, viewport=PHONE)


async def test_the_list_stays_where_it_is_when_something_arrives(tmp_path):
    where = """() => {
        const side = document.querySelector(".side"), row = document.querySelector('.list li[data-chat="room 20"]');
        return [row.getBoundingClientRect().top - side.getBoundingClientRect().top, side.scrollTop];
    }"""

    def look(page, wrong):
        for number in range(40):
            call(page, "POST", f"/chats/room%20{number}/messages", {"text": f"Hello {number}"})
        page.reload()
        wait_until(page, "() => document.querySelectorAll('.list li[data-chat]').length === 40")
        page.evaluate(
            """() => { document.querySelector('.list li[data-chat="room 20"]').scrollIntoView({ block: "center" }); }"""
        )
        before, scrolled = page.evaluate(where)
        call(page, "POST", "/chats/room%203/messages", {"text": "Something new"})
        wait_until(page, """() => document.querySelector(".list li[data-chat]").dataset.chat === "room 3" """)
        after, _ = page.evaluate(where)
        assert scrolled > 0
        assert abs(after - before) <= 1
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply("Hi.")
        async with served(write_home(tmp_path, llm=llm.url)) as server:
            await in_browser(look, base(server), locale="en-GB")
