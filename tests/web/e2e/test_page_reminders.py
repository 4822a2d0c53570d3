"""Reminders on the page, on a phone, in both languages and in the time zone of the browser."""

import pytest

from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_memory import call, fits
from tests.web.e2e.test_page_newcomer import entry

pytestmark = needs_chromium
PHONE = {"viewport": {"width": 360, "height": 740}, "timezone_id": "Asia/Tokyo"}
ENGLISH = {
    "locale": "en-US", "new": "New chat", "when": "tomorrow at 9", "what": "Water the <b>roses</b>",
    "remind": "Remind me", "told": "I'll remind you: Tomorrow, ",
    "wrong": "no time was understood", "snooze": "Snooze", "daily": "every day",
}  # fmt: skip
RUSSIAN = {
    "locale": "ru-RU", "new": "Новый чат", "when": "завтра в 9", "what": "Полить <b>розы</b>", "remind": "Напомнить",
    "told": "Напомню: Завтра, ", "wrong": "время не распознано", "snooze": "Отложить", "daily": "каждый день",
}  # fmt: skip


@pytest.mark.parametrize("words", [ENGLISH, RUSSIAN], ids=["en", "ru"])
async def test_a_reminder_is_made_changed_delivered_and_snoozed(tmp_path, words):
    def look(page, wrong):
        page.wait_for_function("async () => (await (await fetch('/api/v1/me')).json()).zone === 'Asia/Tokyo'")
        begin_chat(page, "home", words["new"])
        say(page, words["what"])
        page.wait_for_selector("article.assistant[data-seq]")
        entry(page, words["remind"], "article.user[data-seq]")
        page.wait_for_selector("dialog [name=when]")
        assert page.input_value("dialog [name=message]") == words["what"]
        assert page.input_value("dialog [name=injectInto]") == "home"
        page.fill("dialog [name=when]", words["wrong"])
        page.wait_for_selector(f"dialog [name=when] ~ .error:has-text('{words['wrong']}')")
        page.fill("dialog [name=when]", words["when"])
        page.wait_for_selector("dialog .times li")
        assert "9:00" in page.inner_text("dialog .times li")
        fits(page)
        page.click("dialog button.main")
        assert words["told"] in page.inner_text(".toast")
        page.evaluate("location.hash = '#/tasks'")
        card = page.locator("[data-task='reminder-1']")
        card.wait_for()
        assert card.locator(".clamp").inner_text() == words["what"]
        assert "9:00" in card.inner_text()
        fits(page)
        page.click("[data-key='reminder-1 Edit']")
        page.wait_for_selector("dialog [name=when]")
        assert page.input_value("dialog [name=when]").endswith(" 09:00")
        page.select_option("dialog [name=repeat]", "every day")
        page.click("dialog button.main")
        page.wait_for_selector(f"[data-task='reminder-1'] h2:has-text('{words['daily']}')")
        (task,) = call(page, "GET", "/schedule")["tasks"]
        assert (task["trigger"]["expression"], task["trigger"]["zone"]) == ("0 9 * * *", "Asia/Tokyo")
        page.click("[data-key='reminder-1 Run now']")
        page.wait_for_selector("[data-task='reminder-1'] dd a")
        page.evaluate("location.hash = '#/chats/home'")
        entry(page, words["snooze"], "article.scheduled")
        page.wait_for_selector("dialog [name=when]")
        assert page.input_value("dialog [name=message]") == words["what"]
        page.fill("dialog [name=when]", "2h")
        page.click("dialog button.main")
        page.wait_for_selector("dialog", state="detached")
        page.evaluate("location.hash = '#/tasks'")
        page.click(".zone")
        page.fill("dialog [name=zone]", "Nowhere/City")
        page.click("dialog button.main")
        page.wait_for_selector("dialog [name=zone] ~ .error:not(:empty)")
        page.fill("dialog [name=zone]", "Europe/Berlin")
        page.click("dialog button.main")
        page.wait_for_selector(".zone:text-is('Europe/Berlin')")
        assert call(page, "GET", "/zone") == {"zone": "Europe/Berlin"}
        assert len(call(page, "GET", "/schedule")["tasks"]) == 2
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply("Ok.")
        async with served(write_home(tmp_path, llm=llm.url)) as server:
            await in_browser(look, base(server), locale=words["locale"], **PHONE)
