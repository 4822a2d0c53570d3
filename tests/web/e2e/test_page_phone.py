"""The page on a phone: what a finger needs, and an app that opens without a connection."""

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trio

from klaw.api.page import STATIC
from klaw.gateway.tokens import add_token, tokens_file
from tests.support.browser import in_browser, in_trio, needs_chromium, wait_until
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat
from tests.web.e2e.test_page_axe import AxeLook
from tests.web.e2e.test_page_languages import WIDE, Look, lived_in

pytestmark = needs_chromium
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
both = pytest.mark.parametrize("locale", ["en-GB", "ru-RU"])
SMALL = """() => {
    const all = "button, a[href], input:not([type=file], [type=hidden]), select, textarea, summary, [role=option]";
    const inLine = ".text a, .quote a, p a, td a, th a, .cite"; // part of a text, which they would tear apart
    return [...document.querySelectorAll(all)].flatMap((each) => {
        if (!each.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return [];
        if (each.matches(inLine) || each.closest(".unseen")) return [];
        const ticked = each.matches("[type=checkbox], [type=radio]") && each.labels[0];
        const { width, height } = (ticked || each).getBoundingClientRect();
        return Math.min(width, height) >= 43.5 ? [] : [`${each.outerHTML.slice(0, 120)}: ${width} × ${height}`];
    });
}"""


ENTER_SENDS = """(() => {
    const real = matchMedia;
    window.matchMedia = (asked) => asked === "(pointer: fine)" ? { matches: true } : real(asked);
})()"""


class TouchLook(Look):
    """Measures what can be touched, too, wherever it looks."""

    def __init__(self, page, locale):
        super().__init__(page, locale)
        self.found = {}

    def check(self, name):
        super().check(name)
        self.measure(name)

    def measure(self, name):
        for each in self.page.evaluate(SMALL):
            self.found.setdefault(each, name)

    models, knowledge, keys, close = AxeLook.models, AxeLook.knowledge, AxeLook.keys, AxeLook.close


@both
async def test_everything_can_be_touched(tmp_path, locale):
    def look(page, wrong):
        page.add_init_script(ENTER_SENDS)
        page.reload()
        walk = TouchLook(page, locale)
        walk.chat()
        walk.memory()
        walk.rest()
        walk.knowledge()
        walk.keys()
        page.evaluate("location.hash = '#/settings'")
        page.wait_for_selector("klaw-settings details")
        page.evaluate("document.querySelectorAll('klaw-settings details').forEach((each) => { each.open = true; })")
        walk.measure("settings")  # their texts are English
        walk.open("chats/", "klaw-chat .empty button")
        assert walk.found == {}, "\n".join(f"{name}: {each}" for each, name in walk.found.items())
        assert wrong == []

    async with serve_llm() as llm, served(await lived_in(tmp_path, llm)) as server:
        await in_browser(look, base(server), locale=locale, **PHONE)


@both
async def test_five_entries_below_and_the_rest_behind_more(tmp_path, locale):
    def look(page, wrong):
        page.wait_for_selector("klaw-chat textarea")
        entries = page.locator("nav.views > a:visible, nav.views > .more")
        assert entries.count() == 5
        boxes = [each.bounding_box() for each in entries.all()]
        assert all(each["width"] >= 44 and each["height"] >= 44 for each in boxes)
        assert page.evaluate(
            "[...document.querySelectorAll('nav.views > *')].every((e) => e.scrollWidth <= e.clientWidth)"
        )
        page.locator("nav.views .more").tap()
        page.wait_for_selector(".tools:popover-open")
        assert page.evaluate(WIDE) == []
        page.locator(".tools a[href='#/usage']").tap()
        page.wait_for_selector("klaw-usage h1")
        assert page.locator(".tools:popover-open").count() == 0
        page.go_back()
        page.wait_for_selector("klaw-chat textarea")
        assert page.locator(".tools:popover-open").count() == 0
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), locale=locale, **PHONE)


