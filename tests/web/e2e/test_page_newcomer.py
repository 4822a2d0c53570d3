"""What a newcomer met on the page (26.D1), each in both languages and on a phone."""

import json
import re

import pytest

from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import Hang, Reply, Tool, error_reply, serve_llm, text_reply, tool_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import WHY, base, begin_chat, say
from tests.web.e2e.test_page_languages import ENGLISH, WIDE
from tests.web.e2e.test_page_memory import call

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
LANGUAGES = {
    "en-GB": {"new": "New chat", "retry": "Retry", "knowledge": "Knowledge", "rename": "Rename", "archive": "Archive"},
    "ru-RU": {"new": "Новый чат", "retry": "Повторить", "knowledge": "Знания", "rename": "Переименовать",
              "archive": "В архив"},
}  # fmt: skip
both = pytest.mark.parametrize("locale", LANGUAGES)
REFUSED = error_reply(401, "invalid_api_key", "Incorrect API key provided. Prompt: zucchini")


def home_of(tmp_path, llm, **more):
    provider = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True, "contextTokens": 32768}}}
    return write_home(tmp_path, llm=llm.url, providers={"stub": provider}, **more)


def entry(page, word, place="klaw-chat header"):
    page.click(f"{place} .menu > button")
    page.locator(f"{place} .menu div button").get_by_text(word, exact=True).click()


def fits(page):
    return page.evaluate(WIDE) == []


@both
async def test_a_failed_turn_says_why_after_a_reload_and_elsewhere(tmp_path, locale):
    """26.D1.1 and 2: the reason stands beside Retry, in the page's language, and Retry only where it does something."""
    words = LANGUAGES[locale]

    def told(page):
        page.wait_for_selector(".retry button:visible")
        text = page.inner_text(".retry")
        assert text.endswith(words["retry"])
        return text

    def look(page, wrong):
        begin_chat(page, "main", words["new"])
        say(page, "zucchini")
        assert "zucchini" in told(page)  # who asked sees all that the provider said
        page.reload()
        kept = told(page)
        assert "stub/echo" in kept
        assert "401" in kept
        assert "Incorrect API key provided" in kept
        assert "zucchini" not in kept
        if locale == "ru-RU":
            assert ENGLISH.findall(re.sub('".*"', "", kept)) == []
        other = page.context.browser.new_context(locale=locale, viewport=PHONE).new_page()
        other.goto(page.url)
        assert told(other) == kept
        assert fits(other)
        other.click(".retry button")
        page.wait_for_selector("article.assistant.text")
        for each in (page, other):
            each.reload()
            each.wait_for_selector("article.assistant.text")
            assert each.locator(".retry").count() == 0
        page.click("klaw-chat header .menu > button")
        assert (
            page.locator("klaw-chat header .menu div button").count() == 8
        )  # none that answers again what has an answer
        page.keyboard.press("Escape")

        say(page, "hang")
        page.click(".doing button:visible")
        page.wait_for_selector("article[data-seq='4']")
        page.wait_for_selector(".doing button", state="hidden")
        assert page.locator(".retry").count() == 0  # it was stopped: /retry would do nothing
        say(page, "tool")
        assert "500" in told(page)
        page.reload()
        page.wait_for_selector("article.tool_call")
        assert "500" in told(page)  # though the last row is a tool's
        assert wrong == []

    def respond(request):
        if request.messages[-1]["role"] == "tool":
            return error_reply(500)
        if request.last_user.endswith("tool"):
            return tool_reply(Tool("call_1", "current_time", "{}"))
        return Reply(before_head=(Hang(),)) if request.last_user.endswith("hang") else text_reply("4")

    async with serve_llm() as llm, served(home_of(tmp_path, llm)) as server:
        llm.respond = respond
        llm.replies.append(REFUSED)
        await in_browser(look, base(server), locale=locale, viewport=PHONE)


