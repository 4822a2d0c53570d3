"""Routes of the page: its files, and messages as HTML. Everything it loads comes from this server."""

import hashlib
import re
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import attrs
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

import klaw.web
from klaw.actor.threads import Threads
from klaw.api.asker import Api
from klaw.api.openapi import PREFIX, About, DescribedRoute
from klaw.convert import REQUESTS, Bounds
from klaw.web import markdown

STATIC = Path(klaw.web.__file__).parent / "static"
MAX_RENDERED = 100
"""Texts of one request …"""
MAX_CHARS = 1_000_000
"""… and how long each may be; of a longer one the page shows the plain text."""


@attrs.frozen(kw_only=True)
class ToRender:
    """Body of a question for HTML."""

    texts: Annotated[list[Annotated[str, Bounds(at_most=MAX_CHARS)]], Bounds(1, MAX_RENDERED)]


def routes(api: Api) -> list[BaseRoute]:
    """The page and what it needs."""
    threads = Threads("Markdown", 1)

    async def page(_request: Request) -> Response:
        return HTMLResponse(_index(), headers={"cache-control": "no-cache"})

    async def code_colours(request: Request) -> Response:
        css = _code_css()
        etag = f'"{hashlib.sha256(css.encode()).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"etag": etag})
        return Response(css, media_type="text/css", headers={"etag": etag, "cache-control": "no-cache"})

    async def render(request: Request) -> Response:
        api.asker(request)
        asked = await api.json(request, partial(REQUESTS.read, cls=ToRender))
        return JSONResponse({"html": await threads.run(lambda: [markdown.to_html(text) for text in asked.texts])})

    rendered = About(name="render", help="Markdown as HTML that is harmless.", tag="page", body=ToRender)
    return [
        Route("/", page, methods=["GET"]),
        Route("/static/code.css", code_colours, methods=["GET"]),
        DescribedRoute(f"{PREFIX}/render", render, "POST", rendered),
        Mount("/static", _Revalidated(directory=STATIC)),
    ]


class _Revalidated(StaticFiles):
    """Files that a browser asks about each time, so that a page is never half old and half new after an update."""

    def file_response(self, *args: object, **how: object) -> Response:
        response = super().file_response(*args, **how)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response


@cache
def _code_css() -> str:
    return markdown.code_css()


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
