"""Answers on the page, in a real browser: rendered while they come, copied, with calls of tools, and harmless."""

import json

import pytest
import trio

from tests.support.attacks import ATTACKS
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import Reply, Text, Tool, Wait, serve_llm, text_reply, tool_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat, say

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
WORDS = {
    "ru-RU": {
        "new": "Новый чат", "copy": "Копировать",
        "searched": "Искал в памяти: garden code · готово", "failed": "Посмотрел на часы: Nowhere/Land · не удалось",
        "waits": "ждёт вашего ответа", "help": "показать этот список",
    },
    "en-GB": {
        "new": "New chat", "copy": "Copy",
        "searched": "Searched memory: garden code · finished",
        "failed": "Looked at the clock: Nowhere/Land · did not work",
        "waits": "waiting for your answer", "help": "show this list",
    },
}  # fmt: skip
SHIFTS = """() => {
    window.shifts = [];
    const told = ({node, previousRect: a, currentRect: b}) => [node?.outerHTML, a.y, a.height, b.y, b.height];
    new PerformanceObserver((list) => list.getEntries().forEach((each) => shifts.push(...each.sources.map(told))))
        .observe({type: "layout-shift"});
}"""


@pytest.mark.parametrize("locale", WORDS)
async def test_finished_blocks_stay_while_an_answer_comes(tmp_path, locale):
    more, end = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def look(page, wrong):
        begin_chat(page, "garden", WORDS[locale]["new"])
        say(page, "Tell me")
        page.wait_for_selector(".live .text strong")
        page.evaluate(SHIFTS)
        page.evaluate("""() => { window.kept = document.querySelector('.live h1');
            getSelection().selectAllChildren(kept); }""")
        token.run_sync_soon(more.set)
        page.wait_for_selector(".live .text code")
        assert page.evaluate("document.querySelector('.live h1') === kept")
        assert page.locator(".live .plain:visible").count() == 0
        token.run_sync_soon(end.set)
        page.wait_for_selector("article.assistant[data-seq] em")
        wait_until(page, "!document.querySelector('article.assistant[data-seq] .plain')")
        assert page.evaluate("kept.isConnected && kept.closest('[data-seq]') !== null")
        assert page.evaluate("getSelection().toString()") == "Сад"
        assert page.evaluate("shifts.join('\\n')") == ""
        shown = "[...document.querySelectorAll('article.assistant .text > *')].map((each) => each.localName).join()"
        assert page.evaluate(shown) == "h1,p,ul,p"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.reload()
        page.wait_for_selector("article.assistant em")
        assert page.evaluate(shown) == "h1,p,ul,p"
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        steps = (
            Text("# Сад\n\nПосле\nсильного **дождя** "),
            Wait(more),
            Text("сухо.\n\n- `a`\n- b"),
            Wait(end),
            Text("\n\nThe *end*."),
        )
        llm.replies.append(Reply(steps=steps))
        await in_browser(look, base(server), locale=locale, viewport=PHONE)


@pytest.mark.parametrize("locale", WORDS)
@pytest.mark.parametrize("secure", [True, False])
async def test_messages_code_and_tables_are_copied(tmp_path, locale, secure):
    words = WORDS[locale]
    answer = "```python\nprint('два')\n```\n\n| a | b |\n|---|---|\n| *1* | 2 |"

    def look(page, wrong):
        begin_chat(page, "garden", words["new"])
        say(page, "Show me")
        page.wait_for_selector("article.assistant[data-seq] .block .copy")
        language = page.evaluate("getComputedStyle(document.querySelector('.block'), '::before').content")
        assert language == '"python"'
        if secure:
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        else:
            page.evaluate("delete Navigator.prototype.clipboard")
        found = "article.assistant[data-seq]"
        for button, text in (
            (f"{found} .block:has(pre) [aria-label='{words['copy']}']", "print('два')"),
            (f"{found} .block:has(table) [aria-label='{words['copy']}']", "a\tb\n1\t2"),
            (f"{found} footer [aria-label='{words['copy']}']", answer),
        ):
            page.click(button)
            page.wait_for_selector(".toast")
            page.fill("textarea", "")
            page.focus("textarea")
            page.keyboard.press("Control+V")
            wait_until(page, "text => document.querySelector('textarea').value === text", text)
            page.evaluate("document.querySelector('.toast')?.remove()")
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: text_reply(answer)
        await in_browser(look, base(server), locale=locale, viewport=PHONE)


