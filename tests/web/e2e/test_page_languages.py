"""Every view of the page in both languages on a phone: not wider than the screen, with a heading, in one language."""

import json
import re

from klaw.domain.names import UserId, chat_id
from klaw.operations.handler import Caller
from klaw.operations.perform import operations, perform, read
from klaw.store.kinds import topic_edits
from tests.support.browser import in_browser, needs_chromium
from tests.support.inside import inside
from tests.support.llm_server import Tool, error_reply, serve_llm, text_reply, tool_reply
from tests.support.server import served, write_home
from tests.support.topics import AT, draft
from tests.support.topics import say as store
from tests.web.e2e.test_page import base, say
from tests.web.e2e.test_page_memory import call

pytestmark = needs_chromium

WIDE = """[...document.querySelectorAll("html, main, .messages, .side, klaw-chat, klaw-memory, .panel, dialog")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.localName)"""
LINES = "klaw-memory:has([href='#/memory/{}'][aria-current]) .lines li"
"""Of that tab, and not of the one before it."""
ENGLISH = re.compile(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b")
RUSSIAN = re.compile(r"[а-яё]{2,} [а-яё]{2,} [а-яё]{2,}", re.IGNORECASE)
FOREIGN = {"ru-RU": ENGLISH, "en-GB": RUSSIAN}
WORDS = {
    "ru-RU": {
        "chat": "сад",
        "said": "Код калитки в саду",
        "made": "На чём основан ответ",
        "menu": "Удалить",
        "person": "Анна",
    },
    "en-GB": {
        "chat": "garden",
        "said": "The code of the gate",
        "made": "Why this answer",
        "menu": "Delete",
        "person": "Anna",
    },
}


def respond(request):
    asked = str(request.messages[-1]["content"])
    if request.messages[-1]["role"] == "tool":
        return text_reply("1")
    if asked == "run":
        return tool_reply(Tool("call_1", "host_exec", json.dumps({"command": "true"})))
    return error_reply(500, message="x") if asked == "fail" else text_reply("1")


class Look:
    """A person who opens one thing after the other and looks at each."""

    def __init__(self, page, locale):
        self.page, self.locale = page, locale
        self.words = WORDS[locale]

    def check(self, name):
        page = self.page
        text = page.evaluate(
            """() => { const shown = document.body.cloneNode(true);
            const data = "pre, code, .quote, .text, .excerpt, td, th, option, .clamp, .findings";
            shown.querySelectorAll(data).forEach((each) => each.remove());
            const walker = document.createTreeWalker(shown, NodeFilter.SHOW_TEXT), said = [];
            while (walker.nextNode()) said.push(walker.currentNode.data);
            return said.join("\\n"); }"""
        )
        assert FOREIGN[self.locale].findall(text) == [], (name, text)
        assert page.evaluate(WIDE) == [], name
        assert page.locator("h1:visible, h1.unseen").count() >= 1, name

    def open(self, path, there):
        self.page.evaluate("path => { location.hash = path }", f"#/{path}")
        self.page.wait_for_selector(there)
        self.check(path)

    def dialog(self, button, there, name):
        button.click()
        self.page.wait_for_selector(f"dialog {there}")
        self.check(name)
        self.page.keyboard.press("Escape")
        self.page.wait_for_selector("dialog", state="detached")

    def chat(self):
        page, chat = self.page, self.words["chat"]
        self.open(f"chats/{chat}", "article[data-seq='5']")
        for seq in (7, 9):  # what has no answer yet is no past
            say(page, self.words["said"])
            page.wait_for_selector(f"article.assistant[data-seq='{seq}']")
        page.locator(f"text={self.words['made']}").last.click()
        page.wait_for_selector("dialog .bar")
        page.fill(".why input", "1")
        page.press(".why input", "Enter")
        page.wait_for_selector(".why [role=status] a")
        page.click("dialog details.cut > summary")
        self.check("made from")
        page.fill(".why input", "999")
        page.press(".why input", "Enter")
        page.wait_for_selector(".why .error:not(:empty)")
        self.check("no such message")
        page.keyboard.press("Escape")
        say(page, "run")
        page.wait_for_selector(".approval pre")
        self.check("approval")
        page.locator(".approval button").first.click()
        page.wait_for_selector(".approval", state="detached")
        say(page, "fail")
        page.wait_for_selector(".live .retry button")
        self.check("failed")
        page.reload()
        page.wait_for_selector(".live .retry button")  # it has no answer still
        page.click("klaw-chat header .menu > button")
        delete = page.locator("klaw-chat header .menu").get_by_text(self.words["menu"], exact=True)
        self.dialog(delete, ".things li", "delete")
        self.open("chats", "li[data-chat]")
        page.fill("input[type=search]", self.words["chat"])
        page.wait_for_selector(".list .excerpt")
        self.check("search")

    def memory(self):
        page = self.page
        call(page, "POST", "/facts", {"text": self.words["said"]})
        call(page, "POST", "/people", {"name": self.words["person"]})
        self.open("memory/facts", LINES.format("facts"))
        assert "mcp:desk" in page.locator(".lines .hint", has_text="mcp:").first.inner_text()  # which program saved it
        self.dialog(page.locator("klaw-memory .row button.main"), "form", "add a fact")
        self.open("memory/people", LINES.format("people"))
        page.locator("klaw-memory .lines a").first.click()
        page.wait_for_selector("klaw-memory .buttons")
        self.check("a person")
        self.open("memory/topics", LINES.format("topics"))
        page.locator("klaw-memory .lines a").first.click()
        page.wait_for_selector("klaw-memory .quote")
        self.check("a topic")
        self.dialog(page.locator("klaw-memory .buttons button").nth(2), ".things li", "forget a topic")

    def rest(self):
        page = self.page
        self.open("tasks", "klaw-tasks header")
        page.click("[data-key='New task']")
        page.fill("dialog [name=when]", "61 * * * *")
        page.wait_for_selector("dialog [name=when] ~ .error:not(:empty)")
        page.click("dialog button.main")
        page.wait_for_selector("dialog [name=message] ~ .error:not(:empty)")
        page.click("dialog details summary")
        self.check("a wrong task")
        task = f"news-{self.locale.lower()}"
        for name, value in (("when", "0 9 * * *"), ("name", task), ("message", self.words["said"])):
            page.fill(f"dialog [name={name}]", value)
        page.click("dialog button.main")
        page.wait_for_selector("dialog", state="detached")
        self.dialog(page.locator(f"[data-key='{task} History']"), "li .quote", "history of a task")
        self.open("tasks/*", "klaw-tasks header a[href='#/tasks']")
        self.open("usage", "klaw-usage figure")
        self.open("system", "klaw-system summary")
        page.click("[data-key$=' Test']")
        page.wait_for_selector("[role=status] .checks dd")
        page.click("[data-key='Check now']")
        page.wait_for_selector(".findings li")
        self.check("system")
        self.open("access", "klaw-access section")
        self.open("import", "klaw-import .drop")
        self.open("backups", "klaw-backups pre")


async def lived_in(tmp_path, llm):
    """A home with talks, topics and a fact in both languages."""
    llm.respond = respond
    tools = {"exec": {"enabled": True, "sandbox": "none"}}
    provider = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
    context = {"context": {"slidingWindow": 2}, "autoRag": {"topK": 1}}
    home = write_home(tmp_path, llm=llm.url, providers={"stub": provider}, tools=tools, **context)
    async with inside(home) as here:
        user = UserId("local")
        saved = read(operations()["fact_add"], {"fields": {"text": "4711", "category": "constructor"}})
        await perform(saved, Caller(user=user, client="mcp:desk"), here.app)
        for locale in WORDS:
            chat, text = WORDS[locale]["chat"], WORDS[locale]["said"]
            said = await store(
                here.app.core.store, f"{text} 1", f"{text} 22", f"{text} 333", "4", "5", user=user, chat=chat
            )
            put = topic_edits.store, user, chat_id(user, chat), [draft(chat, *said)], AT
            await here.app.core.store.writer.run(*put)
    return home


async def test_every_view_in_both_languages_on_a_phone(tmp_path):
    def look(page, wrong):
        walk = Look(page, locale)
        walk.chat()
        walk.memory()
        walk.rest()
        assert wrong == []

    async with serve_llm() as llm, served(await lived_in(tmp_path, llm)) as server:
        for locale in WORDS:
            phone = {"locale": locale, "viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
            await in_browser(look, base(server), **phone)
