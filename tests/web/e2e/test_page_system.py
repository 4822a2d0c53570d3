"""Tasks, usage and the system on the page, in a real browser."""

import json

from klaw.gateway.tokens import add_token, tokens_file
from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base

pytestmark = needs_chromium


def type_into(page, name, text):
    page.fill(f"dialog [name={name}]", text)


def error_at(page, name):
    return page.wait_for_selector(f"dialog [name={name}] ~ .error:not(:empty)").inner_text()


def make_a_task(page):
    page.click("[data-key='New task']")
    page.wait_for_selector("dialog [name=when]")
    assert page.locator("dialog .field:visible").count() == 4
    type_into(page, "when", "61 * * * *")
    assert "minute" in error_at(page, "when")
    assert page.locator("dialog .times li").count() == 0
    type_into(page, "when", "7:30")
    page.select_option("dialog [name=repeat]", "every day")
    page.wait_for_selector("dialog .times li:nth-child(3)")
    assert all("7:30" in each for each in page.locator("dialog .times li").all_inner_texts())
    page.click("dialog button.main")
    assert error_at(page, "message")
    type_into(page, "message", "<b>Что нового?</b>")
    page.click("dialog summary:text-is('More')")
    type_into(page, "name", "Not a name")
    page.click("dialog details[open] summary:text-is('More')")
    page.click("dialog button.main")
    page.wait_for_selector("dialog details[open] [name=name] ~ .error:not(:empty)")
    type_into(page, "name", "news")
    page.click("dialog button.main")
    page.wait_for_selector("dialog", state="detached")
    assert page.inner_text("[data-task=news] .clamp") == "<b>Что нового?</b>"


def change_the_task(page):
    page.click("[data-task=news] [data-key='news Edit']")
    page.wait_for_selector("dialog [name=when]")
    assert page.input_value("dialog [name=when]").endswith(" 07:30")
    assert page.input_value("dialog [name=repeat]") == "every day"
    page.select_option("dialog [name=repeat]", "")
    type_into(page, "when", "every 5 seconds")
    assert error_at(page, "when")
    type_into(page, "when", "every 2h")
    page.wait_for_selector("dialog .times li:nth-child(3)")
    page.press("dialog [name=when]", "Enter")
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector("[data-task=news] h2:has-text('every 2h')")
    page.click("[data-key='news Switch off']")
    page.click("[data-key='news Switch on']")
    page.wait_for_selector("[data-key='news Switch off']")


def look_at_usage(page):
    page.click("nav >> text=Usage")
    page.wait_for_selector(".chart")
    today, total = (page.locator(f"klaw-usage table >> nth=0 >> {part} tr") for part in ("tbody", "tfoot"))
    page.click("klaw-usage summary")
    assert today.count() == 1
    assert today.inner_text().split("\t")[1:4] == total.inner_text().split("\t")[1:4]
    assert page.inner_text("klaw-usage tbody >> nth=2").startswith("runs of tasks")
    page.select_option("[name=measure]", "cost")
    page.wait_for_selector(".chart[aria-label^=Cost]")
    page.select_option("[name=days]", "7")
    page.wait_for_selector(".chart span:nth-child(7):last-child", state="attached")
    meter = page.locator("klaw-usage meter")
    assert "of 1,000,000 tokens of unknown price" in meter.get_attribute("aria-label")


async def test_tasks_and_what_they_used(tmp_path):
    def look(page, wrong):
        page.click("nav >> text=Tasks")
        page.wait_for_selector("klaw-tasks header")
        make_a_task(page)
        change_the_task(page)
        page.click("[data-key='news Run now']")
        page.click("[data-task=news] dd a:has-text('done')")
        page.wait_for_selector(".answer")
        assert page.inner_text(".answer") == "Ничего <i>нового</i>."
        page.click("summary:text-is('Transcript')")
        assert page.locator(".said strong").all_inner_texts() == ["user", "assistant"]
        page.click("klaw-tasks header a")
        page.wait_for_selector("klaw-tasks tbody tr")
        page.click("klaw-tasks header a")
        page.click("[data-key='news Remove']")
        page.wait_for_selector("[data-task=news]", state="detached")
        page.click(".toast button")  # undo
        page.click("[data-key='news History']")
        page.locator("dialog li", has_text="cron 30 7 * * *").get_by_role("button").last.click()
        page.wait_for_selector("[data-task=news] h2:has-text('every day')")
        page.click("[data-key='news Remove']")
        page.wait_for_selector("[data-task=news]", state="detached")
        look_at_usage(page)
        assert wrong == []

    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url)
        config = json.loads((home / "config" / "engine.yaml").read_text())
        (home / "config" / "engine.yaml").write_text(json.dumps({**config, "llm": {"dailyTokens": 1_000_000}}))
        llm.respond = lambda _: text_reply("Ничего <i>нового</i>.")
        async with served(home) as server:
            await in_browser(look, base(server), locale="en-US")


def log_in(page, secret):
    page.fill("#token", secret)
    page.click("form button.main")
    page.wait_for_selector("nav a")


def revoke(page, row):
    page.click(f"klaw-access {row} button")
    page.click("dialog button.main")


async def test_the_system_for_whoever_runs_it(tmp_path):
    def look(page, wrong):
        log_in(page, root)
        page.wait_for_selector(".degraded:visible")
        page.evaluate("location.hash = '#/system'")  # on a phone it stands under More
        page.click("klaw-system .parts summary")
        page.wait_for_selector("klaw-system th:text-is('store.writer')")
        assert page.locator(".degraded-list li").first.inner_text().count(" с ") >= 1
        page.click("summary:text-is('Что известно')")
        page.wait_for_selector("klaw-system dd:has-text('задано в настройках')")
        page.click("[data-key='stub/echo Test']")
        page.wait_for_selector(".checks dd:has-text('работает: отвечает')")
        page.click("[data-key='Check now']")
        page.wait_for_selector(".findings li:has-text('tokens')")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.click("klaw-system [href='#/access']")
        revoke(page, "[data-user=boris] li")
        page.wait_for_selector("klaw-access [data-user=boris]", state="detached")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        revoke(page, "li:has-text('Сеанс')")
        page.wait_for_selector("#token")
        log_in(page, anna)
        assert page.locator("nav >> text=Система").count() == 0
        seen = page.evaluate("fetch('/api/v1/token').then((answer) => answer.json())")["tokens"]
        assert {each["user"] for each in seen} == {"anna"}
        assert wrong == []

    async with serve_llm() as llm:
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"contextTokens": 9000}}}
        home = write_home(tmp_path, llm=llm.url, embedding={"enabled": True}, providers={"stub": stub})
        users = {"root": True, "boris": False, "anna": False}
        root, _, anna = (
            add_token(tokens_file(home / "config"), user, "2026-01-01T00:00:00Z", operator=operator)[1]
            for user, operator in users.items()
        )
        async with served(home) as server:
            await in_browser(look, base(server), locale="ru-RU", viewport={"width": 360, "height": 740})
