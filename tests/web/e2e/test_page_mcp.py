"""Adding an MCP server on the page, logging in to it, and removing it, in both languages."""

import pytest

from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.server import served, write_home
from tests.toolbox.actors.mcp.test_oauth import guarded
from tests.web.e2e.test_page import base

__all__ = ["guarded"]
pytestmark = needs_chromium
WORDS = {
    "en-GB": {"add": "Add", "out": "wants a login", "in": "Log in", "works": "works", "remove": "Remove", "yes": "Yes"},
    "ru-RU": {"add": "Добавить", "out": "Нет соединения", "in": "Войти", "works": "работает", "remove": "Убрать",
              "yes": "Да"},
}  # fmt: skip


@pytest.mark.parametrize("locale", WORDS)
async def test_a_server_is_added_logged_in_to_and_removed(tmp_path, guarded, locale):
    words = WORDS[locale]

    def look(page, wrong):
        page.evaluate("location.hash = '#/mcp'")
        page.click(f"klaw-mcp button:has-text('{words['add']}')")
        page.fill("dialog input[name=name]", "tickets")
        page.fill("dialog input[name=url]", f"http://127.0.0.1:{guarded.port}/mcp")
        page.click("dialog button.main")
        page.wait_for_selector(f"klaw-mcp li:has-text('tickets'):has-text('{words['out']}')")
        page.click(f"klaw-mcp li button:has-text('{words['in']}')")
        address = page.get_attribute("dialog a[target=_blank]", "href")
        assert page.request.get(address).ok
        page.keyboard.press("Escape")
        page.wait_for_selector(f"klaw-mcp li:has-text('tickets'):has-text('{words['works']}')")
        page.click(f"klaw-mcp li button:has-text('{words['remove']}')")
        page.click(f"dialog button:has-text('{words['yes']}')")
        wait_until(page, "!document.querySelector('klaw-mcp li')")
        assert wrong == []

    async with served(write_home(tmp_path)) as server:
        await in_browser(look, base(server), locale=locale, viewport={"width": 360, "height": 740})
