"""Hostile texts everywhere at once: whatever people, models, providers and files say is text. Nothing of it runs or is
requested, and each view is still there, on a phone."""

import json
from urllib.parse import quote

from tests.support.attacks import ATTACKS
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.exports import chatgpt_export, talk
from tests.support.llm_server import Reasoning, Reply, Text, Tool, serve_llm, text_reply, tool_reply
from tests.support.server import served, write_home
from tests.support.services.openai import OpenRouterModel, OpenRouterService
from tests.web.e2e.test_page import WHY, base, begin_chat, say
from tests.web.e2e.test_page_import import choose
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_memory import call
from tests.web.e2e.test_page_newcomer import entry
from tests.web.e2e.test_page_notifications import CLICK, SHOWN, delivering, play_push_service, switch

pytestmark = needs_chromium

WHOLE, SHORT = "\n\n".join(ATTACKS), [each for each in ATTACKS if "\n" not in each]
NAMED = "<img/src=x/onerror=window.hit=1>"
MADE = """() => [...document.body.querySelectorAll(`script, iframe, object, embed, base, meta, style, [onerror],
    [onload], [onmouseover], a[href^="javascript:" i], a[href^="vbscript:" i], a[href^="data:" i],
    img:not([src^="/api/"], [src^="blob:"], [src^="/static/"], [src^="data:image/"])`)].map((each) => each.outerHTML)"""

PICTURE = """data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg" onload="window.hit=1"/>"""


def respond(request):
    asked, title = request.last_user, "Write a title" in str(request.messages[0]["content"])
    if title:
        return text_reply(SHORT[1])
    if request.messages[-1]["role"] == "tool":
        return Reply(steps=(Reasoning(WHOLE), Text(WHOLE)))
    if asked == "run":
        return tool_reply(Tool("call_1", "host_exec", json.dumps({"command": f"echo '{SHORT[0]}'"})))
    if asked == "search":
        return tool_reply(Tool("call_2", "memory_search", json.dumps({"query": SHORT[1]})))
    return Reply(steps=(Reasoning(WHOLE), Text(WHOLE)))


class Look:
    """Someone who opens one thing after the other, and looks whether all is well."""

    def __init__(self, page, wrong):
        self.page, self.wrong = page, wrong
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))

    def check(self, name):
        page = self.page
        assert page.evaluate("window.hit") is None, name
        assert page.evaluate(MADE) == [], name
        assert page.evaluate(WIDE) == [], name
        assert page.locator("h1:visible, h1.unseen").count() >= 1, name
        assert self.wrong == [], name

    def open(self, path, there):
        self.page.evaluate("path => { location.hash = path; }", f"#/{path}")
        self.page.wait_for_selector(there)
        self.check(path)

    def over(self, name, there, opening):
        """Something that is opened over a view, and closed again."""
        opening()
        self.page.wait_for_selector(f"dialog {there}")
        self.check(name)
        self.page.keyboard.press("Escape")
        self.page.wait_for_selector("dialog", state="detached")


def fill(page):
    """Put the texts wherever an API takes them."""

    def made(path, body):
        told = call(page, "POST", path, body)
        assert "code" not in told, told
        return told

    for number, attack in enumerate(SHORT):
        made(f"/chats/chat-{number}/messages", {"text": attack})
        made(f"/chats/chat-{number}/rename", {"title": attack[:200]})
        made("/facts", {"text": attack, "importance": 95})
        made("/people", {"name": attack[:80], "aliases": [f"{attack[:70]} 2"], "relation": attack[:80]})
    made("/remind", {"text": SHORT[0], "when": "tomorrow at 9", "chat": "chat-0"})
    base_id = made("/kb", {"name": SHORT[1][:60], "description": WHOLE[:300]})["base"]["id"]
    upload = """async ([path, name, text]) => (await fetch(`/api/v1${path}?name=${encodeURIComponent(name)}`,
        { method: "POST", body: text })).json()"""
    told = page.evaluate(upload, [f"/kb/{base_id}/files", "<img src=x onerror=window.hit=1>.md", WHOLE])
    assert "code" not in told, told
    return base_id


