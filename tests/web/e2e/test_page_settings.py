"""The page's settings, in a real browser, in both languages and on a phone."""

import pytest
import yaml

from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import serve_llm
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base
from tests.web.e2e.test_page_languages import ENGLISH
from tests.web.e2e.test_page_memory import call

pytestmark = needs_chromium
WORDS = {
    "en-US": {
        "settings": "Settings",
        "search": "Search settings",
        "now": "In effect now: autoRag.topK",
        "later": "In effect after a restart: store.readers",
        "limit": "must be >= 1, got 0",
        "meaning": "At most this many recalled messages in one context.",
        "secret": "must be a reference such as",
        "by hand": "The file was changed and is wrong",
    },
    "ru-RU": {
        "settings": "Настройки",
        "search": "Искать настройки",
        "now": "Уже действует: autoRag.topK",
        "later": "Подействует после перезапуска: store.readers",
        "limit": "должно быть не меньше 1, а не 0",
        "meaning": "Не больше стольких найденных сообщений в одном контексте.",
        "secret": "нужна ссылка, например",
        "by hand": "в нём ошибка",
    },
}
WIDE = "() => document.querySelector('#view').scrollWidth <= document.querySelector('#view').clientWidth"
UNNAMED = """() => [...document.querySelectorAll('klaw-settings :is(input, select, textarea, button)')].filter((each) =>
    !(each.labels?.length || each.getAttribute('aria-label') || each.textContent.trim()))
    .map((each) => each.outerHTML)"""


def row(path):
    return f"[data-path='{path}']"


@pytest.mark.parametrize("locale", WORDS)
async def test_settings_are_found_changed_and_set_back(tmp_path, locale):
    words = WORDS[locale]

    def look(page, wrong):
        page.evaluate("location.hash = '#/system'")
        page.click(f"klaw-system >> text={words['settings']}")
        page.wait_for_selector("klaw-settings details")
        page.fill(f"[aria-label='{words['search']}']", "topK")
        topk = page.locator(row("autoRag.topK"))
        assert topk.is_visible()
        assert words["meaning"] in topk.inner_text()
        assert page.locator("klaw-settings .setting:visible").count() == 1
        topk.locator("input").fill("0")
        page.click("[data-key=Save]")
        page.wait_for_selector(f"{row('autoRag.topK')} .error:not(:empty)")
        assert words["limit"] in topk.inner_text()
        topk.locator("input").fill("5")
        page.click("[data-key=Save]")
        page.wait_for_selector(f"text={words['now']}")
        assert settings(file)["autoRag"]["topK"] == 5
        page.fill(f"[aria-label='{words['search']}']", "store.readers")
        page.locator(f"{row('store.readers')} input").fill("3")
        page.click("[data-key=Save]")
        page.wait_for_selector(f"p.warn:has-text('{words['later']}')")
        page.click("[data-key='Undo the last change']")
        page.wait_for_selector("p.warn", state="detached")
        page.fill(f"[aria-label='{words['search']}']", "topK")
        page.click("[data-key='autoRag.topK Use the default']")
        page.click("[data-key=Save]")
        page.wait_for_selector(f"{row('autoRag.topK')}[data-origin=default]")
        assert settings(file)["autoRag"] == {"timeBudgetMs": 5000}
        assert page.evaluate(UNNAMED) == []
        assert page.evaluate(WIDE)
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        file = server.home / "config" / "engine.yaml"
        await in_browser(look, base(server), locale=locale, viewport={"width": 360, "height": 740})


def settings(file):
    return yaml.safe_load(file.read_text())


async def test_a_provider_is_added_with_a_reference_and_not_with_a_key(tmp_path):
    def look(page, wrong):
        page.evaluate("location.hash = '#/settings'")
        page.fill("[aria-label='Search settings']", "providers")
        page.locator(f"{row('providers')} input").fill("home")
        page.click("[data-key='providers Add']")
        page.locator(f"{row('providers.home.baseUrl')} input").fill("http://127.0.0.1:9/v1")
        page.locator(f"{row('providers.home.apiKey')} input").fill("sk-plain")
        page.click("[data-key=Save]")
        page.wait_for_selector(f"{row('providers.home.apiKey')} .error:has-text('must be a reference')")
        assert "home" not in settings(file)["providers"]
        page.locator(f"{row('providers.home.apiKey')} input").fill("${HOME}")
        page.click("[data-key=Save]")
        page.wait_for_selector(f"{row('providers.home.apiKey')}[data-origin=environment]")
        assert settings(file)["providers"]["home"] == {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "${HOME}"}
        page.click("[data-key='providers.home Remove']")
        page.click("[data-key=Save]")
        wait_until(page, "() => !document.querySelector(\"[data-path='providers.home.apiKey']\")")
        page.wait_for_selector("text=In effect now: providers.home")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        file = server.home / "config" / "engine.yaml"
        await in_browser(look, base(server), locale="en-US")


@pytest.mark.parametrize("locale", WORDS)
async def test_two_pages_change_different_settings_and_lose_none(tmp_path, locale):
    now = WORDS[locale]["now"].partition(" autoRag")[0]

    def look(page, wrong):
        other = page.context.new_page()
        other.goto(page.url)
        for each in (page, other):
            each.evaluate("location.hash = '#/settings'")
            each.wait_for_selector("klaw-settings details")
            each.evaluate("document.querySelectorAll('klaw-settings details').forEach((each) => { each.open = true; })")
        tree = settings(file)
        file.write_text(f"# by hand\nchats: {{maxPerUser: 77}}\n{yaml.safe_dump(tree)}")
        for each, path, value in ((page, "autoRag.topK", "5"), (other, "llm.maxReplyTokens", "99")):
            each.locator(f"{row(path)} input").fill(value)
            each.click("[data-key=Save]")
            each.wait_for_selector(f"text={now} >> text={path}")
        made = settings(file)
        assert (made["autoRag"]["topK"], made["llm"]["maxReplyTokens"], made["chats"]["maxPerUser"]) == (5, 99, 77)
        assert file.read_text().startswith("# by hand\n")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        file = server.home / "config" / "engine.yaml"
        await in_browser(look, base(server), locale=locale)


@pytest.mark.parametrize("locale", WORDS)
async def test_a_mistake_made_by_hand_is_told_and_not_in_effect(tmp_path, locale):
    words = WORDS[locale]

    def look(page, wrong):
        tree = settings(file)
        file.write_text(yaml.safe_dump({**tree, "autoRag": {"topK": "many"}}))
        call(page, "POST", "/config/reload")
        page.evaluate("location.hash = '#/settings'")
        page.wait_for_selector("klaw-settings details")
        told = page.inner_text("klaw-settings > .error[role=alert]")
        assert words["by hand"] in told
        assert "autoRag.topK" in told
        if locale == "ru-RU":
            assert ENGLISH.findall(told) == []
        file.write_text(yaml.safe_dump(tree))
        call(page, "POST", "/config/reload")
        page.reload()
        page.wait_for_selector("klaw-settings details")
        assert page.locator("klaw-settings > .error").count() == 0
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        file = server.home / "config" / "engine.yaml"
        await in_browser(look, base(server), locale=locale, viewport={"width": 360, "height": 740})