@pytest.mark.parametrize("locale", WORDS)
async def test_a_call_is_one_line_that_says_what_was_called(tmp_path, locale):
    words = WORDS[locale]
    calls = (
        Tool("call_1", "memory_search", json.dumps({"query": "garden code"})),
        Tool("call_2", "current_time", json.dumps({"zone": "Nowhere/Land"})),
    )

    def respond(request):
        if request.messages[-1]["role"] == "tool":
            return text_reply("Done.")
        if request.last_user == "run":
            return tool_reply(Tool("call_3", "host_exec", json.dumps({"command": "true"})))
        return tool_reply(*calls)

    def look(page, wrong):
        begin_chat(page, "garden", words["new"])
        say(page, "What was the code?")
        page.wait_for_selector("article.assistant.text[data-seq]")
        for _ in range(2):
            lines = page.locator(".call[data-state] summary").all_inner_texts()
            assert lines == [words["searched"], words["failed"]]
            assert page.locator(".tool_result:visible").count() == 0
            assert page.locator(".call .result").count() == 2
            page.reload()
            page.wait_for_selector(".call[data-state=done]")
            page.wait_for_selector(".call[data-state=failed]")
        say(page, "run")
        page.wait_for_selector(".approval")
        wait_until(page, "words => document.querySelector('p.state').textContent === words", words["waits"])
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = respond
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
        tools = {"exec": {"enabled": True, "sandbox": "none"}}
        async with served(write_home(tmp_path, llm=llm.url, providers={"stub": stub}, tools=tools)) as server:
            await in_browser(look, base(server), locale=locale, viewport=PHONE)


@pytest.mark.parametrize("locale", WORDS)
async def test_commands_are_completed_and_what_they_show_goes_with_the_next_message(tmp_path, locale):
    words = WORDS[locale]

    def look(page, wrong):
        begin_chat(page, "garden", words["new"])
        page.focus("textarea")
        page.keyboard.type("/")
        page.wait_for_selector(".commands li")
        assert words["help"] in page.inner_text(".commands")
        page.keyboard.press("Escape")
        page.wait_for_selector(".commands", state="detached")
        page.keyboard.type("he")
        wait_until(page, "document.querySelectorAll('.commands li').length === 2")  # /heartbeat and /help
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        assert page.input_value("textarea") == "/help "
        page.keyboard.press("Enter")
        wait_until(page, "document.querySelector('.shown')?.textContent.includes('/retry')")
        say(page, "Hello")
        page.wait_for_selector("article.assistant[data-seq='2']")
        assert page.locator(".shown").count() == 0
        say(page, "/retry")
        page.wait_for_selector("article.command.system")
        say(page, "Hello again")
        page.wait_for_selector("article.assistant[data-seq='6']")
        assert page.locator("article.command:visible").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _: text_reply("Good day.")
        await in_browser(look, base(server), locale=locale, viewport=PHONE)


async def test_nothing_of_a_hostile_text_runs_or_is_requested(tmp_path):
    end = trio.Event()
    token = trio.lowlevel.current_trio_token()
    whole = "\n\n".join(ATTACKS)

    def respond(request):
        if request.messages[-1]["role"] == "tool":
            return Reply(steps=(Text(f"{whole}\n\n**middle** "), Wait(end), Text("\n\nThe end.")))
        return tool_reply(Tool("call_1", "memory_search", json.dumps({"query": ATTACKS[1]})))

    def harmless(page):
        assert page.evaluate("window.hit") is None
        assert (
            page.locator(
                ".messages :is(img, script, iframe, svg:not(:is(button, summary) > .icon), form, input, object, style)"
            ).count()
            == 0
        )

    def look(page, wrong):
        begin_chat(page, "garden", "New chat")
        say(page, whole)
        page.wait_for_selector(".live .text strong:text-is('middle')")
        harmless(page)
        token.run_sync_soon(end.set)
        page.wait_for_selector("article.assistant.text[data-seq] p:text-is('The end.')")
        wait_until(page, "!document.querySelector('article.assistant[data-seq] .plain')")
        page.click(".call summary")
        for link in page.locator("article.assistant a").all():
            assert link.get_attribute("href").startswith(("https://", "http://"))
            link.hover()
        harmless(page)
        page.reload()
        page.wait_for_selector("article.assistant.text p:text-is('The end.')")
        harmless(page)
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = respond
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True}}}
        async with served(write_home(tmp_path, llm=llm.url, providers={"stub": stub})) as server:
            await in_browser(look, base(server))
