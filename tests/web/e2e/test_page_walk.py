"""A walk of tasks that people have, in both languages, at a desk and on a phone. Clicks and keys are counted in the
browser, but for the typing of texts: a task takes no more of them than it does today."""

import base64
import json
import re
from contextlib import contextmanager

import pytest
import trio

from klaw.gateway.tokens import add_token, tokens_file
from klaw.operations.host.token import own_addresses
from tests.cli.e2e.test_models_connect import answer, fresh
from tests.support.browser import in_browser, in_trio, needs_chromium, wait_until
from tests.support.documents import pdf
from tests.support.exports import chatgpt_export, talk
from tests.support.llm_server import Hang, Reply, Text, Tool, serve_llm, text_reply, tool_reply
from tests.support.repository import REPOSITORY
from tests.support.server import served, write_home
from tests.support.services.ollama import OllamaModel, OllamaService
from tests.web.e2e.test_page import base
from tests.web.e2e.test_page_connect import found_here
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_memory import call
from tests.web.e2e.test_page_system import log_in

pytestmark = needs_chromium

RUSSIAN = json.loads((REPOSITORY / "klaw" / "web" / "static" / "ru.json").read_text())
DESK = {"locale": "en-GB", "viewport": {"width": 1100, "height": 800}}
PHONE = {"locale": "ru-RU", "viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
COUNT = """(() => {
    const more = () => sessionStorage.setItem("walk", Number(sessionStorage.getItem("walk")) + 1);
    addEventListener("pointerdown", more, true);
    addEventListener("keydown", ({ key, ctrlKey }) => (ctrlKey ? key !== "Control" : key.length > 1) && more(), true);
})()"""
DROP = """([place, name, data]) => {
    const carried = new DataTransfer();
    carried.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name));
    document.querySelector(place).dispatchEvent(
        new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: carried }));
}"""
COMMAND = "echo 'two  words'"
CODE = "print('два')"
NETWORK = own_addresses("ws://0.0.0.0:1/ws")
both = pytest.mark.parametrize("how", [DESK, PHONE], ids=["en-desk", "ru-phone"])


class Walk:
    """A person at the page."""

    def __init__(self, page, how):
        self.page, self.is_phone, self.locale = page, how is PHONE, how["locale"]
        page.add_init_script(COUNT)
        page.reload()
        page.wait_for_selector("klaw-chat textarea")

    def __call__(self, text):
        """A text of the page in its language."""
        return RUSSIAN[text] if self.is_phone else text

    def own(self, english, russian):
        return russian if self.is_phone else english

    @contextmanager
    def task(self, desk, phone):
        """Something that takes so many clicks and keys at most."""
        before = self.page.evaluate("Number(sessionStorage.getItem('walk'))")
        yield
        taken = self.page.evaluate("Number(sessionStorage.getItem('walk'))") - before
        assert taken <= (phone if self.is_phone else desk)
        assert self.page.evaluate(WIDE) == []

    def button(self, text, place="body"):
        return self.page.locator(place).get_by_role("button", name=self(text), exact=True)

    def chosen(self, text, place):
        """Choose an entry of a menu."""
        self.page.click(f"{place} .menu > button")
        self.page.locator(f"{place} .menu div button").get_by_text(self(text), exact=True).click()

    def to(self, view):
        """Go to a view by the menu, which has some behind “More” on a phone."""
        link = self.page.locator("nav.views a:visible", has_text=self(view))
        if not link.count():
            self.page.click("nav.views .more")
        link.click()

    def write(self, text):
        if self.is_phone:
            self.page.tap("klaw-chat .composer textarea")
        self.page.fill("klaw-chat .composer textarea", text)
        if self.is_phone:
            self.page.tap("klaw-chat .composer button.main")
        else:
            self.page.press("klaw-chat .composer textarea", "Enter")

    def ask(self, text, told):
        """Say something, and wait for the whole answer. Returns its number."""
        self.write(text)
        self.page.locator("article.assistant.text[data-seq]", has_text=told).wait_for()
        self.idle()
        found = [each for each in self.said() if each["role"] == "assistant" and told in each["content"]]
        return found[-1]["seq"]

    def idle(self):
        self.page.wait_for_selector(".doing button", state="hidden")
        wait_until(
            self.page,
            "async chat => (await (await fetch(`/api/v1/chats/${chat}/status`)).json()).state === 'idle'",
            self.chat,
        )

    @property
    def chat(self):
        return re.search(r"#/chats/([^/]+)", self.page.url)[1]

    def said(self):
        return call(self.page, "GET", f"/chats/{self.chat}/messages?limit=100")["messages"]

    def gone(self, what):
        self.page.wait_for_selector(what, state="detached")


def respond(request):
    asked, model = request.last_user, request.body["model"]
    if "Write a title" in str(request.messages[0]["content"]):
        return text_reply("")
    if request.messages[-1]["role"] == "tool":
        return text_reply(f"It said: {request.messages[-1]['content']}")
    if asked.startswith("The "):
        return text_reply("Noted.")
    if asked.startswith("run"):
        return tool_reply(Tool("call_1", "host_exec", json.dumps({"command": COMMAND})))
    if asked.startswith("count"):
        return Reply(steps=(Text("One, two, "), Hang()))
    return text_reply(f"```python\n{CODE}\n```" if asked.startswith("code") else f"{model} heard: {asked}")


@both
async def test_talking(tmp_path, how):
    def look(page, wrong):
        walk = Walk(page, how)
        first_question(walk)
        copy_code(walk)
        edit_the_second_of_five(walk, llm)
        another_model(walk, llm)
        why(walk)
        approve(walk, llm)
        stop_and_go_on(walk)
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = respond
        provider = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}, "big": {"tools": True}}}
        parts = {"tools": {"exec": {"enabled": True, "sandbox": "none"}}, "context": {"slidingWindow": 2}}
        async with served(write_home(tmp_path, providers={"stub": provider}, **parts)) as server:
            await in_browser(look, base(server), **how)