@both
async def test_the_field_is_wide_and_stays_above_the_keyboard(tmp_path, locale):
    def look(page, wrong):
        page.wait_for_selector("klaw-chat textarea")
        assert page.locator("klaw-chat textarea").bounding_box()["width"] >= 240
        assert "interactive-widget=resizes-content" in page.get_attribute("meta[name=viewport]", "content")
        page.set_viewport_size({"width": 360, "height": 340})  # what a keyboard leaves of it
        page.locator("klaw-chat textarea").tap()
        wait_until(page, "document.activeElement.matches('klaw-chat textarea')")
        box = page.locator("klaw-chat textarea").bounding_box()
        assert 0 <= box["y"] < box["y"] + box["height"] <= 340
        assert page.locator("nav.views").is_hidden()
        assert page.evaluate(WIDE) == []
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), locale=locale, **PHONE)


# -- the app ----------------------------------------------------------------------------------------------------------


def controlled(page):
    """Wait until the service worker answers for the page."""
    wait_until(page, "navigator.serviceWorker.controller?.state === 'activated'")


def send(page, text):
    page.fill("textarea", text)
    page.locator(".composer button.main").tap()


def kept(page):
    """What the browser keeps of the page, by the name of the cache."""
    return page.evaluate(
        """async () => Object.fromEntries(await Promise.all((await caches.keys()).map(async (name) =>
            [name, (await (await caches.open(name)).keys()).map(({ url }) => new URL(url).pathname)])))"""
    )


@both
async def test_the_app_opens_without_a_server_and_sends_later(tmp_path, locale):
    killed, written = trio.Event(), trio.Event()

    def look(page, wrong):
        page.wait_for_selector("klaw-chat textarea")
        controlled(page)
        begin_chat(page, "garden")
        send(page, "first")
        page.wait_for_selector("article.assistant:has-text('answer 1')")
        ((version, files),) = kept(page).items()
        assert version.startswith("klaw ")
        assert {"/", "/static/app.js", "/static/ru.json", "/static/code.css"} <= set(files)
        assert all(each == "/" or each.startswith("/static/") for each in files)
        in_trio(killed.set)
        page.wait_for_selector("p.offline:visible")
        page.reload()
        page.wait_for_selector("p.offline:visible")
        send(page, "second")
        page.wait_for_selector("article.unsent:has-text('second')")
        page.evaluate("location.hash = '#/memory'")  # a module that this page has not loaded yet
        page.wait_for_selector("klaw-memory")
        page.evaluate("location.hash = '#/chats/garden'")
        page.wait_for_selector("article.unsent:has-text('second')")
        in_trio(written.set)
        page.wait_for_selector("article.assistant:has-text('answer 2')")
        page.wait_for_selector("article.user:not(.unsent):has-text('second')")
        assert page.locator("article.user:has-text('second')").count() == 1
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, trio.open_nursery() as nursery:
        llm.respond = lambda _: text_reply(f"answer {len(llm.requests)}")
        nursery.start_soon(partial(in_browser, look, base(server), locale=locale, service_workers="allow", **PHONE))
        await killed.wait()
        await server.kill()
        await written.wait()
        await server.start()


WORKER = 'const OWN = "klaw ", VERSION = "klaw {0}", FILES = ["/", "/static/app.js"];\n'
VERSION = "<!doctype html><title>{0}</title><script src='/static/app.js'></script>"


class Versions(BaseHTTPRequestHandler):
    """A server whose page has versions."""

    def do_GET(self):
        version, script = self.server.version, (STATIC / "sw.js").read_text()
        files = {
            "/": ("text/html", VERSION.format(version)),
            "/static/app.js": ("text/javascript", f"window.module = {json.dumps(version)};"),
            "/sw.js": ("text/javascript", WORKER.format(version) + script),
        }
        kind, body = files.get(self.path, ("text/plain", version))
        self.send_response(503 if self.server.broken else 200)
        self.send_header("content-type", kind)
        self.send_header("cache-control", "no-cache")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


