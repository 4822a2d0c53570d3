"""The page as axe-core sees it: every view and dialog, light and dark, wide and on a phone, in both languages.

axe-core comes with the wheel axe-playwright-python of the developers' requirements; ``KLAW_AXE`` names another
``axe.min.js``.
"""

import importlib.util
import json
import os
from pathlib import Path

import pytest

from klaw.gateway.tokens import add_token, tokens_file
from tests.cli.e2e.test_models_connect import KEY, answer
from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm
from tests.support.repository import REPOSITORY
from tests.support.server import served
from tests.support.services.openai import OpenRouterModel, OpenRouterService
from tests.web.e2e.test_page import base, say
from tests.web.e2e.test_page_languages import Look, lived_in
from tests.web.e2e.test_page_memory import call


def axe_file() -> Path | None:
    wheel = importlib.util.find_spec("axe_playwright_python")
    folders = [Path(each) for each in (wheel.submodule_search_locations or ()) if wheel] if wheel else []
    places = [Path(os.environ.get("KLAW_AXE", "-")), *(each / "axe.min.js" for each in folders)]
    places.append(REPOSITORY / "node_modules" / "axe-core" / "axe.min.js")
    return next((each for each in places if each.is_file()), None)


AXE = axe_file()
pytestmark = [
    needs_chromium,
    pytest.mark.skipif(AXE is None, reason="axe-core is not there: pip install axe-playwright-python, or set KLAW_AXE"),
]
RUN = """axe.run(document, {resultTypes: ["violations"], runOnly: ONLY}).then((found) => JSON.stringify(found.violations
    .flatMap(({ id, nodes }) => nodes.map((each) => `${id}: ${each.html.slice(0, 160)}: ${each.failureSummary}`))))"""
EVERYTHING = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LEASE = "# Lease\n\nThe lease lasts one year. Notice is given three months before.\n"


class AxeLook(Look):
    """Asks axe-core, too, wherever it looks."""

    def __init__(self, page, locale):
        super().__init__(page, locale)
        self.found = []
        self.browser = page.context.new_cdp_session(page)

    def check(self, name):
        if not self.page.evaluate("'axe' in window"):
            self.evaluate(AXE.read_text())  # as a developer's tool would: the page's policy forbids it a script
        for theme, only in (("light", EVERYTHING), ("dark", ["color-contrast"])):
            self.page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            told = self.evaluate(RUN.replace("ONLY", json.dumps(only)))
            self.found += [f"{name}, {theme}: {each}" for each in json.loads(told)]

    def evaluate(self, script):
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answered = self.browser.send("Runtime.evaluate", asked)
        assert "exceptionDetails" not in answered, answered
        return answered["result"].get("value")

    def close(self):
        self.page.keyboard.press("Escape")
        self.page.wait_for_selector("dialog", state="detached")

    def models(self, service):
        page = self.page
        self.open("settings", "klaw-settings details")
        page.evaluate("document.querySelectorAll('klaw-settings details').forEach((each) => { each.open = true; })")
        page.locator("[data-path='autoRag.topK'] input").fill("0")
        page.click("[data-key=Save]")
        page.wait_for_selector("[data-path='autoRag.topK'] .error:not(:empty)")
        self.check("settings with an error")
        page.evaluate("location.hash = '#/system/connect'")
        page.wait_for_selector("dialog .choice")
        self.check("services")
        page.locator("dialog .choice", has_text="OpenRouter").click()
        page.fill("dialog [name=url]", service.address)
        page.fill("dialog [name=key]", "sk-wrong")
        page.click("dialog button.main")
        page.wait_for_selector("dialog [name=key][aria-invalid]")
        self.check("a wrong key")
        page.fill("dialog [name=key]", KEY)
        page.click("dialog button.main")
        page.wait_for_selector("dialog .choice")
        self.check("models of a service")
        page.click("dialog .choice")
        page.wait_for_selector("dialog .tick")
        self.check("what a model is for")
        page.click("dialog button.main")
        page.wait_for_selector("dialog blockquote")
        self.check("a model that was tried")
        self.close()
        self.open(f"chats/{self.words['chat']}", "article[data-seq='5']")
        page.click("klaw-chat .model")
        page.wait_for_selector("dialog .choice")
        self.check("models of a chat")
        self.close()

    def knowledge(self):
        page = self.page
        self.open("knowledge", "klaw-knowledge header")
        page.click("klaw-knowledge header button.main")
        page.wait_for_selector("dialog form")
        self.check("a new base")
        self.close()
        made = call(page, "POST", "/kb", {"name": f"base {self.locale}"})["base"]["id"]
        self.open(f"knowledge/{made}", ".drop")
        page.set_input_files(
            ".drop input[type=file]", {"name": "lease.md", "mimeType": "text/markdown", "buffer": LEASE.encode()}
        )
        page.wait_for_selector("klaw-knowledge .lines a")
        self.check("a base with a document")
        page.click("klaw-knowledge .drop .menu > button")
        self.check("what a base can be given")
        page.keyboard.press("Escape")
        page.click("klaw-knowledge .lines a")
        page.wait_for_selector(".passage")
        self.check("a document")

    def keys(self):
        page = self.page
        self.open("usage", "klaw-usage figure")
        page.keyboard.press("Control+k")
        page.wait_for_selector("#places [role=option]")
        self.check("go anywhere")
        self.close()
        page.keyboard.press("?")
        page.wait_for_selector("dialog kbd")
        self.check("keys")
        self.close()
        if page.locator("nav .more").is_visible():
            page.click("nav .more")
            self.check("more")
            page.keyboard.press("Escape")
        self.open(f"chats/{self.words['chat']}", "article[data-seq='5']")
        say(page, "/status")
        page.wait_for_selector(".messages:has-text('/status'), pre.shown")
        self.check("a command")
        page.set_input_files("klaw-files input", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a"})
        page.wait_for_selector("klaw-files .chip progress", state="hidden")
        page.context.set_offline(True)
        page.evaluate("document.querySelector('klaw-chat').offline.hidden = false")
        self.check("a file, and offline")
        page.context.set_offline(False)
        page.evaluate("document.querySelector('klaw-chat').offline.hidden = true")
        page.click("klaw-chat header .menu > button")
        self.check("the menu of a chat")
        page.locator("klaw-chat header .menu div button").nth(1).click()
        page.wait_for_selector("dialog input")
        self.check("a new title")
        self.close()


@pytest.mark.parametrize(("locale", "width"), [("ru-RU", 360), ("en-GB", 1200)])
async def test_axe_finds_nothing_to_complain_of(tmp_path, locale, width):
    def look(page, wrong):
        walk = AxeLook(page, locale)
        walk.chat()
        walk.memory()
        walk.rest()
        walk.models(service)
        walk.knowledge()
        walk.keys()
        assert walk.found == []
        assert wrong == []

    def log_in(page, wrong):
        walk = AxeLook(page, locale)
        page.wait_for_selector("#token")
        walk.check("login")
        assert walk.found == []

    rows = [OpenRouterModel(id=f"maker/model-{number}").row() for number in range(20)]
    async with serve_llm() as llm, serve_llm(OpenRouterService(rows, key=KEY)) as service:
        service.answer = answer
        async with served(await lived_in(tmp_path, llm)) as server:
            size = {"width": width, "height": 740}
            await in_browser(look, base(server), locale=locale, viewport=size)
            add_token(tokens_file(server.home / "config"), "anna", "2026-01-01T00:00:00Z")
            await server.kill()
            await server.start()
            await in_browser(log_in, base(server), locale=locale, viewport=size)
