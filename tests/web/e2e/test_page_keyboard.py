"""The page without a mouse, in a real browser and both languages; and what a screen reader says of an answer."""

import pytest

from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import Hang, Reply, Text, serve_llm
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_memory import call

pytestmark = needs_chromium

WORDS = {
    "en-GB": {"new": "New chat", "memory": "Memory", "keys": "Keyboard shortcuts", "nothing": "Nothing was found."},
    "ru-RU": {"new": "Новый чат", "memory": "Память", "keys": "Сочетания клавиш", "nothing": "Ничего не найдено."},
}
both = pytest.mark.parametrize("locale", WORDS)
WIDTHS = {"en-GB": 1200, "ru-RU": 360}
LISTEN = """(() => {
    window.heard = [];
    const live = { alert: "assertive", status: "polite", log: "polite" };
    const isSaid = (node) => {
        for (let each = node.parentElement; each; each = each.parentElement) {
            const how = each.getAttribute("aria-live") || live[each.getAttribute("role")];
            if (how) return how !== "off";
        }
    };
    new MutationObserver((all) => {
        for (const { type, target, addedNodes } of all)
            for (const node of type === "characterData" ? [target] : addedNodes)
                if (isSaid(node)) window.heard.push(node.textContent);
    }).observe(document, { subtree: true, childList: true, characterData: true });
})()"""
REGIONS = ["nav.views", ".side", "klaw-chat header", ".messages", ".composer"]
REGION = """regions => { const at = document.activeElement;
    return [regions.find((each) => at.closest(each)), at.getClientRects().length > 0]; }"""


def selected(page):
    return page.locator("#places [aria-selected=true]").inner_text()


def go_anywhere(page):
    page.keyboard.press("Control+k")
    page.wait_for_selector("#places [role=option]")


def gone(page):
    page.wait_for_selector("dialog", state="detached")


def in_view(locale):
    return {"locale": locale, "viewport": {"width": WIDTHS[locale], "height": 740}}


@both
async def test_go_anywhere(tmp_path, locale):
    words = WORDS[locale]

    def look(page, wrong):
        page.wait_for_selector("klaw-chat textarea")
        for chat, text in (("garden", "Where is the ladder?"), ("travel", "When does the train leave?")):
            call(page, "POST", f"/chats/{chat}/messages", {"text": text})
        go_anywhere(page)
        page.wait_for_selector("#places [role=option]:has-text('garden')")
        page.keyboard.type(words["memory"].lower())
        assert selected(page) == words["memory"]
        page.keyboard.press("Enter")
        page.wait_for_selector("klaw-memory")
        gone(page)

        go_anywhere(page)
        page.wait_for_selector("#places [role=option]:has-text('travel')")
        assert page.evaluate(WIDE) == []
        assert selected(page) == words["new"]
        page.keyboard.press("ArrowUp")
        assert selected(page) == page.locator("#places [role=option]").all_inner_texts()[-1]
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert selected(page) == page.locator("#places [role=option]").all_inner_texts()[1]
        assert page.locator("dialog [role=combobox]").get_attribute("aria-activedescendant") == "option-1"
        page.keyboard.press("Control+k")
        gone(page)

        go_anywhere(page)
        page.keyboard.type("travel")
        page.wait_for_selector("#places [aria-selected=true][href='#/chats/travel']")
        page.keyboard.press("Enter")
        page.wait_for_selector("article.user:has-text('the train')")
        go_anywhere(page)
        page.keyboard.type("ladder")
        page.wait_for_selector("#places [aria-selected=true][href='#/chats/garden/1']")
        page.keyboard.press("Enter")
        page.wait_for_selector("article.found:has-text('ladder')")
        gone(page)

        go_anywhere(page)
        page.keyboard.type("zzzzzz")
        page.wait_for_selector(f"dialog [role=status]:has-text('{words['nothing']}')")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        gone(page)
        assert page.url.endswith("#/chats/garden/1")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), **in_view(locale))


