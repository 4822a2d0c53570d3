"""Importing an export on the page: a look, the import, taking it back; names that it asks for; a kill in the middle."""

import pytest

from klaw.gateway.tokens import add_token, tokens_file
from tests.cli.e2e.test_import import CHATS, EACH, large, stored
from tests.support.browser import in_browser, needs_chromium
from tests.support.exports import chatgpt_export, talk
from tests.support.forgetting import holding
from tests.support.server import served, write_home
from tests.support.waiting import until
from tests.web.e2e.test_page import base
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_system import log_in

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
SECRET = "The code of the gate is Kanarienvogel8842"
WORDS = {
    "en-GB": {"found": "chatgpt: 2 messages in 1 chats", "unread": "Not read: 1", "import": "Import it",
              "done": "Done: 2 added, 0 were here already.", "undo": "Undo the import", "forgotten": "Forgotten.",
              "no": "is no export of", "who": "what is your name in it? There are: Анна, Борис, Вера"},
    "ru-RU": {"found": "chatgpt: сообщений 2, чатов 1", "unread": "Не прочитано: 1", "import": "Импортировать",
              "done": "Готово: добавлено 2, уже было 0.", "undo": "Отменить импорт", "forgotten": "Забыто.",
              "no": "это не архив", "who": "Какое имя в нём ваше? Там есть: Анна, Борис, Вера"},
}  # fmt: skip
both = pytest.mark.parametrize("locale", WORDS)


def choose(page, path):
    page.wait_for_selector("klaw-import button.main:enabled")
    page.set_input_files("klaw-import input[type=file]", path)


def section(page, text):
    page.wait_for_selector(f"klaw-import section[role=status]:has-text('{text}')")


def button(page, text):
    page.click(f"klaw-import form button:text-is('{text}')")


@both
async def test_a_look_an_import_and_taking_it_back(tmp_path, locale):
    words, home = WORDS[locale], tmp_path / "home"
    name = "мой <img src=x onerror=alert(1)>.zip"
    export = chatgpt_export(tmp_path, talk("c1", "Gate", SECRET, "Noted."), {"bad": 1}, name=name)
    other = tmp_path / "notes.json"
    other.write_text('{"a": 1}')

    def look(page, wrong):
        log_in(page, root)
        page.evaluate("location.hash = '#/system'")
        page.click("klaw-system [href='#/import']")
        choose(page, other)
        section(page, f"notes.json: {words['no']}")
        choose(page, export)
        section(page, words["found"])
        section(page, words["unread"])
        assert page.inner_text("klaw-import section[role=status] h2") == export.name
        assert page.evaluate(WIDE) == []
        assert stored(home / "data" / "klaw.db").total() == 0
        button(page, words["import"])
        section(page, words["done"])
        page.wait_for_selector("klaw-import .lines li")
        assert stored(home / "data" / "klaw.db").total() == 2
        page.reload()
        page.wait_for_selector("klaw-import .lines li button")
        section(page, words["done"])
        page.click("klaw-import .lines li button")
        page.wait_for_selector("dialog .things li")
        page.click("dialog button.danger")
        page.wait_for_selector(f"dialog strong:text-is('{words['forgotten']}')")
        page.keyboard.press("Escape")
        page.wait_for_selector("klaw-import .lines li", state="detached")
        assert wrong == []

    write_home(home)
    _, root = add_token(tokens_file(home / "config"), "root", "2026-01-01T00:00:00Z", operator=True)
    async with served(home) as server:
        await in_browser(look, base(server), locale=locale, viewport=PHONE)
        assert holding(home, SECRET, "Kanarienvogel8842") == {}
        assert not list((home / "data" / "knowledge" / "uploads").iterdir())


@both
async def test_a_chat_of_people_asks_who_is_who(tmp_path, locale):
    words, home = WORDS[locale], tmp_path / "home"
    export = tmp_path / "WhatsApp Chat with Дача.txt"
    export.write_text("".join(f"25.03.2024, 11:00 - {name}: Привет\n" for name in ("Анна", "Борис", "Вера")))

    def look(page, wrong):
        log_in(page, anna)  # also without the rights of the operator
        page.evaluate("location.hash = '#/import'")
        choose(page, export)
        section(page, words["who"])
        page.fill("klaw-import [name=me]", "Анна")
        page.press("klaw-import [name=me]", "Enter")
        section(page, "whatsapp: ")
        button(page, words["import"])
        page.wait_for_selector("klaw-import .lines li")
        page.evaluate("location.hash = '#/chats'")
        page.wait_for_selector("klaw-chats li:has-text('Дача')")
        assert wrong == []

    write_home(home)
    _, anna = add_token(tokens_file(home / "config"), "anna", "2026-01-01T00:00:00Z")
    async with served(home) as server:
        await in_browser(look, base(server), locale=locale, viewport=PHONE)


async def test_a_server_killed_in_the_middle_of_an_import(tmp_path):
    home, export = tmp_path / "home", large(tmp_path)
    database = home / "data" / "klaw.db"

    def begin(page, _wrong):
        page.evaluate("location.hash = '#/import'")
        choose(page, export)
        button(page, "Import it")
        section(page, "Importing")

    def again(page, wrong):
        page.evaluate("location.hash = '#/import'")
        page.wait_for_selector("klaw-import .lines li")  # what came in can be taken back
        choose(page, export)
        button(page, "Import it")
        section(page, "were here already")
        assert wrong == []

    async with served(write_home(home)) as server:
        await in_browser(begin, base(server), locale="en-GB")
        await until(lambda: stored(database))
        await server.kill()
        await server.start()
        before = stored(database).total()
        await in_browser(again, base(server), locale="en-GB")
        found = stored(database)
        assert before <= CHATS * EACH
        assert (len(found), set(found.values())) == (CHATS * EACH, {1})
