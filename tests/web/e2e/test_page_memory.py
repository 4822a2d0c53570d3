"""What the page shows of memory, and what a person changes there, in a real browser."""

import re

from klaw.domain.names import UserId, chat_id
from klaw.store.kinds import topic_edits
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.inside import inside
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.topics import AT, draft, say
from tests.web.e2e.test_page import WHY

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
    wait_until(page, "before => document.querySelectorAll('article.assistant[data-seq]').length > before", before)


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
    page.locator("article.assistant").last.locator("footer button", has_text=WHY).click()
    dialog = page.locator("dialog.wide").first
    dialog.locator(".bar").wait_for()
    fits(page)
    told = dialog.inner_text()
    assert "Основная память и факты" in told
    assert "Зовут <b>Пётр</b>" in told  # as text
    assert "общих слов: " in told
    line = dialog.locator(".lines > li", has_text="2222").first
    dialog.locator("details.cut > summary").click()
    assert dialog.locator("details.cut .because").first.inner_text()

    # why not that one? by its number, or found by its words
    dialog.locator(".why input").fill("5")
    page.keyboard.press("Enter")
    dialog.locator(".why a", has_text="сад#5").wait_for()
    dialog.locator(".why input").fill("999")
    page.keyboard.press("Enter")
    dialog.locator(".why .error", has_text="такого сообщения нет").wait_for()
    dialog.locator(".why input").fill("пионы")
    page.keyboard.press("Enter")
    dialog.locator(".why li button", has_text="ландыши").click()
    dialog.locator(".why a", has_text="сад#5").wait_for()
    assert not re.search("[a-z]{3} [a-z]{3}", dialog.locator(".why [role=status]").inner_text())  # all in Russian

    # never again, and taken back
    dialog.locator(".lines > li", has_text="2222").first.get_by_role("button", name="Больше не вспоминать").click()
    dialog.locator(".lines > li", has_text="2222").get_by_role("button", name="Снова вспоминать").first.wait_for()
    call(page, "POST", "/chats/сад/messages", {"text": QUESTION})
    recall = call(page, "GET", "/receipt?chat=сад")["receipt"]["recall"]
    assert [each["decision"] for each in recall["candidates"] if each["seq"] == 3] == ["unwanted"]
    assert 3 not in recall["kept"]
    page.locator(".toast", has_text="не будет вспоминаться").get_by_role("button").click()
    dialog.locator(".lines > li", has_text="2222").get_by_role("button", name="Больше не вспоминать").first.wait_for()

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
    going = page.locator("dialog", has_text="Это будет удалено навсегда")
    going.locator("li", has_text="2222").first.wait_for()
    assert any("2222" in each["content"] for each in call(page, "GET", "/chats/сад/messages")["messages"])
    fits(page)
    going.locator("button.danger").click()
    page.locator("dialog", has_text="Забыто.").locator("text=Поиск по всем файлам").wait_for()  # the proof
    page.keyboard.press("Escape")
    dialog.locator(".quote", has_text="этого больше нет").first.wait_for()
    assert "2222" not in dialog.inner_text()
    assert not any("2222" in each["content"] for each in call(page, "GET", "/chats/сад/messages")["messages"])
    assert "Код калитки 5822" in [each["text"] for each in call(page, "GET", "/facts")["facts"]]
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('dialog')")
    assert wrong == []


def in_dialog(page):
    return page.locator("dialog").last


def press(place, name):
    place.get_by_role("button", name=name, exact=True).click()


def facts(page):
    page.evaluate("location.hash = '#/memory'")
    press(page, "Add")
    in_dialog(page).get_by_label("Text").fill("My sister <i>Anna</i> is allergic to peanuts")
    in_dialog(page).get_by_label("Importance").fill("500")
    press(in_dialog(page), "Save")
    in_dialog(page).locator(".field .error", has_text="100").wait_for()  # beside the field, and what was typed stays
    in_dialog(page).get_by_label("Importance").fill("60")
    press(in_dialog(page), "Save")
    entry = page.locator("klaw-memory .lines > li")
    entry.locator("text=My sister <i>Anna</i>").wait_for()
    press(entry, "Edit")
    in_dialog(page).get_by_label("Text").fill("My sister is allergic to walnuts")
    page.keyboard.press("Tab")
    in_dialog(page).get_by_label("Category").select_option("person")
    press(in_dialog(page), "Save")
    entry.locator("text=walnuts").wait_for()
    press(entry, "History")
    in_dialog(page).locator("li", has_text="peanuts").get_by_role("button").click()
    entry.locator("text=peanuts").wait_for()
    press(entry, "Delete")
    page.locator(".toast", has_text="Removed.").get_by_role("button", name="Undo").click()
    entry.locator("text=peanuts").wait_for()
    fits(page)
    press(entry, "Forget")
    in_dialog(page).locator("li", has_text="peanuts").wait_for()
    assert call(page, "GET", "/facts")["count"] == 1  # only shown yet
    in_dialog(page).locator("button.danger").click()
    in_dialog(page).locator("text=Forgotten.").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_selector("text=No facts yet")


