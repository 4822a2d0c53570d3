"""The page in a real browser."""

import json
import re

import httpx2
import trio

from klaw.gateway.tokens import add_token, tokens_file
from tests.support.browser import in_browser, in_trio, needs_chromium, wait_until
from tests.support.llm_server import Tool, error_reply, serve_llm, text_reply, tool_reply
from tests.support.server import served, write_home
from tests.support.waiting import until

pytestmark = needs_chromium

WHY = re.compile("Why this answer|На чём основан ответ")


def base(server):
    return server.url.replace("ws://", "http://").removesuffix("/ws")


def begin_chat(page, name, _button=None):
    """Open a chat by its address, as a link does."""
    page.evaluate("name => { location.hash = `#/chats/${encodeURIComponent(name)}`; }", name)
    wait_until(page, "name => document.querySelector('klaw-chat')?.chat === name", name)


def say(page, text):
    page.fill("textarea", text)
    page.keyboard.press("Enter")


async def test_a_chat_on_a_phone_in_russian(tmp_path):
    def look(page, wrong):
        begin_chat(page, "огород", "Новый чат")
        say(page, "Что сажать?")
        page.wait_for_selector("article.assistant li strong")
        assert page.inner_text("article.assistant strong") == "картофель"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert "<script>" in page.inner_text("article.assistant")
        page.reload()
        page.wait_for_selector("article.assistant li strong")
        assert page.locator("article").count() == 2
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: text_reply("Например:\n\n", "- **картофель**\n- `<script>alert(1)</script>`")
        await in_browser(look, base(server), locale="ru-RU", viewport={"width": 360, "height": 740})


async def test_a_chat_that_is_shown_before_the_welcome_is_followed(tmp_path):
    sent, held, asked, links = [], [], [], []

    def hold(client):
        server = client.connect_to_server()
        client.on_message(lambda said: (server.send(said), sent.append(said)))
        server.on_message(lambda said: held.append(said))
        links.append((client, server))

    def let_go():
        [(client, server)] = links
        server.on_message(lambda said: client.send(said))
        for each in held:
            client.send(each)

    def look(page, wrong):
        begin_chat(page, "огород", "New chat")
        say(page, "Что сажать?")
        page.wait_for_selector(".live .retry button")
        page.route_web_socket("**/ws", hold)
        page.route("**/api/v1/chats**", lambda route: asked.append(route))
        page.reload()
        while not (held and asked):
            page.wait_for_timeout(10)
        assert json.loads(sent[0])["chats"] == {}  # hello came before any chat was known
        page.unroute_all()  # lets them go
        page.wait_for_selector("article[data-seq='1']")
        assert page.locator(".live .retry").count() == 0
        let_go()
        page.wait_for_selector(".live .retry button")  # what the answer to a watch brings
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: error_reply(500)
        await in_browser(look, base(server))


async def test_a_killed_server_loses_nothing_that_was_typed(tmp_path):
    killed, typed = trio.Event(), trio.Event()

    def look(page, wrong):
        begin_chat(page, "main", "New chat")
        say(page, "before")
        page.wait_for_selector("article.assistant[data-seq]")
        in_trio(killed.set)
        page.wait_for_selector("p.offline:visible")
        say(page, "while it was away")
        page.wait_for_selector("article.unsent")
        page.fill("textarea", "half a thought")
        in_trio(typed.set)
        page.wait_for_selector("article.assistant[data-seq='4']")
        assert page.locator("article.unsent").count() == 0
        assert page.input_value("textarea") == "half a thought"
        page.reload()
        page.wait_for_selector("article.assistant[data-seq='4']")
        assert page.input_value("textarea") == "half a thought"
        texts = page.locator("article.user .text").all_inner_texts()
        assert texts == ["before", "while it was away"]
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(in_browser, look, base(server))
        await killed.wait()
        await server.kill()
        await typed.wait()
        await server.start()


