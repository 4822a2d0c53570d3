"""Debian's chromium, driven in a thread of its own, for tests of the page."""

import shutil
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.support.waiting import HANG_S

T = TypeVar("T")
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
_THREAD = ThreadPoolExecutor(1)  # a browser belongs to the thread that started it
_browser: Browser | None = None
_token: trio.lowlevel.TrioToken | None = None


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


def _started() -> Browser:
    """The one browser of this process; each test opens a context in it. To start one takes two seconds of CPU."""
    global _browser
    if _browser is None:
        _browser = sync_playwright().start().chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    elif not _browser.is_connected():  # a test brought it down
        _browser = _browser.browser_type.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    return _browser


def _with_microphone(sound: Path) -> Browser:
    """A browser of its own that may record without asking, and hears a WAV file once."""
    hears = [f"--use-file-for-fake-audio-capture={sound}%noloop", "--autoplay-policy=no-user-gesture-required"]
    allowed = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    return _started().browser_type.launch(executable_path=CHROMIUM, args=["--no-sandbox", *allowed, *hears])


async def in_browser(
    look: Callable[[Page, list[str]], T], base: str, *, microphone: Path | None = None, **context: Any
) -> T:
    """Open the page and let ``look`` use it; it is also given what went wrong in the browser: errors of scripts, what
    the policy forbids, and requests to any other server.

    Args:
        base: of the server.
        microphone: what it hears.
        context: of playwright's ``new_context``: ``locale``, ``viewport``; with ``service_workers="allow"`` the page's
            own runs, past which ``page.route`` sees nothing.
    """

    def run() -> T:
        wrong: list[str] = []
        browser = _started() if microphone is None else _with_microphone(microphone)
        opened = browser.new_context(**{"service_workers": "block", **context})
        try:
            page = opened.new_page()
            page.set_default_timeout(HANG_S * 1000)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if _is_wrong(said) else None)
            page.on(
                "request",
                lambda asked: None if asked.url.startswith((base, "data:", "blob:")) else wrong.append(asked.url),
            )
            page.goto(base)
            return look(page, wrong)
        except Exception as exc:
            exc.add_note(f"what went wrong in the browser: {wrong}")
            raise
        finally:
            for each in opened.pages:
                each.unroute_all(behavior="ignoreErrors")
            opened.close()
            if microphone is not None:
                browser.close()

    global _token
    _token = trio.lowlevel.current_trio_token()
    return await trio.to_thread.run_sync(lambda: _THREAD.submit(run).result())


def awaited(act: Callable[..., Awaitable[T]], *given: Any) -> T:
    """Await something of the test from its ``look``."""
    return trio.from_thread.run(act, *given, trio_token=_token)


def in_trio(act: Callable[[], T]) -> T:
    """Call something of the test from its ``look``."""
    return trio.from_thread.run_sync(act, trio_token=_token)