def people(page):
    page.get_by_role("link", name="People").click()
    for name, others in (("Anna", "Anya, Nyuta"), ("Annie", "")):
        press(page, "Add")
        in_dialog(page).get_by_label("Name", exact=True).fill(name)
        in_dialog(page).get_by_label("Other names").fill(others)
        press(in_dialog(page), "Save")
        page.locator("klaw-memory .lines strong", has_text=name).first.wait_for()
    page.get_by_role("link", name="Annie").click()
    press(page, "Edit")
    in_dialog(page).get_by_label("Name", exact=True).fill("")
    press(in_dialog(page), "Save")
    in_dialog(page).locator(".field .error:not(:empty)").wait_for()
    in_dialog(page).get_by_label("Name", exact=True).fill("Ann")
    in_dialog(page).get_by_label("Who it is to you").fill("sister")
    press(in_dialog(page), "Save")
    page.locator("klaw-memory h1", has_text="Ann").wait_for()
    press(page, "Merge")
    press(in_dialog(page), "Merge")
    page.locator("klaw-memory p", has_text="was also known as Ann").wait_for()
    press(page, "History")
    in_dialog(page).locator("li").first.wait_for()
    page.keyboard.press("Escape")
    page.locator(".toast").last.get_by_role("button", name="Undo").click()
    page.locator("klaw-memory p", has_text="was also known as").wait_for(state="detached")
    press(page, "Delete")
    wait_until(page, "location.hash === '#/memory/people'")
    page.locator("klaw-memory .lines strong", has_text="Ann").wait_for()
    assert [each["name"] for each in call(page, "GET", "/people")["people"]] == ["Ann"]


def topics(page):
    page.get_by_role("link", name="Topics").click()
    rows = page.locator("klaw-memory .lines > li")
    rows.nth(2).wait_for()
    fits(page)
    page.get_by_role("searchbox").fill("train")
    page.keyboard.press("Enter")
    rows.nth(2).wait_for(state="detached")
    assert "train" in rows.first.inner_text()
    page.get_by_role("searchbox").fill("")
    page.keyboard.press("Enter")
    rows.nth(2).wait_for()
    press(page, "Merge selected")
    in_dialog(page).locator("text=two or more").wait_for()
    page.keyboard.press("Escape")
    for name in ("A train", "A cake"):
        rows.filter(has_text=name).get_by_role("checkbox").check()
    press(page, "Merge selected")
    in_dialog(page).get_by_label("Summary").fill("The journey and the cake")
    press(in_dialog(page), "Merge")
    page.locator("klaw-memory h1", has_text="The journey and the cake").wait_for()
    press(page, "Edit")
    in_dialog(page).get_by_label("Summary").fill(" ")
    press(in_dialog(page), "Save")
    in_dialog(page).locator(".field .error", has_text="must have 1 to").wait_for()
    in_dialog(page).get_by_label("Summary").fill("Cherries")
    press(in_dialog(page), "Save")
    page.locator("klaw-memory h1", has_text="Cherries").wait_for()
    page.locator(".toast").last.get_by_role("button", name="Undo").click()
    page.locator("klaw-memory h1", has_text="The journey and the cake").wait_for()
    assert rows.count() == 4
    press(page, "History")
    in_dialog(page).locator("li", has_text="merge").first.wait_for()
    page.keyboard.press("Escape")
    rows.nth(2).get_by_role("checkbox").check()
    press(page, "Split")
    rows.filter(has_text="(part 2 of 2)").wait_for()
    press(page, "History")
    in_dialog(page).locator("li", has_text="split").get_by_role("button", name="Take back").click()
    rows.filter(has_text="(part 2 of 2)").wait_for(state="detached")
    assert call(page, "GET", "/topics")["count"] == 2
    page.get_by_role("link", name="The journey and the cake").click()
    page.locator("klaw-memory h1").wait_for()
    press(page, "Forget")
    in_dialog(page).locator("button.danger").click()
    wait_until(page, "location.hash === '#/memory/topics'")
    assert call(page, "GET", "/topics")["count"] == 1


def memory(page, wrong):
    facts(page)
    people(page)
    topics(page)
    page.evaluate("location.hash = '#/memory/topics/999'")
    page.locator("klaw-memory .error", has_text="no such topic").wait_for()
    assert wrong == []


async def test_facts_people_and_topics(tmp_path):
    home = write_home(tmp_path)
    async with inside(home) as here:
        store = here.app.core.store
        said = await say(store, "The train leaves at 9", "Two seats", "A cake", "With cherries", "Rain", user="local")
        for summary, own in (("A train to Tver", said[:2]), ("A cake", said[2:4]), ("The weather", said[4:])):
            drafts = [draft(summary, *own)]
            await store.writer.run(topic_edits.store, UserId("local"), chat_id(UserId("local"), "main"), drafts, AT)
    async with served(home) as server:
        await in_browser(memory, base(server), locale="en-GB", viewport={"width": 1100, "height": 800})


async def test_in_russian_on_a_phone(tmp_path):
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, context={"slidingWindow": 2}, autoRag={"topK": 1})
        llm.respond = lambda _: text_reply("Хорошо")
        async with served(home) as server:
            phone = {"locale": "ru-RU", "viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
            await in_browser(made_from, base(server), **phone)
