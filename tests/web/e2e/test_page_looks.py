"""What a person sees on the page: nothing cut off or out of line, nothing that says what is not so."""

import json

import pytest
import trio

from klaw.domain.fact import CATEGORIES
from tests.support.browser import in_browser, in_trio, needs_chromium
from tests.support.llm_server import Hang, Reply, Text, Tool, serve_llm, text_reply, tool_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_connect import fresh

pytestmark = needs_chromium

TABLE = "| Культура | Когда сеять | Для чего |\n|---|---|---|\n| Морковь | апрель | {} |\n"
LINES = """word => {
    const cell = [...document.querySelectorAll("td")].find((each) => each.textContent === word);
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getClientRects().length; }"""
BESIDE = """() => { const [name, badge] = [".name", ".badge"].map((each) =>
    document.querySelector(`.list li[data-chat=дача] ${each}`).getBoundingClientRect());
    return badge.top < name.bottom && badge.bottom > name.top; }"""


async def test_words_of_a_table_stay_whole_and_the_menu_fits_a_phone(tmp_path):
    def look(page, wrong):
        page.get_by_text("О чём поговорим?", exact=True).wait_for()
        begin_chat(page, "огород", "Новый чат")
        say(page, "Что сажать?")
        page.wait_for_selector("article.assistant td")
        assert page.evaluate(LINES, "апрель") == 1
        assert page.evaluate("(nav => nav.scrollWidth <= nav.clientWidth)(document.querySelector('nav.views'))")
        assert page.locator("nav.views select").is_hidden()
        page.click("nav.views .more")
        page.select_option("nav.views select", "en")
        page.wait_for_selector("nav.views >> text=Chats")
        page.evaluate("location.hash = '#/memory'")
        page.wait_for_selector("#category")
        assert set(page.locator("#category option").all_inner_texts()) == {"all", *CATEGORIES}
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: text_reply(TABLE.format("долгое объяснение " * 20))
        await in_browser(look, base(server), locale="ru-RU", viewport={"width": 360, "height": 740})


async def test_lists_say_what_is_new_and_answers_what_they_come_from(tmp_path):
    def look(page, wrong):
        page.wait_for_selector(".list li[data-chat=main]")
        page.evaluate("localStorage.setItem('klaw.seen.дача', 1)")
        page.reload()
        page.wait_for_selector(".list .badge")
        assert page.evaluate(BESIDE)
        page.wait_for_load_state("networkidle")  # else the list is asked for again anyway
        page.click(".list li[data-chat='дача']")
        page.wait_for_selector(".list .badge", state="detached")
        page.click(".list li[data-chat=main]")
        assert page.text_content("article.scheduled footer a") == "task water"  # also where it is not painted yet
        say(page, "count")
        page.locator(".approval button").first.click()
        page.keyboard.type("next")  # the field has the focus again
        assert page.input_value("textarea") == "next"
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = lambda request: (
            tool_reply(Tool("call_1", "host_exec", json.dumps({"command": "wc -w x"})))
            if request.messages[-1]["content"] == "count"
            else text_reply("ok")
        )
        provider = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
        home = write_home(tmp_path, providers={"stub": provider}, tools={"exec": {"enabled": True}})
        async with served(home) as server:
            async with talking(server.url) as at:
                await at.ask("Hello")
                await at.ask("Привет", chat="дача")
            where = ("--home", str(server.home))
            task = ("water", "--every", "1d", "--inject-into", "main", "--message", "What is dry?")
            assert (await run_klaw("schedule", "add", *task, *where))[0] == 0
            assert (await run_klaw("schedule", "run", "water", *where))[0] == 0
            await in_browser(look, base(server))


async def test_without_a_server_nothing_is_said_to_go_on(tmp_path):
    killed, clicked = trio.Event(), trio.Event()

    def look(page, wrong):
        begin_chat(page, "main", "New chat")
        say(page, "hello")
        page.wait_for_selector(".live article >> text=half")
        in_trio(killed.set)
        page.wait_for_selector("p.offline:visible")
        assert page.inner_text(".state") == ""
        assert page.get_by_label("Stop").is_hidden()
        page.click("nav.views >> text=Memory")
        page.wait_for_selector(".toast")
        assert page.inner_text("nav.views [aria-current]").endswith("Chats")
        in_trio(clicked.set)
        page.wait_for_selector("klaw-memory")  # opened by itself as soon as it can be
        assert page.inner_text("nav.views [aria-current]").endswith("Memory")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, trio.open_nursery() as nursery:
        llm.respond = lambda _: Reply(steps=(Text("half "), Hang()))
        nursery.start_soon(in_browser, look, base(server))
        await killed.wait()
        await server.kill()
        await clicked.wait()
        await server.start()


WIDE_ANSWER = f"""{"The beds that get the sun first are sown first, because their soil warms up early. " * 6}

https://example.org/{"a" * 300}

| {" | ".join(f"column {number}" for number in range(20))} |
|{"---|" * 20}
| {" | ".join(f"value {number}" for number in range(20))} |

```python
{"total = total + 1; " * 30}
```
"""
PER_LINE = """() => {
    const walker = document.createTreeWalker(document.querySelector("article.assistant .text p"), NodeFilter.SHOW_TEXT);
    const range = document.createRange(), node = walker.nextNode(), lines = {};
    for (let at = 0; at < node.length; at += 1) {
        range.setStart(node, at);
        range.setEnd(node, at + 1);
        const { top } = range.getBoundingClientRect();
        lines[top] = (lines[top] || 0) + 1;
    }
    const counts = Object.values(lines).slice(0, -1);
    return counts.reduce((sum, each) => sum + each) / counts.length; }"""
SHIFTED = """() => new Promise((done) => {
    let sum = 0;
    new PerformanceObserver((list) => { for (const each of list.getEntries()) sum += each.value; })
        .observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(sum), 100); })"""


async def test_lines_are_as_long_as_one_reads_and_what_is_wider_scrolls_in_itself(tmp_path):
    def look(page, wrong):
        begin_chat(page, "main", "New chat")
        say(page, "What first?")
        page.wait_for_selector("article.assistant[data-seq] td")
        assert 60 <= page.evaluate(PER_LINE) <= 76
        for wide in ("table", "pre"):
            assert page.evaluate(
                f"(each => each.scrollWidth > each.clientWidth)(document.querySelector('.text {wide}'))"
            )
        for narrow in (".messages", "article.assistant", ".text", "html"):
            found = f"(each => each.scrollWidth <= each.clientWidth)(document.querySelector('{narrow}'))"
            assert page.evaluate(found), narrow
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: text_reply(WIDE_ANSWER)
        await in_browser(look, base(server), viewport={"width": 1100, "height": 740})


@pytest.mark.parametrize("width", [360, 1100])
async def test_nothing_moves_once_it_is_painted(tmp_path, width):
    """Also with the notice that only the built-in model answers."""

    def look(page, wrong):
        for _ in range(2):  # at the second time the server knows all that does not work
            page.wait_for_selector(".degraded:visible >> text=larger one")
            page.wait_for_selector("klaw-chat .model:visible")
            page.reload()
        page.wait_for_selector("klaw-chat .model:visible")
        assert page.evaluate(SHIFTED) == 0
        for each in page.locator("nav.views > a:visible, nav.views > .tools > :visible").all():
            each.click(trial=True)  # nothing covers it
        assert wrong == []

    async with served(fresh(tmp_path)) as server:
        await in_browser(look, base(server), locale="en-GB", viewport={"width": width, "height": 740})
