"""Pictures of the page for the README, of a made-up home and a stub model.

    python tools/screenshots.py [--to docs/images]

Writes a chat in English, wide and light; one in Russian on a phone, dark; why an answer is what it is; connecting a
model; the settings; a knowledge base, an answer from it with its citations, and the passage that one of them opens.
Each has at most 60 KiB, else the command fails. Needs chromium.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trio
from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.browser import CHROMIUM
from tests.support.llm_server import Recorded, Reply, serve_llm, text_reply
from tests.support.repository import REPOSITORY
from tests.support.server import served, write_home
from tests.support.services.openai import OpenRouterModel, OpenRouterService

TALKS = {
    "travel": {"The train to Kraków leaves at 8:40.": "Good, that leaves time for breakfast."},
    "огород": {"Картофель посадили 3 мая, сорт Гала.": "Гала в начале мая: хороший срок."},
    "garden": {
        "Anna comes on Thursday; she is allergic to strawberries.": "Thursday then, without strawberries for Anna.",
        "Tom borrowed the long ladder yesterday.": "Then it is at his house.",
        "The old apple tree has to be cut in March.": "In March, before it has leaves.",
    },
}
CAKE = """An **apple cake** – no strawberries, she is allergic to them.

| for 12 pieces | |
|---|---|
| apples | 1 kg |
| flour | 250 g |
| butter | 125 g |
"""
POTATOES = """Вы посадили **Галу** 3 мая; ей нужно 70–80 дней:

1. подкопайте куст *после 12 июля*;
2. копайте, когда ботва подсохнет.
"""
QUESTIONS = {"garden": ("What can I bake for Anna?", CAKE), "огород": ("Когда копать картофель?", POTATOES)}
LEASE = """# Lease of the workshop

## Term

The lease begins on 1 March 2026 and ends on 28 February 2029. It is extended by one year unless one of the
parties gives notice three months before its end.

## Rent

The rent is 640 euros a month, heating included. The deposit is two months' rent; it is returned within 30 days after
the keys were handed over.
"""
INSURANCE = """# Страхование мастерской

## Что застраховано

