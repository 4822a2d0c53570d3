"""Files in the page, in a real browser: picked, pasted, dropped, refused, and seen after a reload."""

import base64
import struct
import zlib

import pytest

from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.llm_server import serve_llm
from tests.support.server import served, write_home
from tests.web.e2e.test_page import base, begin_chat

pytestmark = needs_chromium


def png(colour):
    """A picture of one colour, 40 by 30."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * 40) * 30
    head = struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


CARRY = """([event, name, data]) => {
    const carried = new DataTransfer();
    carried.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, {type: "image/png"}));
    const how = {bubbles: true, cancelable: true};
    document.querySelector("textarea").dispatchEvent(event === "paste"
        ? new ClipboardEvent("paste", {...how, clipboardData: carried})
        : new DragEvent("drop", {...how, dataTransfer: carried}));
}"""


def carry(page, event, name, data):
    page.evaluate(CARRY, [event, name, base64.b64encode(data).decode()])


def uploaded(page, count):
    wait_until(page, "count => document.querySelectorAll('klaw-files .chip progress[hidden]').length === count", count)


WORDS = {
    "ru-RU": ("Новый чат", "Прикрепить файл", "Убрать файл", "Файл будет прочитан.", "Не прочитано: файл повреждён"),
    "en-US": ("New chat", "Attach a file", "Remove the file", "It will be read.", "Not read: it is a damaged PDF"),
}


@pytest.mark.parametrize("locale", WORDS)
async def test_pictures_are_attached_and_seen_after_a_reload(tmp_path, locale):
    button, attach, remove, read, unread = WORDS[locale]

    def look(page, wrong):
        begin_chat(page, "дача", button)
        with page.expect_file_chooser() as chooser:
            page.focus(f"button[aria-label='{attach}']")
            page.keyboard.press("Enter")
        chooser.value.set_files({"name": "теплица.png", "mimeType": "image/png", "buffer": png((20, 160, 60))})
        uploaded(page, 1)
        page.reload()  # what was attached waits like what was typed
        uploaded(page, 1)
        carry(page, "paste", "pasted.png", png((200, 40, 40)))
        carry(page, "drop", "dropped.png", png((40, 40, 200)))
        uploaded(page, 3)
        page.click(f"button[aria-label='{remove} dropped.png']")
        with page.expect_file_chooser() as chooser:
            page.click(f"button[aria-label='{attach}']")
        large = {"name": "large.bin", "mimeType": "text/plain", "buffer": bytes(100_001)}
        note = {"name": "<b>note<b>.txt", "mimeType": "text/plain", "buffer": "Заметка".encode()}
        pdf = {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7"}
        chooser.value.set_files([large, note, pdf])
        page.wait_for_selector(".toast:has-text('large.bin')")
        uploaded(page, 4)
        assert page.inner_text(".chip:has-text('note') .reading") == read
        assert page.inner_text(".chip:has-text('plan.pdf') .reading").startswith(unread)
        wait_until(
            page, "[...document.querySelectorAll('.chip img')].map((each) => each.naturalWidth).join() === '40,40'"
        )
        page.click(f"button[aria-label='{remove} plan.pdf']")
        page.focus("textarea")
        page.keyboard.press("Enter")
        page.wait_for_selector("article.assistant[data-seq]")
        for _ in range(2):
            shown = page.locator("article.user .files img")
            assert [shown.nth(index).get_attribute("alt") for index in range(2)] == ["теплица.png", "pasted.png"]
            wait_until(
                page, "[...document.querySelectorAll('article.user img')].every((each) => each.naturalWidth === 40)"
            )
            assert page.inner_text("article.user .files a.chip .name") == "<b>note<b>.txt"
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            page.reload()
            page.wait_for_selector("article.user .files img")
        with page.expect_download() as download:
            page.click("article.user .files a.chip")
        assert download.value.path().read_text() == "Заметка"
        assert page.locator("klaw-files .chip").count() == 0
        assert wrong == []

    config = {"maxRetries": 0, "models": {"echo": {"images": True, "contextTokens": 100_000}}}
    async with serve_llm() as llm:
        providers = {"stub": {"baseUrl": llm.url, **config}}
        home = write_home(tmp_path, llm=llm.url, providers=providers, attachments={"maxFileBytes": 100_000})
        async with served(home) as server:
            await in_browser(look, base(server), locale=locale, viewport={"width": 360, "height": 740})
        (asked,) = [each for each in llm.requests[-1].body["messages"] if each["role"] == "user"]
        pictures = [part["image_url"]["url"] for part in asked["content"] if part["type"] == "image_url"]
        assert pictures == [
            f"data:image/png;base64,{base64.b64encode(png(colour)).decode()}"
            for colour in ((20, 160, 60), (200, 40, 40))
        ]