async def test_logging_in(tmp_path):
    def look(page, wrong):
        page.fill("#token", "klaw_wrong")
        page.click("form button.main")
        page.wait_for_selector(".error:not(:empty)")
        page.fill("#token", secret)
        page.click("form button.main")
        page.wait_for_selector("text=New chat")
        page.click("text=Log out")
        page.wait_for_selector("#token")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        _, secret = add_token(tokens_file(server.home / "config"), "anna", "2026-01-01T00:00:00Z")
        async with httpx2.AsyncClient(base_url=base(server), trust_env=False) as client:

            async def is_refused():
                return (await client.get("/api/v1/me")).status_code == 401

            await until(is_refused)
        await in_browser(look, base(server))


async def test_what_can_be_done_with_a_chat(tmp_path):
    """Tools folded, permissions, search, export, archive and deletion, and a second tab that follows."""
    command = "wc -w 'мой текст.md'"

    def respond(request):
        if request.messages[-1]["role"] == "tool":
            return text_reply("Готово.")
        if request.last_user == "Сколько слов?":
            return tool_reply(Tool("call_1", "host_exec", json.dumps({"command": command})))
        if request.last_user == "Который час?":
            return tool_reply(Tool("call_0", "current_time", json.dumps({"zone": "Europe/Moscow"})))
        return text_reply("Вы сказали: пион")

    def entry(page, word, place="klaw-chat header"):
        page.click(f"{place} .menu > button")
        page.click(f"{place} .menu >> text={word}")

    def look(page, wrong):
        begin_chat(page, "огород", "New chat")
        say(page, "Мой любимый цветок: пион")
        page.wait_for_selector("article.assistant[data-seq='2']")
        say(page, "Который час?")
        page.wait_for_selector("article.assistant.text[data-seq='6']")
        assert page.locator(".call pre:not(.result)").text_content() == '{\n  "zone": "Europe/Moscow"\n}'
        assert page.locator("details[open]").count() == 0

        other = page.context.new_page()
        other.goto(page.url)
        other.wait_for_selector("article[data-seq='6']")
        entry(page, "Start fresh")
        other.wait_for_selector("article[data-seq='8']")
        page.bring_to_front()  # a tab behind is drawn once a second

        say(page, "Сколько слов?")
        page.wait_for_selector(".approval pre")
        told = page.inner_text(".approval pre")
        assert told.endswith(command)
        page.reload()
        page.wait_for_selector(".approval pre")
        page.evaluate("location.hash = '#/chats'")
        page.get_by_text("What's on your mind?", exact=True).wait_for()
        page.click("li a")
        page.wait_for_selector(".approval pre")
        assert page.inner_text(".approval pre") == told
        page.click(".approval >> text=Refuse")
        page.wait_for_selector(".call[data-state=failed]")
        page.wait_for_selector("p.state:empty", state="attached")

        with page.expect_download() as saved:
            entry(page, "Save as Markdown")
        assert saved.value.suggested_filename == "огород.md"
        assert "Мой любимый цветок: пион" in saved.value.path().read_text()

        page.fill("input[type=search]", "пион")
        page.click("li a:has(mark) >> nth=-1")
        page.wait_for_selector("article.found")
        page.go_back()
        page.wait_for_url("**/#/chats/*")
        page.fill("input[type=search]", "")
        page.wait_for_selector("li[data-chat]")
        page.click("li .menu > button")
        page.keyboard.press("Escape")
        assert page.locator(":popover-open").count() == 0

        entry(page, "Archive", "li")
        page.wait_for_selector("text=No chats yet")
        page.click("text=Archived chats")
        entry(page, "Delete", "li")
        page.wait_for_selector("dialog ul.things >> text=огород")
        page.click("dialog button.main")
        page.wait_for_selector("text=A search of all files finds its words nowhere.")
        page.keyboard.press("Escape")
        page.wait_for_selector("text=No archived chats.")
        assert page.url.endswith("#/chats")
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = respond
        provider = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
        tools = {"exec": {"enabled": True, "sandbox": "none"}}
        home = write_home(tmp_path, llm=llm.url, providers={"stub": provider}, tools=tools)
        async with served(home) as server:
            await in_browser(look, base(server))