Инструменты и станки до 12 000 евро: пожар, вода, кража со взломом. Велосипеды на улице не застрахованы.
"""
NOTICE = (
    "By when must I give notice?",
    "The lease ends on **28 February 2029**; notice is due three months before [1].",
)

KEY = "sk-or-v1-made-up"
MODELS = (
    OpenRouterModel(id="qwen/qwen3-32b", prompt="0.00000008", completion="0.00000024"),
    OpenRouterModel(id="mistralai/mistral-small", prompt="0.0000001", completion="0.0000003"),
    OpenRouterModel(
        id="google/gemma-3-27b-it",
        context=96_000,
        inputs=("text", "image"),
        prompt="0.00000009",
        completion="0.00000016",
    ),
    OpenRouterModel(id="deepseek/deepseek-chat", context=163_840, prompt="0.0000002", completion="0.0000008"),
)
MOST_BYTES = 60 * 1024


def reply(request: Recorded) -> Reply:
    if NOTICE[0] in request.last_user:
        return text_reply(NOTICE[1])
    known = dict(QUESTIONS.values()) | {asked: text for talk in TALKS.values() for asked, text in talk.items()}
    return text_reply(known.get(request.last_user, "…"))


def opened(browser: Browser, base: str, chat: str, width: int, height: int, **how: Any) -> Page:
    """A chat in which the question was answered."""
    page = browser.new_context(viewport={"width": width, "height": height}, **how).new_page()
    page.goto(f"{base}/#/chats/{chat}")
    answer = f"article.assistant[data-seq='{2 * len(TALKS[chat]) + 2}']"
    page.wait_for_selector("article.assistant")
    page.fill("textarea", QUESTIONS[chat][0])
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{answer} .text:not(.plain)")
    page.wait_for_timeout(500)
    return page


def take(base: str, to: Path, service: OpenRouterService) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        asking = browser.new_context().request
        for chat, talk in TALKS.items():
            for text in talk:
                asking.post(f"{base}/api/v1/chats/{quote(chat)}/messages", data={"text": text})
        page = opened(browser, base, "garden", 860, 390, locale="en-GB", color_scheme="light")
        page.screenshot(path=to / "page.png")
        page.set_viewport_size({"width": 860, "height": 470})
        page.click("article >> text=Why this answer >> nth=-1")
        page.wait_for_selector("dialog .bar")
        page.wait_for_timeout(500)
        page.screenshot(path=to / "made-from.png")
        page = opened(browser, base, "огород", 360, 640, locale="ru-RU", color_scheme="dark")
        page.screenshot(path=to / "phone.png")
        knowledge(browser, base, to)
        models(browser, base, to, service)
        browser.close()


def models(browser: Browser, base: str, to: Path, service: OpenRouterService) -> None:
    """The models of a service that is being connected, and the settings."""
    page = browser.new_context(viewport={"width": 860, "height": 520}, locale="en-GB", color_scheme="light").new_page()
    page.goto(f"{base}/#/system/connect")
    page.click("dialog .choice >> text=OpenRouter")
    page.fill("dialog [name=url]", service.address)
    page.fill("dialog [name=key]", KEY)
    page.click("dialog button.main")
    page.wait_for_selector("dialog .choice >> nth=3")
    page.wait_for_timeout(500)
    page.screenshot(path=to / "connect.png")
    page.goto(f"{base}/#/settings")
    page.reload()
    page.fill("input[type=search]", "recall")
    page.wait_for_timeout(500)
    page.screenshot(path=to / "settings.png")


def knowledge(browser: Browser, base: str, to: Path) -> None:
    """A base, a question to it, and what a mark of the answer opens."""
    page = browser.new_context(viewport={"width": 860, "height": 580}, locale="en-GB", color_scheme="light").new_page()
    page.goto(f"{base}/#/knowledge")
    page.click("text=New base")
    page.fill("dialog [name=name]", "Workshop")
    page.fill("dialog [name=description]", "Lease, insurance and manuals")
    page.click("dialog button.main")
    page.wait_for_selector(".drop")
    files = {"lease.md": LEASE, "страховка.md": INSURANCE}
    given: Any = [{"name": name, "mimeType": "text/markdown", "buffer": text.encode()} for name, text in files.items()]
    page.set_input_files(".drop input[type=file]", given)
    page.wait_for_selector("section[aria-label=Documents] li:nth-child(2) a")
    page.wait_for_timeout(5_000)
    page.screenshot(path=to / "knowledge.png")
    page.click("text=Ask it in a new chat")
    page.wait_for_selector("textarea")
    page.fill("textarea", NOTICE[0])
    page.keyboard.press("Enter")
    page.wait_for_selector("article.assistant .cite")
    page.set_viewport_size({"width": 720, "height": 480})
    page.wait_for_timeout(500)
    page.screenshot(path=to / "citations.png")
    page.set_viewport_size({"width": 860, "height": 580})
    page.click("article.assistant .cite")
    page.click("dialog >> text=Read on")
    page.wait_for_selector(".passage .found")
    page.wait_for_timeout(500)
    page.screenshot(path=to / "passage.png")


async def main(to: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        rows = [model.row() for model in MODELS]
        for row in rows:
            del row["pricing"]["input_cache_read"]
        async with serve_llm() as llm, serve_llm(OpenRouterService(rows, key=KEY)) as service:
            llm.respond = reply
            home = write_home(Path(made), llm=llm.url, context={"slidingWindow": 2})
            async with served(home) as server:
                base = server.url.replace("ws://", "http://").removesuffix("/ws")
                await trio.to_thread.run_sync(take, base, to, service)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=REPOSITORY / "docs" / "images")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    trio.run(main, folder)
    sizes = {each.name: each.stat().st_size for each in sorted(folder.glob("*.png"))}
    print(*(f"{name}: {size // 1000} kB" for name, size in sizes.items()), sep="\n")
    sys.exit(f"more than {MOST_BYTES // 1024} KiB" if max(sizes.values()) > MOST_BYTES else 0)
