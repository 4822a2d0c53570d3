"""Debian's chromium, driven in a thread of its own, for tests of the page."""

import shutil
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio
from playwright.sync_api import ConsoleMessage, Page, sync_playwright

from tests.support.waiting import HANG_S

T = TypeVar("T")
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
_LIMITER = trio.CapacityLimiter(2)


def _is_wrong(said: ConsoleMessage) -> bool:
    """An answer that says no is told as an error too."""
    return said.type == "error" and not said.text.startswith(("Failed to load resource", "WebSocket connection"))


def wait_until(page: Page, script: str, arg: Any = None) -> None:
    """Wait until a script gives something true. Playwright's own ``wait_for_function`` evaluates its text inside of the
    page from the second look on, which the page's policy forbids."""
    deadline = time.monotonic() + HANG_S
    while not page.evaluate(script, arg):
        assert time.monotonic() < deadline, f"still not true: {script}"
        page.wait_for_timeout(20)


async def in_browser(look: Callable[[Page, list[str]], T], base: str, **context: Any) -> T:
    """Open the page and let ``look`` use it; it is also given what went wrong in the browser: errors of scripts, what
    the policy forbids, and requests to any other server.

    Args:
        base: of the server.
        context: of playwright's ``new_context``: ``locale``, ``viewport``; with ``service_workers="allow"`` the page's
            own runs, past which ``page.route`` sees nothing.
    """

    def run() -> T:
        wrong: list[str] = []
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_context(**{"service_workers": "block", **context}).new_page()
            page.set_default_timeout(HANG_S * 1000)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if _is_wrong(said) else None)
            page.on(
                "request",
                lambda asked: None if asked.url.startswith((base, "data:", "blob:")) else wrong.append(asked.url),
            )
            page.goto(base)
            try:
                return look(page, wrong)
            except Exception as exc:
                exc.add_note(f"what went wrong in the browser: {wrong}")
                raise
            finally:
                browser.close()

    return await trio.to_thread.run_sync(run, limiter=_LIMITER)
