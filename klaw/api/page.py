"""Routes of the page: its files, and messages as HTML. Everything it loads comes from this server."""

import hashlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, TypedDict

import attrs
import trio
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

import klaw.web
from klaw.api.openapi import PREFIX, About, DescribedRoute
from klaw.api.request_auth import Api
from klaw.convert import REQUESTS, Bounds
from klaw.domain.names import UserId
from klaw.web.child import plain

STATIC = Path(klaw.web.__file__).parent / "static"
MAX_RENDERED = 100
"""Texts of one request …"""
MAX_CHARS = 1_000_000
"""… and how long each may be; of a longer one the page shows the plain text."""


@attrs.frozen(kw_only=True)
class ToRender:
    """Body of a question for HTML."""

    texts: Annotated[list[Annotated[str, Bounds(at_most=MAX_CHARS)]], Bounds(1, MAX_RENDERED)]


class RenderedTexts(TypedDict):
    html: list[str]


def routes(api: Api) -> list[BaseRoute]:
    """The page and what it needs."""
    renderer = Renderer()

    async def page(_request: Request) -> Response:
        return HTMLResponse(_index(), headers={"cache-control": "no-cache"})

    async def code_colours(request: Request) -> Response:
        css = _code_css()
        etag = f'"{hashlib.sha256(css.encode()).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"etag": etag})
        return Response(css, media_type="text/css", headers={"etag": etag, "cache-control": "no-cache"})

    async def render(request: Request) -> Response:
        user = api.grant(request).user
        asked = await api.json(request, partial(REQUESTS.read, cls=ToRender))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_gone, request, nursery.cancel_scope)
            body = await renderer.render(user, asked.texts)
            nursery.cancel_scope.cancel(reason="it is rendered")
        return Response(body, media_type="application/json")

    about = "Markdown as HTML that is harmless; what would take too long, without colours or as it is."
    rendered = About(name="render", help=about, tag="page", body=ToRender, answer=RenderedTexts)
    return [
        Route("/", page, methods=["GET"]),
        Route("/static/code.css", code_colours, methods=["GET"]),
        DescribedRoute(f"{PREFIX}/render", render, "POST", rendered),
        Mount("/static", _RevalidatedFiles(directory=STATIC)),
    ]


class _RevalidatedFiles(StaticFiles):
    """Files that a browser asks about each time, so that a page is never half old and half new after an update."""

    def file_response(self, *args: object, **how: object) -> Response:
        response = super().file_response(*args, **how)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response


async def _cancel_when_gone(request: Request, scope: trio.CancelScope) -> None:
    """Nobody is to wait for what its client does not want any more."""
    await request.receive()  # the body has come: it can only be that the client has gone
    scope.cancel(reason="the client has gone")


@cache
def _code_css() -> str:
    """Colours of code, light and dark."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-theme=dark] .code")
    return f"{light}\n{dark}\n"


@cache
def _index() -> str:
    """The page; the modules of its first view are asked for at once, not one after the other as they are found."""
    links = "".join(f'<link rel="modulepreload" href="/static/{each}">\n' for each in sorted(first_modules()))
    return (STATIC / "index.html").read_text("utf-8").replace("<script", links + "<script", 1)


def first_modules() -> set[str]:
    """The modules without which the first view cannot be shown."""
    found: set[str] = set()
    asked = ["app.js", "views/chats.js"]
    while asked:
        module = asked.pop()
        if module not in found:
            found.add(module)
            asked += _IMPORT.findall((STATIC / module).read_text("utf-8"))
    return found


_IMPORT = re.compile(r'^import (?:[^;"]*? from )?"/static/(.*?)";', re.MULTILINE)


# -- texts as HTML: each request has a child process, since texts can be made so that they take minutes --------------

AT_ONCE = 3
"""Requests of different users."""
CHILDREN = 3
"""For one request: a text at which one ends is shown as it is, and the next goes on behind it."""


class Renderer:
    """Renders one request of each user at a time, in turn."""

    def __init__(self) -> None:
        self._places = trio.CapacityLimiter(AT_ONCE)
        self._turns: defaultdict[UserId, trio.Lock] = defaultdict(trio.Lock)

    async def render(self, user: UserId, texts: Sequence[str]) -> bytes:
        """The HTML of some texts, as JSON: ``{"html": […]}``.

        Cancellation: the child is gone.
        """
        done: list[bytes] = []
        async with self._turns[user], self._places:
            for _ in range(CHILDREN):
                done += await _rendered(texts[len(done) :])
                if len(done) == len(texts):
                    break
                done.append(_plain(texts[len(done)]))
        done += map(_plain, texts[len(done) :])
        return b'{"html": [%b]}' % b", ".join(done)


async def _rendered(texts: Sequence[str]) -> list[bytes]:
    """What a child has done until it ended."""
    try:
        ended = await trio.run_process(
            [sys.executable, "-I", "-B", "-m", "klaw.web.child"],
            stdin=json.dumps(texts).encode(),
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            env={},
            start_new_session=True,
            deliver_cancel=_kill,
        )
    except OSError:  # the system has no process or no memory for it
        return []
    return ended.stdout.split(b"\n")[:-1]


def _plain(text: str) -> bytes:
    return json.dumps(plain(text)).encode()


async def _kill(process: trio.Process) -> None:
    process.kill()
