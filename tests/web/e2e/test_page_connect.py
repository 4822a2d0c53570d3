"""Connecting a model on the page, on a phone in both languages."""

import pytest

from klaw.gateway.tokens import add_token, tokens_file
from tests.cli.e2e.test_models_connect import KEY, answer, fresh
from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm
from tests.support.server import served
from tests.support.services.ollama import OllamaModel, OllamaService
from tests.support.services.openai import OpenRouterModel, OpenRouterService
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_memory import call
from tests.web.e2e.test_page_system import log_in

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
LANGUAGES = {
    "en-GB": {"new": "New chat", "connect": "Connect a model", "look": "Show its models", "try": "Try it",
              "use": "Use this model", "key": "is the key right?", "hint": "Connect a larger one",
              "others": "Ask whoever runs", "now": "This chat now uses ollama/qwen3:8b."},
    "ru-RU": {"new": "Новый чат", "connect": "Подключить модель", "look": "Показать модели", "try": "Проверить",
              "use": "Использовать эту модель", "key": "верен ли ключ?",
              "hint": "Подключите большую", "others": "Попросите владельца",
              "now": "Теперь в этом чате отвечает ollama/qwen3:8b."},
}  # fmt: skip
both = pytest.mark.parametrize("locale", LANGUAGES)


def fits(page):
    return page.evaluate(WIDE) == []


def button(page, text):
    return page.locator("dialog button", has_text=text)


@both
async def test_from_the_hint_to_an_answer_with_a_tool_call(tmp_path, locale):
    words = LANGUAGES[locale]
    rows = [OpenRouterModel(id=f"maker/model-{number}").row() for number in range(3000)]

    def look(page, wrong):
        hint = page.locator(".degraded a:visible", has_text=words["hint"])
        hint.wait_for()
        assert fits(page)
        hint.click()
        page.locator("dialog .choice", has_text="OpenRouter").click()
        page.fill("dialog [name=url]", service.address)
        page.fill("dialog [name=key]", "sk-wrong")
        button(page, words["look"]).click()
        page.wait_for_selector("dialog [name=key][aria-invalid]")
        assert words["key"] in page.inner_text("dialog .field:has([name=key]) .error")
        assert fits(page)
        page.fill("dialog [name=key]", KEY)
        button(page, words["look"]).click()
        page.fill("dialog [type=search]", "model-2999")
        assert page.locator("dialog .choice").count() == 1
        assert fits(page)
        page.click("dialog .choice")
        button(page, words["try"]).click()
        page.wait_for_selector("dialog blockquote")
        assert page.inner_text("dialog blockquote") == "It is well."
        assert fits(page)
        button(page, words["use"]).click()
        page.wait_for_selector("dialog", state="detached")
        page.wait_for_selector(".toast:has-text('maker/model-2999')")
        assert page.locator(".degraded:visible", has_text=words["hint"]).count() == 0
        page.evaluate("location.hash = '#/chats'")
        begin_chat(page, "main", words["new"])
        say(page, "What time is it?")
        page.wait_for_selector("article.assistant.text:has-text('It is noon.')")
        assert page.inner_text("klaw-chat .model") == "model-2999"
        assert fits(page)
        assert KEY not in page.content()
        assert wrong == []

    async with serve_llm(OpenRouterService(rows, key=KEY)) as service, served(fresh(tmp_path)) as server:
        service.answer = answer
        await in_browser(look, base(server), locale=locale, viewport=PHONE)
        assert KEY not in server.stderr


def found_here(page, service):
    """Let it stand where discovery would find it on this machine: there, another test may have one."""

    def tell(route):
        told = route.fetch().json()
        for each in told["services"]:
            if each["id"] == "ollama":
                each |= {"found": True, "url": f"{service.root}/v1"}
        route.fulfill(json=told)

    page.route("**/models/services", tell)


@both
@pytest.mark.parametrize("width", [360, 1200])
async def test_a_model_of_this_machine_takes_five_clicks(tmp_path, locale, width):
    words = LANGUAGES[locale]

    def look(page, wrong):
        found_here(page, service)
        hint = page.locator(".degraded a:visible", has_text=words["hint"])
        hint.click()
        page.wait_for_selector("dialog .choice")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        hint.click()  # it opens again
        page.locator("dialog .choice", has_text="Ollama").click()
        page.locator("dialog .choice", has_text="qwen3:8b").wait_for()
        assert page.locator("dialog .choice").count() == 2  # none that only makes vectors
        page.locator("dialog .choice", has_text="qwen3:8b").click()
        button(page, words["try"]).click()
        page.wait_for_selector("dialog blockquote:has-text('It is well.')")
        assert fits(page)
        button(page, words["use"]).click()
        page.wait_for_selector("dialog", state="detached")
        begin_chat(page, "main", words["new"])
        say(page, "What time is it?")
        page.wait_for_selector("article.assistant.text:has-text('It is noon.')")
        assert page.inner_text("klaw-chat .model") == "qwen3:8b"
        another = {"service": "ollama", "url": service.root, "model": "gemma3", "use": ["chats"], "test": False}
        call(page, "POST", "/models/connect", another)
        page.reload()
        page.wait_for_selector("klaw-chat .model:has-text('gemma3')")
        page.click("klaw-chat .model")
        page.locator("dialog .choice", has_text="ollama/qwen3:8b").click()  # the first is there still
        page.wait_for_selector("klaw-chat .model:has-text('qwen3:8b')")
        page.wait_for_selector(f"article.system:has-text('{words['now']}')")
        assert wrong == []

    vectors = OllamaModel(name="nomic", capabilities=("embedding",))
    ollama = OllamaService(OllamaModel(name="qwen3:8b"), OllamaModel(name="gemma3"), vectors)
    async with serve_llm(ollama) as service, served(fresh(tmp_path)) as server:
        service.answer = answer
        await in_browser(look, base(server), locale=locale, viewport={"width": width, "height": 740})


@both
async def test_who_does_not_run_the_server_is_told_whom_to_ask(tmp_path, locale):
    def look(page, wrong):
        log_in(page, token)
        place = page.locator(".degraded:visible", has_text=LANGUAGES[locale]["others"])
        place.wait_for()
        assert place.locator("a").count() == 0
        place.get_by_role("button").click()
        assert page.locator(".degraded:visible", has_text=LANGUAGES[locale]["others"]).count() == 0
        assert wrong == []

    home = fresh(tmp_path)
    token = add_token(tokens_file(home / "config"), "anna", "2026-01-01T00:00:00Z")[1]
    async with served(home) as server:
        await in_browser(look, base(server), locale=locale, viewport=PHONE)