def first_question(walk):
    with walk.task(desk=1, phone=2):
        assert walk.is_phone or walk.page.evaluate("document.activeElement.matches('klaw-chat textarea')")
        walk.write("code for me, please")
        walk.page.wait_for_selector("article.assistant[data-seq] .block pre")
    walk.idle()
    (chat,) = call(walk.page, "GET", "/chats")["chats"]
    assert (chat["name"], chat["title"]) == (walk.chat, "code for me, please")


def copy_code(walk):
    walk.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    with walk.task(desk=1, phone=1):
        walk.page.click("article.assistant[data-seq] .block .copy")
        wait_until(walk.page, "async code => (await navigator.clipboard.readText()).trim() === code", CODE)


def edit_the_second_of_five(walk, llm):
    page = walk.page
    things = ["ladder", "wheelbarrow", "rake", "bucket", "spade"]
    seqs = [walk.ask(f"Where is the {each}?", f"heard: Where is the {each}?") for each in things]
    with walk.task(desk=2, phone=2):
        row = f"article.user[data-seq='{seqs[1] - 1}']"
        page.locator(f"{row} footer").get_by_role("button", name=walk("Edit")).click()
        page.fill(f"{row} form textarea", "Where is the lantern?")
        page.click(f"{row} form button.main")
        page.locator("article.assistant.text[data-seq]", has_text="heard: Where is the lantern?").wait_for()
    walk.idle()
    walk.page.locator("article", has_text="spade").wait_for(state="detached")
    assert [each["content"] for each in walk.said() if each["role"] == "user"][-2:] == [
        "Where is the ladder?",
        "Where is the lantern?",
    ]
    for each in things[1:]:
        assert call(page, "GET", f"/search?query={each}")["results"] == []
    walk.ask("Who has the ladder and the wheelbarrow?", "heard: Who has the ladder")
    recall = call(page, "GET", f"/receipt?chat={walk.chat}")["receipt"]["recall"]
    assert recall["candidates"]
    assert not {each["seq"] for each in recall["candidates"]} & {*range(seqs[1] - 1, seqs[4] + 1)}
    assert "spade" not in json.dumps(llm.requests[-1].body)


def another_model(walk, llm):
    seq = walk.ask("Who are you?", "echo heard: Who are you?")
    with walk.task(desk=3, phone=3):
        walk.chosen("Answer again with …", f"article.assistant[data-seq='{seq}']")
        walk.page.locator("dialog .choice", has_text="stub/big").click()
        walk.page.locator("article.assistant.text[data-seq]", has_text="big heard: Who are you?").wait_for()
    walk.idle()
    assert walk.said()[-1]["variant"] == {"number": 2, "count": 2}
    assert llm.requests[-1].body["model"] == "big"


def why(walk):
    seq = walk.said()[-1]["seq"]
    with walk.task(desk=2, phone=2):
        walk.button("Why this answer", f"article[data-seq='{seq}']").click()
        walk.page.wait_for_selector("dialog .bar")
        assert "stub/big" in walk.page.inner_text("dialog .dialog-body")
        walk.button("Close", "dialog").click()
        walk.gone("dialog")