@both
async def test_a_dialog_knows_what_there_is_before_it_can_change_it(tmp_path, locale):
    """26.D1.3: on a slow link nothing is shown as off that is on, and only what was changed is saved."""
    words, held = LANGUAGES[locale], []

    def bound(page):
        return {each["name"] for each in call(page, "GET", "/kb/chat?chat=main")["bases"]}

    def knowledge(page):
        page.route("**/api/v1/kb/chat?**", lambda route: held.append(route))
        entry(page, words["knowledge"])
        page.wait_for_selector("dialog [role=status]")
        while not held:
            page.wait_for_timeout(10)
        assert page.locator("dialog form, dialog input").count() == 0
        page.unroute_all()
        held.clear()
        page.wait_for_selector("dialog form")
        return page.locator("dialog .tick")

    def look(page, wrong):
        ids = {name: call(page, "POST", "/kb", {"name": name})["base"]["id"] for name in ("roses", "trees", "birds")}
        page.route("**/api/v1/chats?**", lambda route: held.append(route))  # also what the page asks by itself
        call(page, "POST", "/chats/main/messages", {"text": "Hello"})
        call(page, "POST", "/kb/use", {"chat": "main", "bases": [ids["roses"]]})
        call(page, "POST", "/chats/main/rename", {"title": "Plans"})
        page.evaluate("location.hash = '#/chats/main'")
        page.wait_for_selector("article.assistant")
        assert page.locator("klaw-chat header .menu").count() == 0  # it would be that of a chat without title and bases
        page.unroute_all()  # lets them go
        held.clear()

        boxes = knowledge(page)
        assert boxes.filter(has_text="roses").locator("input").is_checked()
        assert fits(page)
        page.click("dialog button.main")
        page.wait_for_selector("dialog", state="detached")
        assert bound(page) == {"roses"}
        boxes = knowledge(page)
        call(page, "POST", "/kb/use", {"chat": "main", "bases": [ids["roses"], ids["birds"]]})  # on another device
        boxes.filter(has_text="trees").locator("input").check()
        page.click("dialog button.main")
        page.wait_for_selector("dialog", state="detached")
        assert bound(page) == {"roses", "birds", "trees"}

        entry(page, words["archive"])
        page.reload()
        page.wait_for_selector("klaw-chat h1:text-is('Plans')")  # also where the list does not have it
        entry(page, words["rename"])
        assert page.input_value("dialog input") == "Plans"
        page.keyboard.press("Escape")

        fact = call(page, "POST", "/facts", {"text": "Likes roses", "importance": 50})["fact"]["id"]
        page.evaluate("location.hash = '#/memory/facts'")
        page.click("klaw-memory .lines .buttons button >> nth=0")
        page.wait_for_selector("dialog textarea")
        call(page, "PATCH", f"/facts/{fact}", {"importance": 80})  # by somebody else
        page.fill("dialog textarea", "Likes trees")
        page.click("dialog button.main")
        page.wait_for_selector("dialog", state="detached")
        stored = call(page, "GET", f"/fetch?what=fact:{fact}")["fact"]
        assert (stored["text"], stored["importance"]) == ("Likes trees", 80)
        assert wrong == []

    async with serve_llm() as llm, served(home_of(tmp_path, llm)) as server:
        await in_browser(look, base(server), locale=locale, viewport=PHONE)


async def test_back_closes_what_is_open_first(tmp_path):
    """26.D1.4: dialogs, menus and the place behind “More”; closed otherwise they take no step of going back."""

    def is_open(page):
        return page.locator("dialog[open], :popover-open")

    def closes(page, opening, view="klaw-chat", nested=0):
        address = page.url
        opening(page)
        is_open(page).last.wait_for()
        wait_until(page, "history.state?.over > 0")
        for left in reversed(range(nested + 1)):
            page.evaluate("history.back()")
            wait_until(page, f"document.querySelectorAll('dialog[open], :popover-open').length === {left}")
        assert page.url == address
        assert page.locator(view).count() == 1

    def made_from(page):
        page.locator("article.assistant").last.locator("footer button", has_text=WHY).click()
        page.wait_for_selector("dialog .why")

    def wrong_line(page):
        made_from(page)
        page.locator("dialog .lines .buttons button").first.click()
        page.wait_for_selector("dialog >> nth=1")

    def nth(place, which):
        def press(page):
            page.click(f"{place} .menu > button")
            page.locator(f"{place} .menu div button").nth(which).click()

        return press

    def look(page, wrong):
        call(page, "POST", "/facts", {"text": "Likes roses", "importance": 95})
        call(page, "POST", "/chats/main/messages", {"text": "Hello"})
        for address in ("usage", "chats", "chats/main"):
            page.evaluate("path => { location.hash = path }", f"#/{address}")
            page.wait_for_timeout(50)
        page.wait_for_selector("article.assistant")
        page.wait_for_selector("klaw-chat header .menu > button")
        steps = page.evaluate("history.length")
        closes(page, made_from)
        closes(page, wrong_line, nested=1)
        closes(page, lambda page: page.click("klaw-chat header .menu > button"))
        for which in (1, 2, 7):  # rename, knowledge, delete
            closes(page, nth("klaw-chat header", which))
        closes(page, lambda page: page.click("nav .more"))
        assert page.evaluate("history.length") <= steps + 2
        for _ in range(3):
            made_from(page)
            page.keyboard.press("Escape")
            is_open(page).wait_for(state="detached")
        page.evaluate("history.back()")
        page.wait_for_selector("klaw-chat", state="hidden")
        assert page.url.endswith("#/chats")
        page.evaluate("history.back()")
        page.wait_for_selector("klaw-usage")
        page.evaluate("location.hash = '#/memory/facts'")
        page.wait_for_selector("klaw-memory .lines li")
        closes(page, lambda page: page.click("klaw-memory .row button.main"), view="klaw-memory")
        closes(page, lambda page: page.click("klaw-memory .lines .buttons button >> nth=1"), view="klaw-memory")
        page.evaluate("location.hash = '#/tasks'")
        page.wait_for_selector("klaw-tasks header")
        closes(page, lambda page: page.click("[data-key='New task']"), view="klaw-tasks")

        page.evaluate("location.hash = '#/chats/main'")
        page.wait_for_selector("article.assistant")
        made_from(page)
        page.evaluate("location.hash = '#/usage'")  # whatever leads elsewhere leaves nothing open over it
        page.wait_for_selector("klaw-usage")
        assert is_open(page).count() == 0
        assert wrong == []

    async with serve_llm() as llm, served(home_of(tmp_path, llm)) as server:
        await in_browser(look, base(server), locale="ru-RU", viewport=PHONE)


