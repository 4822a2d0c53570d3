"""Notifications in a real browser: switched on, shown, opened, switched off. The push service is played, since a
browser without a maker's account has none."""

import json
import time

import pytest

from tests.gateway.actors.test_push import Browser, b64
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_memory import call

pytestmark = needs_chromium
WORDS = {
    "en-GB": {
        "new": "New message",
        "waits": "Waits for your permission: host_exec",
        "why": "Only while this page is open:",
    },
    "ru-RU": {
        "new": "Новое сообщение",
        "waits": "Ждёт вашего разрешения: host_exec",
        "why": "Только пока эта страница открыта:",
    },
}
both = pytest.mark.parametrize("locale", WORDS)
PLAYED = """(() => {
    const kept = () => sessionStorage.played && { toJSON: () => (GIVEN),
        unsubscribe: async () => { delete sessionStorage.played; return true; } };
    PushManager.prototype.getSubscription = async () => kept() || null;
    PushManager.prototype.subscribe = async ({ applicationServerKey }) => {
        sessionStorage.played = applicationServerKey;
        return kept(); };
})()"""
SHOWN = """async () => (await (await navigator.serviceWorker.ready).getNotifications())
    .map(({ title, body, tag, data }) => ({ title, body, tag, data }))"""
HIDE = """() => {
    Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange")); }"""
CLICK = """async () => {
    const [notification] = await self.registration.getNotifications();
    self.dispatchEvent(new NotificationEvent("notificationclick", { notification })); }"""


def play_push_service(page):
    browser = Browser()
    given = {"endpoint": "https://push.example/1", "keys": {"p256dh": b64(browser.public), "auth": b64(browser.auth)}}
    page.add_init_script(PLAYED.replace("GIVEN", json.dumps(given)))
    page.reload()


def switch(page, on, *, words=True):
    """Set the switch in the dialog; whatever it answers stays to be seen."""
    page.wait_for_selector("klaw-chat textarea")
    wait_until(page, "navigator.serviceWorker.ready.then(() => true)")
    page.evaluate("import('/static/views/phone.js').then((view) => view.notifications())")
    page.set_checked("dialog [name=on]", on)
    page.set_checked("dialog [name=words]", words)
    page.click("dialog button.main")


def delivering(page):
    """What plays the browser's own delivery of a push message."""
    session, found = page.context.new_cdp_session(page), []
    session.on("ServiceWorker.workerRegistrationUpdated", lambda told: found.extend(told["registrations"]))
    session.send("ServiceWorker.enable")
    while not found:
        page.wait_for_timeout(20)

    def deliver(message, shown):
        """Until a script finds it shown: under load Chromium loses some deliveries, and says so to nobody."""
        where = {"origin": page.url.split("/#")[0].rstrip("/"), "registrationId": found[0]["registrationId"]}
        deadline = time.monotonic() + HANG_S
        while not page.evaluate(f"({SHOWN})().then({shown})"):
            assert time.monotonic() < deadline, shown
            session.send("ServiceWorker.deliverPushMessage", {**where, "data": json.dumps(message)})
            page.wait_for_timeout(500)

    return deliver


@both
async def test_a_push_is_shown_and_opens_its_chat(tmp_path, locale):
    words = WORDS[locale]

    def look(page, wrong):
        page.context.grant_permissions(["notifications"])
        play_push_service(page)
        assert page.evaluate("localStorage.getItem('klaw.push')") is None
        switch(page, on=True)
        page.wait_for_selector("dialog", state="detached")
        made = page.evaluate("localStorage.getItem('klaw.push')")
        assert page.evaluate("sessionStorage.played") == call(page, "GET", "/push")["key"]
        deliver = delivering(page)
        deliver({"chat": "сад", "title": "Garden", "text": "The ladder is back."}, "(all) => all.length === 1")
        place = "#/chats/%D1%81%D0%B0%D0%B4"
        first = {"title": "Garden", "body": "The ladder is back.", "tag": "сад", "data": place}
        assert page.evaluate(SHOWN) == [first]
        deliver({"chat": "сад"}, "([one]) => one?.title === 'Klaw'")  # in the place of the first
        assert page.evaluate(SHOWN) == [{**first, "title": "Klaw", "body": words["new"]}]
        deliver({"chat": "сад", "title": "Garden", "tool": "host_exec"}, "([one]) => one?.title === 'Garden'")
        assert page.evaluate(SHOWN) == [{**first, "body": words["waits"]}]
        (worker,) = page.context.service_workers
        worker.evaluate(CLICK)
        wait_until(page, "place => location.hash === place", place)
        wait_until(page, "document.querySelector('klaw-chat')?.chat === 'сад'")
        switch(page, on=False)
        page.wait_for_selector("dialog", state="detached")
        assert page.evaluate("[localStorage.getItem('klaw.push'), sessionStorage.getItem('played')]") == [None, None]
        answered = page.evaluate(
            "id => fetch(`/api/v1/push/${id}`, { method: 'DELETE' }).then(({ status }) => status)", made
        )
        assert answered == 404
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), locale=locale, service_workers="allow")


@both
async def test_a_hidden_page_says_what_comes_where_there_is_no_push_service(tmp_path, locale):
    words = WORDS[locale]

    def look(page, wrong):
        page.context.grant_permissions(["notifications"])
        page.add_init_script("PushManager.prototype.subscribe = async () => { throw new Error('no such service'); }")
        page.reload()
        begin_chat(page, "garden")
        say(page, "first")
        page.wait_for_selector("article.assistant:has-text('answer 1')")
        assert page.evaluate(SHOWN) == []
        switch(page, on=True, words=False)
        page.wait_for_selector(f"dialog [role=alert]:has-text('{words['why']} no such service')")
        page.keyboard.press("Escape")
        page.evaluate(HIDE)
        deadline = time.monotonic() + HANG_S
        while not page.evaluate(f"({SHOWN})().then((all) => all.length === 1)"):  # under load Chromium loses some
            assert time.monotonic() < deadline
            call(page, "POST", "/chats/garden/messages", {"text": "another"})
            page.wait_for_timeout(1000)
        assert page.evaluate(SHOWN) == [
            {"title": "Klaw", "body": words["new"], "tag": "garden", "data": "#/chats/garden"}
        ]
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: text_reply(f"answer {len(llm.requests)}")
        await in_browser(look, base(server), locale=locale, service_workers="allow")


@both
async def test_nothing_is_asked_for_before_somebody_switches_it_on(tmp_path, locale):
    def look(page, wrong):
        page.wait_for_selector("klaw-chat textarea")
        wait_until(page, "navigator.serviceWorker.ready.then(() => true)")
        assert page.evaluate("Notification.permission") != "granted"
        assert page.evaluate("navigator.serviceWorker.ready.then((it) => it.pushManager.getSubscription())") is None
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), locale=locale, service_workers="allow")
        assert not (server.home / "config" / "vapid.pem").exists()