def approve(walk, llm):
    walk.write("run it")
    with walk.task(desk=1, phone=1):
        walk.page.wait_for_selector(".approval pre")
        assert walk.page.inner_text(".approval pre").endswith(COMMAND)
        walk.button("Allow", ".approval").click()
        walk.page.locator("article.assistant.text[data-seq]", has_text="It said").wait_for()
    walk.idle()
    assert "two  words" in llm.requests[-1].messages[-1]["content"]


def stop_and_go_on(walk):
    walk.write("count to a million")
    with walk.task(desk=2, phone=3):
        walk.page.wait_for_selector(".live article:has-text('One, two')")
        if walk.is_phone:
            walk.button("Stop", ".doing").click()
        else:
            walk.page.keyboard.press("Escape")
        walk.page.locator("article.assistant.text[data-seq]", has_text="One, two").wait_for()
        walk.page.wait_for_selector(".doing button", state="hidden")
        walk.ask("And now?", "heard: And now?")
    assert walk.said()[-1]["content"].endswith("heard: And now?")


@both
async def test_keeping_order(tmp_path, how):
    def look(page, wrong):
        walk = Walk(page, how)
        wait_until(page, "async () => (await (await fetch('/api/v1/me')).json()).zone === 'Asia/Tokyo'")
        for chat, text in (("garden", "The ladder stands behind the shed"), ("travel", "The train leaves at noon")):
            call(page, "POST", f"/chats/{chat}/messages", {"text": text})
        temporary(walk)
        find_and_open(walk)
        forget(walk)
        pin_and_rename(walk)
        export(walk)
        remind(walk)
        fact(walk)
        setting(walk)
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = respond
        async with served(write_home(tmp_path, llm=llm.url)) as server:
            await in_browser(look, base(server), timezone_id="Asia/Tokyo", **how)


def temporary(walk):
    with walk.task(desk=2, phone=4):
        if walk.is_phone:
            walk.page.click("klaw-chat .back")
        walk.button("Temporary chat").click()
        walk.page.locator("klaw-chat header .badge", has_text=walk("Temporary")).wait_for()
        walk.ask("The plan is a surprise", "Noted.")
    (chat,) = call(walk.page, "GET", f"/chats?chat={walk.chat}")["chats"]
    assert chat["temporary"]
    assert call(walk.page, "GET", "/search?query=surprise")["results"] == []


def find_and_open(walk):
    page = walk.page
    with walk.task(desk=2, phone=3):
        if walk.is_phone:
            page.click("klaw-chat .back")
            page.click(".side input[type=search]")
            page.fill(".side input[type=search]", "ladder")
            page.locator(".side li a[href='#/chats/garden/1']", has=page.locator("mark")).click()
        else:
            page.keyboard.press("Control+k")
            page.wait_for_selector("#places [role=option]")
            page.keyboard.type("ladder")
            page.wait_for_selector("#places [aria-selected=true][href='#/chats/garden/1']")
            page.keyboard.press("Enter")
        page.wait_for_selector("article.found:has-text('behind the shed')")


def remind(walk):
    page = walk.page
    with walk.task(desk=3, phone=3):
        walk.chosen("Remind me", "article.user[data-seq='1']")
        page.wait_for_selector("dialog [name=when]")
        page.fill("dialog [name=when]", walk.own("tomorrow at nine", "завтра в девять"))
        page.wait_for_selector("dialog .times li")
        page.click("dialog button.main")
        walk.gone("dialog")
    (task,) = call(page, "GET", "/schedule")["tasks"]
    assert (task["message"], task["inject_into"]) == ("The train leaves at noon", "travel")
    assert "09:00" in task["next_fires"][0]


def forget(walk):
    page = walk.page
    with walk.task(desk=4, phone=4):
        walk.chosen("Forget", "article.user[data-seq='1']")
        page.wait_for_selector("dialog ul.things")
        page.click("dialog button.danger")
        page.locator("dialog", has_text=walk("A search of all files finds its words nowhere.")).wait_for()
        walk.button("Close", "dialog .buttons").click()
        walk.gone("dialog")
        page.locator("article", has_text="behind the shed").wait_for(state="detached")
    found = call(page, "GET", "/search?query=ladder")["results"]
    assert not found, json.dumps(found, ensure_ascii=False)


