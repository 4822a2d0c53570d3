"""The page below a path of a host that it shares with others, behind a reverse proxy."""

import pytest

from klaw.gateway.tokens import add_token, tokens_file
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import serve_llm, text_reply
from tests.support.reverse_proxy import reverse_proxy
from tests.support.server import run_klaw, served, write_home
from tests.web.e2e.test_page import begin_chat, say
from tests.web.e2e.test_page_phone import controlled, kept
from tests.web.e2e.test_page_system import log_in

pytestmark = needs_chromium
VIEWS = ("memory", "knowledge", "tasks", "usage", "settings", "system", "access")


@pytest.mark.parametrize("strips", [False, True])
@pytest.mark.parametrize("locale", ["en-GB", "ru-RU"])
async def test_everything_works_below_a_path(tmp_path, strips, locale):
    """33.6: the proxy answers 404 for every other path, and a request past the path is told as wrong."""
    _, token = add_token(tokens_file(tmp_path / "config"), "root", "2026-01-01T00:00:00Z", operator=True)

    def look(page, wrong):
        page.evaluate("caches.open('of another app')")
        log_in(page, token)
        (cookie,) = page.context.cookies()
        assert cookie["path"] == "/home/klaw/"
        begin_chat(page, "garden")
        say(page, "What grows here?")
        page.wait_for_selector("article.assistant:has-text('answer')")
        controlled(page)
        (version,) = kept(page).keys() - {"of another app"}
        assert version.startswith("klaw/home/klaw ")
        assert all(each.startswith("/home/klaw/") for each in kept(page)[version])
        page.reload()
        page.wait_for_selector("article.assistant:has-text('answer')")
        for view in VIEWS:
            page.evaluate("view => { location.hash = `#/${view}`; }", view)
            page.wait_for_selector(f"klaw-{view} h1")
        page.click("[data-key='root Add a phone']")
        wait_until(page, "document.querySelector('dialog .error, dialog img.qr')")
        manifest = page.evaluate(
            """async () => {
                const { href } = document.querySelector("[rel=manifest]"), { start_url, scope, icons } =
                    await (await fetch(href)).json();
                const icon = await fetch(new URL(icons[0].src, href));
                return [new URL(start_url, href).pathname, new URL(scope, href).pathname, icon.status];
            }"""
        )
        assert manifest == ["/home/klaw/", "/home/klaw/", 200]
        described = page.evaluate("fetch('api/openapi.json').then((answer) => answer.json())")
        assert described["servers"] == [{"url": "/home/klaw"}]
        page.keyboard.press("Escape")
        assert wrong == []

    gateway = {"http": {} if strips else {"prefix": "/home/klaw"}}
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url, gateway=gateway)) as server:
        llm.respond = lambda _: text_reply("answer")
        async with reverse_proxy(server.config["gateway"]["port"], "/home/klaw", strips=strips) as base:
            await in_browser(look, f"{base}/", locale=locale, service_workers="allow")
            url = f"{base.replace('http', 'ws')}/ws"
            code, said, _ = await run_klaw("chat", "--url", url, "--token", token, "--chat", "garden", "And there?")
            assert (code, said) == (0, "answer\n")