@both
async def test_a_new_chat_and_the_list_of_keys(tmp_path, locale):
    def look(page, wrong):
        is_new = "document.activeElement.matches('dialog input, klaw-chat textarea')"
        page.wait_for_selector("klaw-chat textarea")
        page.evaluate("location.hash = '#/usage'")
        page.wait_for_selector("klaw-usage h1")
        page.keyboard.press("?")
        page.wait_for_selector(f"dialog[aria-label='{WORDS[locale]['keys']}'] kbd")
        assert page.evaluate(WIDE) == []
        page.keyboard.press("Control+Shift+O")
        wait_until(page, is_new)
        assert page.locator("dialog kbd").count() == 0
        page.keyboard.type("a?")  # in a field it is a character
        assert page.evaluate("document.activeElement.value") == "a?"
        page.keyboard.press("Escape")
        page.evaluate("location.hash = '#/usage'")
        page.wait_for_selector("klaw-usage h1")
        gone(page)
        russian = "{ key: 'Щ', code: 'KeyO', ctrlKey: true, shiftKey: true, bubbles: true }"
        page.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {russian}))")
        wait_until(page, is_new)
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), **in_view(locale))


@both
async def test_escape_closes_what_is_open_and_then_stops_the_answer(tmp_path, locale):
    def look(page, wrong):
        begin_chat(page, "main", WORDS[locale]["new"])
        say(page, "Count to a million.")
        page.wait_for_selector(".live article:has-text('One')")
        page.wait_for_selector(".doing button:visible")
        page.keyboard.press("Control+k")
        page.wait_for_selector("#places")
        page.keyboard.press("Escape")
        gone(page)
        assert page.locator(".doing button").is_visible()
        page.keyboard.press("Escape")
        page.wait_for_selector(".doing button", state="hidden")
        page.wait_for_selector("article.assistant[data-seq='2']")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: Reply(steps=(Text("One, "), Hang()))
        await in_browser(look, base(server), **in_view(locale))


@both
async def test_a_screen_reader_says_an_answer_once_and_not_its_pieces(tmp_path, locale):
    def heard(page):
        return [" ".join(each.split()) for each in page.evaluate("window.heard")]

    def look(page, wrong):
        page.add_init_script(LISTEN)
        page.reload()
        begin_chat(page, "main", WORDS[locale]["new"])
        say(page, "How?")
        page.wait_for_selector("article.assistant[data-seq='2']:has-text('rows')")
        wait_until(page, "() => window.heard.some((each) => each.includes('rows'))")
        assert [each for each in heard(page) if "Plant" in each or "rows" in each] == ["Plant two rows."]
        page.reload()
        page.wait_for_selector("article.assistant[data-seq='2']")
        wait_until(page, "() => document.querySelector('klaw-chat .model:not([hidden])')")
        assert not any("rows" in each for each in heard(page))
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: Reply(steps=(Text("Plant "), Text("**two** "), Text("rows.")))
        await in_browser(look, base(server), **in_view(locale))


async def test_tab_goes_through_the_page_as_it_is_read(tmp_path):
    def look(page, wrong):
        page.wait_for_selector("klaw-chat textarea")
        call(page, "POST", "/chats/main/messages", {"text": "Hello"})
        page.evaluate("location.hash = '#/chats/main'")
        page.reload()  # the list would have it by itself only once something happens in the chat
        page.wait_for_selector("article.assistant[data-seq='2']")
        page.wait_for_selector("klaw-chat header .menu > button")
        page.wait_for_selector(".side li[data-chat=main]")
        page.evaluate("document.querySelector('nav.views a').focus()")
        seen = []
        while page.evaluate("!document.activeElement.matches('.composer button.main')"):
            region, shown = page.evaluate(REGION, REGIONS)
            assert shown
            seen += [region] if region not in seen[-1:] else []
            page.keyboard.press("Tab")
        assert seen == REGIONS
        assert page.locator("[tabindex]:not([tabindex='0'], [tabindex='-1'])").count() == 0
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), locale="en-GB", viewport={"width": 1200, "height": 740})