def pin_and_rename(walk):
    page, row = walk.page, ".list li[data-chat=travel]"
    if walk.is_phone:
        page.click("klaw-chat .back")
    else:
        page.fill(".side input[type=search]", "")
    page.fill(".side input[type=search]", "")
    with walk.task(desk=5, phone=5):
        page.wait_for_selector(row)
        walk.chosen("Pin", row)
        page.locator(".list .group", has_text=walk("Pinned")).wait_for()
        walk.chosen("Rename", row)
        page.fill("dialog input", "🚂 “Kazan”, 2027!")
        page.click("dialog button.main")
        page.locator(f"{row} .name", has_text="🚂 “Kazan”, 2027!").wait_for()
    (chat,) = call(page, "GET", "/chats?chat=travel")["chats"]
    assert (chat["pinned"], chat["title"]) == (True, "🚂 “Kazan”, 2027!")


def export(walk):
    page = walk.page
    with walk.task(desk=3, phone=3):
        page.click(".list li[data-chat=travel] a")
        page.wait_for_selector("klaw-chat header .menu")
        with page.expect_download() as saved:
            walk.chosen("Save as Markdown", "klaw-chat header")
        text = saved.value.path().read_text()
    assert "The train leaves at noon" in text
    assert text == call(page, "GET", "/chats/travel/export?format=markdown&after=0")["text"]


def fact(walk):
    page = walk.page
    with walk.task(desk=6, phone=7):
        walk.to("Memory")
        walk.button("Add", "klaw-memory").click()
        page.fill("dialog textarea[name=text]", "Anna likes pears")
        page.click("dialog button.main")
        walk.gone("dialog")
        entry = page.locator("klaw-memory .lines li", has_text="Anna likes")
        entry.get_by_role("button", name=walk("Edit")).click()
        page.fill("dialog textarea[name=text]", "Anna likes plums")
        page.click("dialog button.main")
        walk.gone("dialog")
        page.locator("klaw-memory .quote", has_text="plums").wait_for()
        page.evaluate("document.querySelectorAll('.toast:not(:last-of-type)').forEach((each) => each.remove())")
        walk.button("Undo", ".toast").click()
        page.locator("klaw-memory .quote", has_text="pears").wait_for()
    assert [each["text"] for each in call(page, "GET", "/facts")["facts"]] == ["Anna likes pears"]


def setting(walk):
    page, row = walk.page, "[data-path='autoRag.topK']"

    def value():
        return next(
            each["value"] for each in call(page, "GET", "/config")["settings"] if each["path"] == "autoRag.topK"
        )

    before = value()
    with walk.task(desk=4, phone=5):
        walk.to("System")
        page.click("klaw-system [href='#/settings']")
        page.fill("klaw-settings input[type=search]", "topK")
        page.fill(f"{row} input", "3")
        page.click("[data-key=Save]")
        page.wait_for_selector(f"{row}[data-origin=file]")
        assert value() == 3
        page.click("[data-key='Undo the last change']")
        page.wait_for_selector(f"{row}[data-origin=default]")
    assert value() == before


@both
async def test_asking_a_pdf_that_was_dropped(tmp_path, how):
    rent = "The rent is due on the first day of each month."
    notice = "Notice of termination must be given three months before the end of the lease."
    pages = [["Lease of the flat", rent] * 9, ["Notice", notice] * 9]

    def look(page, wrong):
        walk = Walk(page, how)
        with walk.task(desk=6, phone=8):
            walk.to("Knowledge")
            walk.button("New base", "klaw-knowledge").click()
            page.fill("dialog [name=name]", "Flat")
            page.click("dialog button.main")
            page.wait_for_selector(".drop")
            page.evaluate(DROP, [".drop", "lease.pdf", base64.b64encode(pdf(pages)).decode()])
            page.locator("klaw-knowledge section a", has_text="lease.pdf").wait_for()
            walk.button("Ask it in a new chat", "klaw-knowledge").click()
            walk.write("How long before the end must notice of termination be given?")
            page.click("article.assistant .cite:text-is('1')")
            page.locator("dialog .quote", has_text="three months before").wait_for()
            assert re.search(rf"{walk.own('page|p[.]', 'стр|с[.]')}\D*2", page.inner_text("dialog .dialog-body"))
        (cited,) = [each for each in walk.said()[-1]["context_used"]["passages"] if each["cited"]]
        assert (cited["name"], cited["last_page"]) == ("lease.pdf", 2)
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply("Three months [1].")
        async with served(write_home(tmp_path, llm=llm.url)) as server:
            await in_browser(look, base(server), **how)