async def test_nothing_of_hostile_texts_runs_or_is_requested_in_any_view(tmp_path):
    rows = [OpenRouterModel(id=each[:100]).row() for each in SHORT]

    def look(page, wrong):
        walk = Look(page, wrong)
        of_base = fill(page)
        begin_chat(page, "main")
        page.set_input_files(
            "klaw-files input[type=file]",
            {"name": "<img src=x onerror=window.hit=1>.txt", "mimeType": "text/plain", "buffer": WHOLE.encode()},
        )
        wait_until(page, "document.querySelectorAll('klaw-files .chip progress[hidden]').length === 1")
        walk.check("a file before it is sent")
        say(page, WHOLE)
        page.wait_for_selector("article.assistant.text[data-seq='2'] details.thinking")
        page.click("article.assistant[data-seq='2'] details.thinking summary")
        wait_until(page, "!document.querySelector('article.assistant[data-seq] .plain.text:not(.thinking *)')")
        walk.check("a chat")
        for asked, there in (("run", ".approval pre"), ("search", ".call[data-state] summary")):
            say(page, asked)
            page.wait_for_selector(there)
            walk.check(asked)
            if asked == "run":
                page.locator(".approval button").first.click()
                page.wait_for_selector(".approval", state="detached")
            page.wait_for_selector(".doing button", state="hidden")
        page.click(".call[data-call=call_2] summary")
        walk.check("an open call")
        for command in (
            "/memory",
            "/people",
            "/chats",
            f"/people {SHORT[1]}",
            f"/rename {SHORT[1]}",
            f"/model {SHORT[1]}",
            f"/{SHORT[1]}",
        ):
            say(page, command)
            wait_until(page, "!document.querySelector('.shown')?.textContent.startsWith('…')")
            walk.check(command)
        edited(page)
        walk.check("variants")
        answer = page.locator("article.assistant.text[data-seq]", has=page.locator("footer button", has_text=WHY)).first
        walk.over("why", ".bar", lambda: answer.locator("footer button", has_text=WHY).click())
        entry(page, "Забыть", "article.user[data-seq]")
        page.wait_for_selector("dialog ul.things")
        walk.check("forgetting")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        views(walk, of_base)
        assert wrong == []

    async with serve_llm() as llm, serve_llm(OpenRouterService(rows)) as service:
        llm.respond = respond
        provider = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}, NAMED: {}}}
        parts = {"tools": {"exec": {"enabled": True, "sandbox": "none"}}, "context": {"slidingWindow": 2}}
        home = write_home(tmp_path, providers={"stub": provider, "other": {"baseUrl": service.address}}, **parts)
        async with served(home) as server:
            await in_browser(look, base(server), locale="ru-RU", viewport={"width": 360, "height": 740})


IDLE = "async () => (await (await fetch('/api/v1/chats/main/status')).json()).state === 'idle'"


def edited(page):
    """The last message was no command, and is answered first."""
    page.wait_for_selector("article.assistant:last-child footer button")
    wait_until(page, IDLE)
    seq = page.locator("article.user[data-seq]:has(button.edit)").first.get_attribute("data-seq")
    page.click(f"article.user[data-seq='{seq}'] button.edit")
    page.fill(f"article.user[data-seq='{seq}'] form textarea", f"{WHOLE} 2")
    page.click(f"article.user[data-seq='{seq}'] form button.main")
    page.wait_for_selector("article.user .variants:has-text('2/2')")
    page.wait_for_selector("article.assistant.text[data-seq]")
    page.wait_for_selector(".doing button", state="hidden")


def views(walk, of_base):
    page = walk.page
    walk.open("chats", ".list li[data-chat=chat-3] .excerpt")
    page.fill(".side input[type=search]", "window.hit")
    page.wait_for_selector(".side li mark")
    walk.check("what a search finds")
    page.fill(".side input[type=search]", "")
    walk.open("chats/chat-1", "article.assistant.text[data-seq]")
    walk.open("memory/facts", "klaw-memory .lines .quote")
    walk.open("memory/people", "klaw-memory .lines strong")
    page.click("klaw-memory .lines a")
    page.wait_for_selector("klaw-memory h1:has-text('hit')")
    walk.check("a person")
    walk.open("tasks", "[data-task='reminder-1'] .clamp")
    walk.over("history of a task", "li .quote", lambda: page.click("[data-key='reminder-1 History']"))
    page.click("[data-key='reminder-1 Run now']")
    page.wait_for_selector("[data-task='reminder-1'] dd a")
    walk.open("tasks/*", "klaw-tasks tbody tr")
    walk.open("knowledge", "klaw-knowledge .cards h2 a")
    walk.open(f"knowledge/{of_base}", "klaw-knowledge section a:has-text('.md')")
    page.click("klaw-knowledge section a:has-text('.md')")
    page.wait_for_selector(".passage")
    walk.check("a document")
    walk.open("usage", "klaw-usage figure")
    walk.open("system", "klaw-system .cards")
    walk.open("settings", "klaw-settings details")
    page.evaluate("document.querySelectorAll('klaw-settings details').forEach((each) => { each.open = true; })")
    walk.check("all settings")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#places [role=option]")
    page.keyboard.type("window.hit")
    page.wait_for_selector("#places mark")
    walk.check("go anywhere")


