"""Access keys, users and adding a phone on the page, in both languages, on a phone."""

import json
import re

import pytest
import segno

from klaw.gateway.tokens import add_token, load_access, tokens_file
from klaw.operations.host.token import own_addresses
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.server import run_klaw, served, write_home
from tests.web.e2e.test_page import base
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_system import log_in

pytestmark = needs_chromium

PHONE = {"width": 360, "height": 740}
NETWORK = own_addresses("ws://0.0.0.0:1/ws")
needs_network = pytest.mark.skipif(not NETWORK, reason="this machine has no address in a network")
WORDS = {
    "en-GB": {"phone": "Add a phone", "none": "make an access key first", "here": "listens only on this computer",
              "in": "Logged in as root.", "used": "used already", "other": "You are logged in as root."},
    "ru-RU": {"phone": "Добавить телефон", "none": "сначала создайте ключ", "here": "слушает только этот компьютер",
              "in": "Вы вошли как root.", "used": "уже использован", "other": "Вы вошли как root."},
}  # fmt: skip
both = pytest.mark.parametrize("locale", WORDS)
ME = "fetch('/api/v1/me').then((answer) => answer.json())"
MODULES = """async ([picture, size]) => {
    const image = new Image(), canvas = Object.assign(document.createElement("canvas"), { width: size, height: size });
    image.src = picture;
    await image.decode();
    const paper = canvas.getContext("2d");
    paper.imageSmoothingEnabled = false;
    paper.drawImage(image, 0, 0, size, size);
    return [...paper.getImageData(0, 0, size, size).data].filter((_, place) => place % 4 === 0).map((red) => red < 128);
}"""


def open_access(page):
    page.evaluate("location.hash = '#/access'")
    page.wait_for_selector("klaw-access h1")


def close(page):
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def fits(page):
    return page.evaluate(WIDE) == []


@both
async def test_the_first_key_keeps_this_browser_logged_in(tmp_path, locale):
    words = WORDS[locale]

    def look(page, wrong):
        page.wait_for_selector("nav a")
        open_access(page)
        page.click("[data-key='local Add a phone']")
        page.wait_for_selector(f"dialog .error:has-text('{words['none']}')")
        close(page)
        page.click("[data-key='Make the first access key']")
        page.wait_for_selector("dialog form")
        assert page.locator("dialog input").count() == 0
        assert fits(page)
        page.click("dialog button.main")
        secret = page.wait_for_selector("dialog code.secret").inner_text()
        me = page.evaluate(ME)
        assert (me["user"], me["operator"], me["needs_token"]) == ("local", True, True)
        page.click("dialog header button")
        page.wait_for_selector("[data-user=local] li:nth-child(2)")
        page.click("[data-key='local Add a phone']")
        page.wait_for_selector(f"dialog .error:has-text('{words['here']}')")
        assert fits(page)
        close(page)
        assert wrong == []
        return secret

    async with served(write_home(tmp_path)) as server:
        secret = await in_browser(look, base(server), locale=locale, viewport=PHONE)
        assert re.fullmatch(r"klaw_[\w-]{43}", secret)
        assert secret not in server.stderr
        access = load_access(tokens_file(tmp_path / "config"))
        assert [(each.user, each.operator) for each in access.tokens] == [("local", True)] * 2
        assert not access.local