@pytest.mark.parametrize(("locale", "touch"), [("ru-RU", True), ("en-GB", False)])
async def test_enter_begins_a_line_on_a_phone_and_sends_at_a_desk(tmp_path, locale, touch):
    """26.D1.5"""

    def look(page, wrong):
        begin_chat(page, "main", LANGUAGES[locale]["new"])
        page.click("textarea")
        page.keyboard.type("one")
        page.keyboard.press("Enter" if touch else "Shift+Enter")
        page.keyboard.type("two")
        assert page.input_value("textarea") == "one\ntwo"
        if touch:
            page.click(".composer button.main")
        else:
            page.keyboard.press("Enter")
        page.wait_for_selector("article.user[data-seq='1']")
        wait_until(page, "document.querySelector('article.user .text')?.innerText === 'one\\ntwo'")
        assert fits(page)
        assert wrong == []

    async with serve_llm() as llm, served(home_of(tmp_path, llm)) as server:
        phone = {"has_touch": True, "is_mobile": True} if touch else {}
        await in_browser(look, base(server), locale=locale, viewport=PHONE, **phone)


@both
async def test_a_failed_try_is_said_quietly_in_one_language_and_passes(tmp_path, locale):
    """26.D1.6"""

    def look(page, wrong):
        begin_chat(page, "main", LANGUAGES[locale]["new"])
        say(page, "2 + 2?")
        page.wait_for_selector(".degraded:visible")
        text = page.inner_text(".degraded:visible")
        assert "stub" in text
        assert locale != "ru-RU" or not re.search("[A-Za-z]{2,}", text.replace("stub", ""))
        assert page.locator(".degraded:visible").bounding_box()["height"] < 40
        assert fits(page)
        page.click(".retry button")
        page.wait_for_selector("article.assistant.text")
        page.wait_for_selector(".degraded:visible", state="detached")
        assert wrong == []

    async with serve_llm() as llm, served(home_of(tmp_path, llm)) as server:
        llm.respond = lambda _: text_reply("4")
        llm.replies.append(REFUSED)
        await in_browser(look, base(server), locale=locale, viewport=PHONE)


@both
async def test_no_more_tokens_are_told_than_the_model_has(tmp_path, locale):
    """26.D1.7: in the tokens that the model counts; several calls are not told as one prompt."""

    def look(page, wrong):
        begin_chat(page, "main", LANGUAGES[locale]["new"])
        for seq in (2, 6):
            say(page, "1" if seq == 2 else "tool")
            page.wait_for_selector(f"article.assistant.text[data-seq='{seq}']")
        page.locator("article.assistant").last.locator("footer button", has_text=WHY).click()
        page.wait_for_selector("dialog .bar")
        head, used = page.locator("dialog .dialog-body > p.hint").all_inner_texts()[:2]
        budget = call(page, "GET", "/receipt?chat=main")["receipt"]["budget"]
        assert budget["correction"] < 1
        assert budget["usable_tokens"] > 32768  # in Klaw's estimate
        shown = [int(each) for each in re.findall(r"\d+", re.sub(r"(?<=\d)[\s,](?=\d)", "", used))]
        assert shown == [round(budget[name] * budget["correction"]) for name in ("used_tokens", "usable_tokens")]
        assert shown[1] < 32768
        assert re.search(r"\b2\b", head)  # calls
        assert fits(page)
        assert wrong == []

    async with serve_llm() as llm, served(home_of(tmp_path, llm)) as server:
        llm.respond = lambda request: (
            tool_reply(Tool("call_1", "current_time", json.dumps({"zone": "UTC"})))
            if request.messages[-1]["content"] == "tool"
            else text_reply("4")
        )
        await in_browser(look, base(server), locale=locale, viewport=PHONE)