async def test_nothing_of_hostile_names_runs_in_imports_lists_and_codes(tmp_path):
    rows = [OpenRouterModel(id=each[:100]).row() for each in SHORT]
    people = tmp_path / "WhatsApp Chat with <img src=x onerror=window.hit=1>.txt"
    names = [f"<img src=x onerror=window.hit={number}>" for number in range(3)]
    people.write_text("".join(f"25.03.2024, 11:00 - {name}: {SHORT[0]}\n" for name in names))
    talks = [talk("c1", SHORT[0], SHORT[1], WHOLE), {SHORT[1]: 1}]
    export = chatgpt_export(tmp_path, *talks, name="<svg onload=window.hit=1>.zip")
    phone = {"url": SHORT[0], "picture": PICTURE, "addresses": SHORT, "expires_at": "2030-01-01T00:00:00Z"}

    def look(page, wrong):
        walk = Look(page, wrong)
        walk.open("import", "klaw-import .drop")
        choose(page, people)
        page.wait_for_selector("klaw-import .error:has-text('hit=2')")
        walk.check("who is who in an export")
        choose(page, export)
        page.click("klaw-import section[role=status] summary")
        walk.check("what an export holds")
        walk.open("system/connect", "dialog .choice")
        page.locator("dialog .choice", has_text="OpenRouter").click()
        page.fill("dialog [name=url]", f"http://127.0.0.1:9/{NAMED}")
        page.click("dialog button.main")
        page.wait_for_selector("dialog .error:not(:empty)")
        walk.check("a service that does not answer")
        page.fill("dialog [name=url]", service.address)
        page.fill("dialog [name=key]", NAMED)
        page.click("dialog button.main")
        page.wait_for_selector("dialog .choice strong:has-text('hit')")
        walk.check("the models of a service")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        begin_chat(page, "main")
        walk.over("models of a chat", ".choice:has-text('hit')", lambda: page.click("klaw-chat .model"))
        page.route("**/token/phone*", lambda route: route.fulfill(json=phone))
        walk.open("access", "klaw-access h1")
        walk.over("a QR code", "img.qr", lambda: page.click("[data-key$='Add a phone']"))
        page.goto(f"{page.url.split('#')[0]}#/code/{quote(NAMED, safe='')}")
        page.wait_for_selector(".toast")
        walk.check("a code in the address")

    async with serve_llm() as llm, serve_llm(OpenRouterService(rows)) as service:
        provider = {"baseUrl": llm.url, "models": {"echo": {}, NAMED: {}}}
        async with served(write_home(tmp_path / "home", providers={"stub": provider})) as server:
            await in_browser(look, base(server), locale="ru-RU", viewport={"width": 360, "height": 740})


async def test_a_hostile_notification_is_only_text(tmp_path):
    def look(page, wrong):
        page.context.grant_permissions(["notifications"])
        play_push_service(page)
        switch(page, on=True)
        page.wait_for_selector("dialog", state="detached")
        message = {"chat": NAMED, "title": SHORT[0], "text": SHORT[1]}
        delivering(page)(message, "(all) => all.length === 1")
        (shown,) = page.evaluate(SHOWN)
        assert (shown["title"], shown["body"], shown["tag"]) == (SHORT[0], SHORT[1], NAMED)
        (worker,) = page.context.service_workers
        worker.evaluate(CLICK)
        wait_until(page, "name => document.querySelector('klaw-chat')?.chat === name", NAMED)
        Look(page, wrong).check("a chat that a notification opened")

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), service_workers="allow")
