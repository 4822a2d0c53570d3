"""What the page shows of memory, and what a person changes there, in a real browser."""

from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home

pytestmark = needs_chromium

TALK = (
    "Код калитки в саду 4711, его знает Анна",
    "Код калитки в саду раньше был 2222",
    "В саду расцвели пионы и ландыши",
    "Завтра поедем на дачу",
)
QUESTION = "Какой код у калитки в саду?"


def base(server):
    return server.url.replace("ws://", "http://").removesuffix("/ws")


def ask_for(page, text):
    """Say it, and wait for the answer."""
    answers = page.locator("article.assistant[data-seq]")
    before = answers.count()
    page.fill("textarea", text)
    page.keyboard.press("Enter")
    page.wait_for_function(
        "before => document.querySelectorAll('article.assistant[data-seq]').length > before", arg=before
    )


def call(page, method, path, body=None):
    """Ask the API as the page does."""
    return page.evaluate(
        """async ([method, path, body]) => (await fetch("/api/v1" + path, {method, body: body && JSON.stringify(body),
        headers: {"Content-Type": "application/json"}})).json()""",
        [method, path, body],
    )


def fits(page):
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate("[...document.querySelectorAll('dialog')].map(each => each.scrollWidth - each.clientWidth)")
    assert not any(wide)


def made_from(page, wrong):
    page.evaluate("location.hash = '#/chats/сад'")
    page.wait_for_selector("textarea")
    call(page, "POST", "/facts", {"text": "Зовут <b>Пётр</b>", "category": "identity", "importance": 95})
    for text in (*TALK, QUESTION):
        ask_for(page, text)
    page.locator("article.assistant footer button").last.click()
    dialog = page.locator("dialog.wide").first
    dialog.locator(".bar").wait_for()
    fits(page)
    told = dialog.inner_text()
    assert "Основная память и факты" in told
    assert "Зовут <b>Пётр</b>" in told  # as text
    assert "общих слов с вопросом" in told
    line = dialog.locator(".lines > li", has_text="2222").first
    dialog.locator("details.cut > summary").click()
    assert dialog.locator("details.cut .because").first.inner_text()

    # why not that one?
    dialog.locator(".why input").fill("5")
    page.keyboard.press("Enter")
    dialog.locator(".why a", has_text="сад#5").wait_for()
    dialog.locator(".why input").fill("999")
    page.keyboard.press("Enter")
    dialog.locator(".why .error", has_text="no such message").wait_for()

    # wrong: a fact
    dialog.locator(".lines > li", has_text="Пётр").get_by_role("button", name="Неверно").click()
    page.locator("dialog").last.locator("textarea").fill("Зовут Павел")
    page.locator("dialog").last.locator("button.main").click()
    dialog.locator(".lines > li", has_text="Павел").wait_for()

    # wrong: a message, that is forgotten then
    line.get_by_role("button", name="Неверно").click()
    page.locator("dialog").last.locator("textarea").fill("Код калитки 5822")
    page.locator("dialog").last.locator("input[type=checkbox]").check()
    page.locator("dialog").last.locator("button.main").click()
    going = page.locator("dialog", has_text="Это исчезнет навсегда")
    going.locator("li", has_text="2222").first.wait_for()
    assert any("2222" in each["content"] for each in call(page, "GET", "/chats/сад/messages")["messages"])
    fits(page)
    going.locator("button.danger").click()
    page.wait_for_selector(".toast:has-text('Забыто.')")
    dialog.locator(".quote", has_text="этого больше нет").first.wait_for()
    assert "2222" not in dialog.inner_text()
    assert not any("2222" in each["content"] for each in call(page, "GET", "/chats/сад/messages")["messages"])
    assert "Код калитки 5822" in [each["text"] for each in call(page, "GET", "/facts")["facts"]]
    page.keyboard.press("Escape")
    page.wait_for_function("!document.querySelector('dialog')")
    assert wrong == []


async def test_in_russian_on_a_phone(tmp_path):
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, context={"slidingWindow": 2}, autoRag={"topK": 1})
        llm.respond = lambda _: text_reply("Хорошо")
        async with served(home) as server:
            phone = {"locale": "ru-RU", "viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
            await in_browser(made_from, base(server), **phone)