async def test_a_new_version_is_taken_at_the_next_load(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Versions)
    server.version, server.broken = "one", False
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def look(page, wrong):
        page.evaluate("caches.open('another app')")
        page.evaluate("void navigator.serviceWorker.register('/sw.js', { updateViaCache: 'none' })")
        controlled(page)
        page.reload()
        assert (page.title(), page.evaluate("window.module")) == ("one", "one")
        assert page.evaluate("fetch('/api/v1/me').then((answer) => answer.text())") == "one"
        server.version = "two"
        page.reload()
        assert (page.title(), page.evaluate("window.module")) == ("two", "two")
        wait_until(page, "caches.keys().then((names) => names.join() === 'another app,klaw two')")
        server.version, server.broken = "a proxy's page", True
        page.reload()
        assert (page.title(), page.evaluate("window.module")) == ("two", "two")
        assert page.evaluate("fetch('/api/v1/me').then((answer) => answer.status)") == 503
        server.version, server.broken = "three", False
        page.reload()
        assert (page.title(), page.evaluate("window.module")) == ("three", "three")
        assert kept(page).keys() <= {"another app", "klaw two", "klaw three"}

    try:
        await in_browser(look, f"http://127.0.0.1:{server.server_port}", service_workers="allow")
    finally:
        server.shutdown()
        server.server_close()


@both
async def test_logging_out_leaves_nothing_behind(tmp_path, locale):
    home = write_home(tmp_path)
    _, token = add_token(tokens_file(home / "config"), "anna", "2026-01-01T00:00:00Z")
    more = {"en-GB": ("More", "Log out"), "ru-RU": ("Ещё", "Выйти")}[locale]

    def look(page, wrong):
        page.fill("#token", token)
        page.press("#token", "Enter")
        page.wait_for_selector("klaw-chat textarea")
        controlled(page)
        page.fill("textarea", "a draft")
        wait_until(page, "Object.values(localStorage).includes('a draft')")
        page.locator("nav.views .more", has_text=more[0]).click()
        page.locator(".tools button", has_text=more[1]).click()
        page.wait_for_selector("#token")
        assert kept(page) == {}
        assert page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
        assert set(page.evaluate("Object.keys(localStorage)")) <= {"klaw.theme", "klaw.language"}
        assert wrong == []

    async with served(home) as server:
        await in_browser(look, base(server), locale=locale, service_workers="allow", **PHONE)


@both
async def test_the_manifest_makes_it_an_app(tmp_path, locale):
    def look(page, wrong):
        page.wait_for_selector("klaw-chat textarea")
        if locale == "ru-RU":
            page.wait_for_selector("[rel=manifest][href*=ru]", state="attached")
        browser = page.context.new_cdp_session(page)
        found = browser.send("Page.getAppManifest")
        assert found["errors"] == []
        manifest = json.loads(found["data"])
        assert manifest["display"] == "standalone"
        new = {"en-GB": "New chat", "ru-RU": "Новый чат"}[locale]
        assert [each["name"] for each in manifest["shortcuts"]] == [new]
        for icon in manifest["icons"]:
            size = page.evaluate(
                """async (src) => { const picture = new Image(); picture.src = src; await picture.decode();
                return `${picture.naturalWidth}x${picture.naturalHeight}`; }""",
                icon["src"],
            )
            assert size == icon["sizes"]
        wrong_of_it = browser.send("Page.getInstallabilityErrors")["installabilityErrors"]
        assert {each["errorId"] for each in wrong_of_it} <= {"in-incognito"}  # as all windows of playwright
        page.evaluate("url => { location.href = url; }", manifest["shortcuts"][0]["url"])
        page.wait_for_selector("klaw-chat .empty")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), locale=locale, service_workers="allow", **PHONE)