@both
async def test_connecting_a_model(tmp_path, how):
    def look(page, wrong):
        walk = Walk(page, how)
        found_here(page, service)
        with walk.task(desk=6, phone=7):
            page.click(".degraded a[href='#/system/connect']:visible")
            for name in ("Ollama", "qwen3:8b"):
                page.locator("dialog .choice", has_text=name).click()
            walk.button("Try it", "dialog").click()
            page.wait_for_selector("dialog blockquote:has-text('It is well.')")
            walk.button("Use this model", "dialog").click()
            walk.gone("dialog")
            walk.write("What time is it?")
            page.locator("article.assistant.text[data-seq]", has_text="It is noon.").wait_for()
        assert call(page, "GET", "/models")["default"] == "ollama/qwen3:8b"
        assert wrong == []

    async with serve_llm(OllamaService(OllamaModel(name="qwen3:8b"))) as service, served(fresh(tmp_path)) as server:
        service.answer = answer
        await in_browser(look, base(server), **how)


@both
async def test_writing_through_a_kill_of_the_server(tmp_path, how):
    killed, typed = trio.Event(), trio.Event()

    def look(page, wrong):
        walk = Walk(page, how)
        walk.ask("Hello", "heard: Hello")
        in_trio(killed.set)
        page.wait_for_selector("p.offline:visible")
        with walk.task(desk=1, phone=2):
            walk.write("Are you there?")
            page.wait_for_selector("article.unsent")
            in_trio(typed.set)
            page.locator("article.assistant.text[data-seq]", has_text="heard: Are you there?").wait_for()
        walk.gone("article.unsent")
        walk.idle()
        said = [each["content"] for each in walk.said()]
        assert said == ["Hello", "echo heard: Hello", "Are you there?", "echo heard: Are you there?"]
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, trio.open_nursery() as nursery:
        llm.respond = respond

        async def walking():
            await in_browser(look, base(server), **how)

        nursery.start_soon(walking)
        await killed.wait()
        await server.kill()
        await typed.wait()
        await server.start()
    assert (
        sum(each.last_user == "Are you there?" and "title" not in str(each.messages[0]) for each in llm.requests) == 1
    )


@both
async def test_moving_in_and_adding_a_phone(tmp_path, how):
    home = write_home(tmp_path / "home", gateway={"host": "0.0.0.0"})
    export = chatgpt_export(tmp_path, talk("c1", "Gate", "The gate is green", "Noted."))
    _, root = add_token(tokens_file(home / "config"), "root", "2026-01-01T00:00:00Z", operator=True)

    def look(page, wrong):
        log_in(page, root)
        walk = Walk(page, how)
        move_in(walk, export)
        if NETWORK:
            add_a_phone(walk, wrong)
        assert wrong == []

    async with served(home) as server:
        await in_browser(look, base(server), **how)


def move_in(walk, export):
    page = walk.page
    with walk.task(desk=4, phone=5):
        walk.to("System")
        page.click("klaw-system [href='#/import']")
        page.wait_for_selector("klaw-import button.main:enabled")
        page.evaluate(DROP, ["klaw-import .drop", export.name, base64.b64encode(export.read_bytes()).decode()])
        page.locator("klaw-import section[role=status]", has_text="chatgpt").wait_for()
        assert call(page, "GET", "/chats")["chats"] == []
        walk.button("Import it", "klaw-import").click()
        page.wait_for_selector("klaw-import .lines li")
    assert [each["title"] or each["name"] for each in call(page, "GET", "/chats")["chats"]] == ["Gate"]
    assert "The gate is green" in [each["snippet"] for each in call(page, "GET", "/search?query=gate")["results"]]


def add_a_phone(walk, wrong):
    page = walk.page
    with walk.task(desk=4, phone=5):
        walk.to("System")
        page.click("klaw-system [href='#/access']")
        with page.expect_response("**/token/phone*") as told:
            page.click("[data-key='root Add a phone']")
        page.wait_for_selector("dialog img.qr")
        walk.button("Close", "dialog header").click()
    other = page.context.browser.new_context(locale=walk.locale, viewport=PHONE["viewport"])
    phone = other.new_page()
    phone.on("pageerror", lambda error: wrong.append(str(error)))
    phone.goto(told.value.json()["url"])  # as its camera does
    phone.wait_for_selector("klaw-chat textarea")
    assert call(phone, "GET", "/me")["user"] == "root"
    other.close()