@needs_network
@both
async def test_users_come_and_go_and_a_phone_scans_its_code(tmp_path, locale):
    words = WORDS[locale]

    def add_anna(page):
        page.click("[data-key='Add a user']")
        page.fill("dialog [name=name]", "Not A Name")
        page.click("dialog button.main")
        page.wait_for_selector("dialog [name=name][aria-invalid]")
        page.fill("dialog [name=name]", "anna")
        page.click("dialog button.main")
        secret = page.wait_for_selector("dialog code.secret").inner_text()
        assert fits(page)
        close(page)
        page.wait_for_selector("[data-user=anna] li")
        assert secret not in page.content()
        return secret

    def scan(page, user):
        """What the QR code says, read from the picture itself."""
        with page.expect_response("**/token/phone*") as answer:
            page.click(f"[data-key='{user} Add a phone']")
        told = answer.value.json()
        picture = page.wait_for_selector("dialog img.qr").get_attribute("src")
        code = segno.make(told["url"], micro=False)
        modules = page.evaluate(MODULES, [picture, code.symbol_size(border=4)[0]])
        assert modules == [bool(each) for row in code.matrix_iter(border=4) for each in row]
        assert fits(page)
        close(page)
        assert told["url"].startswith(f"{NETWORK[0].removesuffix(':1')}:")
        return told["url"]

    def on_phone(page, url, wrong):
        """Open an address in another browser."""
        phone = page.context.browser.new_context(locale=locale, viewport=PHONE).new_page()
        phone.on("pageerror", lambda error: wrong.append(str(error)))
        phone.goto(url)
        return phone

    def look(page, wrong):
        log_in(page, root)
        open_access(page)
        secret = add_anna(page)
        url = scan(page, "root")
        phone = on_phone(page, url, wrong)
        phone.wait_for_selector(f".toast:has-text('{words['in']}')")
        code = url.rpartition("/")[2]
        assert code not in phone.url
        assert code not in phone.evaluate("JSON.stringify(history.state) + document.documentElement.outerHTML")
        open_access(phone)
        phone.wait_for_selector("[data-user=anna]")  # with the rights of whoever showed the code
        late = on_phone(page, url, wrong)
        late.wait_for_selector(f".login .error:has-text('{words['used']}')")
        phone.evaluate("url => { location.href = url; }", scan(page, "anna"))
        phone.wait_for_selector(f"dialog:has-text('{words['other']}')")
        phone.click("dialog button.main")
        phone.wait_for_selector(".toast:has-text('anna')")
        open_access(phone)
        phone.wait_for_selector("[data-user=anna] li:nth-child(2)")
        assert phone.locator("[data-user]").count() == 1
        assert phone.locator("[data-key='Add a user']").count() == 0
        assert "root" not in phone.evaluate("fetch('/api/v1/token').then((answer) => answer.text())")
        page.wait_for_selector("[data-user=anna] li:nth-child(2)")
        page.click("[data-key='anna Remove user']")
        page.click("dialog button.main")
        page.wait_for_selector("[data-user=anna]", state="detached")
        phone.wait_for_selector("#token")
        assert wrong == []
        return secret, code

    home = write_home(tmp_path, gateway={"host": "0.0.0.0"})
    _, root = add_token(tokens_file(home / "config"), "root", "2026-01-01T00:00:00Z", operator=True)
    async with served(home) as server:
        secrets = await in_browser(look, base(server), locale=locale, viewport=PHONE)
        assert not any(each in server.stderr for each in secrets)


@needs_network
async def test_a_code_on_the_terminal(tmp_path):
    where = ("--home", str(tmp_path))
    home = write_home(tmp_path, gateway={"host": "0.0.0.0"})

    def look(page, wrong):
        page.wait_for_selector("#token")
        page.evaluate("code => { location.hash = `#/code/${code}`; }", url.rpartition("/")[2])
        page.wait_for_selector("nav a")
        wait_until(page, "!location.hash.includes('code')")
        assert page.evaluate(ME)["user"] == "anna"
        assert wrong == []

    add_token(tokens_file(home / "config"), "root", "2026-01-01T00:00:00Z", operator=True)
    code, out, err = await run_klaw("token", "add", "anna", "--qr", *where)
    assert (code, out) == (1, "")
    assert "no server is running" in err
    async with served(home) as server:
        code, out, err = await run_klaw("token", "add", "anna", "--qr", *where)
        assert code == 0, err
        url = re.search(r"http\S+", out)[0]
        assert "█" in out
        phone = base(server).replace("127.0.0.1", NETWORK[0].removeprefix("http://").removesuffix(":1"))
        assert url.startswith(f"{phone}/#/code/")
        await in_browser(look, phone)
        code, out, _ = await run_klaw(
            "token", "add", "anna", "--qr", "--url", "https://klaw.example.org", "--json", *where
        )
        assert json.loads(out)["url"].startswith("https://klaw.example.org/#/code/")
        code, out, err = await run_klaw("token", "add", "anna", "--qr", "--url", "javascript:alert(1)", *where)
        assert (code, "--url" in err) == (2, True)
