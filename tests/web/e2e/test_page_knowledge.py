"""A knowledge base on the page, in a real browser: made, filled, asked, its citations opened, and deleted."""

from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.web.e2e.test_page import WHY

pytestmark = needs_chromium

LEASE = "# Аренда\n\nСрок аренды один год. О расторжении предупреждают за <b>три</b> месяца.\n"
NOISE = "# Отпуск\n\nОтпуск двадцать восемь дней, заявление подают за две недели.\n"
ANSWER = "Предупредить нужно за **три** месяца [1]. Так решил суд [7]. В коде `a[1]` ничего не меняется."


def walk(page, wrong):
    page.evaluate("location.hash = '#/knowledge'")
    page.get_by_text("Новая база").click()
    page.fill("dialog [name=name]", "Договоры")
    page.locator("dialog button.main").click()
    page.locator(".drop").wait_for()
    files = [
        {"name": name, "mimeType": "text/markdown", "buffer": text.encode()}
        for name, text in (("аренда.md", LEASE), ("отпуск.md", NOISE), ("битый.pdf", "%PDF-1.7 nothing"))
    ]
    page.set_input_files(".drop input[type=file]", files)
    page.locator("section[aria-label=Документы] a", has_text="аренда.md").wait_for()
    page.locator("section[aria-label=Документы] li", has_text="битый.pdf").locator(".error").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.fill(".search input", "срок аренды")
    page.keyboard.press("Enter")
    page.locator("dialog .lines a", has_text="аренда.md").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.locator("section[aria-label=Документы] a", has_text="аренда.md").click()
    page.locator(".passage", has_text="<b>три</b>").wait_for()
    page.click("klaw-knowledge header a.back")

    page.get_by_text("Спросить в новом чате").click()
    page.locator("klaw-chat textarea").wait_for()
    chat = page.evaluate("location.hash")
    page.fill("textarea", "За сколько месяцев предупреждают о расторжении аренды?")
    page.keyboard.press("Enter")
    page.locator("article.assistant .cite").first.wait_for()
    page.locator("klaw-chat a[title=Знания]").wait_for()
    answer = page.locator("article.assistant").last
    assert answer.locator(".cite").all_inner_texts() == ["1"]
    assert "[7]" not in answer.inner_text()
    assert answer.locator("code").inner_text() == "a[1]"
    assert "аренда.md" in answer.locator(".sources").inner_text()
    answer.locator(".cite").click()
    dialog = page.locator("dialog.wide")
    dialog.get_by_text("<b>три</b> месяца").wait_for()
    dialog.get_by_text("Читать дальше").click()
    page.locator(".passage .found", has_text="<b>три</b>").wait_for()

    page.reload()
    page.locator(".passage .found").wait_for()
    page.evaluate("chat => { location.hash = chat; }", chat)
    page.locator("article.assistant .cite").wait_for()  # also after a reload
    page.locator("article.assistant").last.locator("footer button", has_text=WHY).click()
    page.locator("dialog.wide h2", has_text="Из баз знаний").wait_for()
    page.keyboard.press("Escape")

    page.evaluate("location.hash = '#/knowledge'")
    page.locator("klaw-knowledge").get_by_text("Договоры").first.click()
    page.locator("klaw-knowledge .menu > button").first.click()
    page.locator(".menu div button", has_text="Удалить").click()
    page.locator("dialog button[value=yes]").click()
    page.get_by_text("В базе лежат документы").wait_for()
    assert wrong == []


async def test_a_base_is_made_filled_asked_and_deleted(tmp_path):
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply(ANSWER)
        async with served(write_home(tmp_path, llm=llm.url)) as server:
            base = server.url.replace("ws://", "http://").removesuffix("/ws")
            await in_browser(walk, base, locale="ru-RU", viewport={"width": 360, "height": 700})
