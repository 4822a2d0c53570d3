"""Routes of the page: its files, and messages as HTML. Everything it loads comes from this server."""

import hashlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Annotated, Any, TypedDict

import attrs
import trio
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

import klaw.web
from klaw import __version__
from klaw.actor.clock import iso
from klaw.api.openapi import PREFIX, About, DescribedRoute
from klaw.api.problems import problem
from klaw.api.request_auth import Api, connection_of, headers_of, place_of, prefix_of
from klaw.api.streams import while_connected
from klaw.convert import REQUESTS, Bounds
from klaw.domain.names import UserId
from klaw.errors import HttpRefusal
from klaw.gateway import answers, tokens
from klaw.gateway.origin_check import COOKIE, check_origin, session_of
from klaw.gateway.push import Pusher
from klaw.operations.mcp import CALLBACK
from klaw.store.kinds import tasks
from klaw.web.child import plain

STATIC = Path(klaw.web.__file__).parent / "static"
LOGGED_IN = "Klaw goes on with the login. You can close this page.\nKlaw завершает вход. Эту страницу можно закрыть.\n"
NO_LOGIN = "No login like this was begun here, or it is over.\nТакой вход здесь не начинали, или он уже закончен.\n"
MAX_RENDERED = 100
"""Texts of one request …"""
MAX_CHARS = 1_000_000
"""… and how long each may be; of a longer one the page shows the plain text."""


@attrs.frozen(kw_only=True)
class ToRender:
    texts: Annotated[list[Annotated[str, Bounds(at_most=MAX_CHARS)]], Bounds(1, MAX_RENDERED)]


class RenderedTexts(TypedDict):
    html: list[str]


def routes(api: Api) -> list[BaseRoute]:
    renderer = Renderer()

    async def page(_request: Request) -> Response:
        return HTMLResponse(_index(), headers={"cache-control": "no-cache"})

    async def code_colours(request: Request) -> Response:
        css = _code_css()
        etag = f'"{_digest(css)}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"etag": etag})
        return Response(css, media_type="text/css", headers={"etag": etag, "cache-control": "no-cache"})

    async def service_worker(request: Request) -> Response:
        text = await api.core.files.run(_service_worker, prefix_of(request))
        return Response(text, media_type="text/javascript", headers={"cache-control": "no-cache"})

    async def logged_in(request: Request) -> Response:
        """Where a browser comes back to from a login to an MCP server; what it needs is the ``state`` of that login."""
        taken = any(server.takes_login(str(request.url)) for server in api.parts.tools.mcp)
        return PlainTextResponse(LOGGED_IN if taken else NO_LOGIN, status_code=200 if taken else 404)

    async def render(request: Request) -> Response:
        user = api.grant(request).user
        asked = await api.json(request, partial(REQUESTS.read, cls=ToRender))
        body = await while_connected(request.receive, partial(renderer.render, user, asked.texts))
        return Response(body, media_type="application/json")

    about = "Markdown as HTML that is harmless. What would take too long comes without colours, or as it is."
    rendered = About("render", about, "page", body=ToRender, answer=RenderedTexts)
    return [
        Route("/", page, methods=["GET"]),
        Route("/sw.js", service_worker, methods=["GET"]),
        Route(CALLBACK, logged_in, methods=["GET"]),
        Route("/static/code.css", code_colours, methods=["GET"]),
        DescribedRoute(f"{PREFIX}/render", render, "POST", rendered),
        *_push_routes(api),
        Mount("/static", _RevalidatedFiles(directory=STATIC)),
    ]


class _RevalidatedFiles(StaticFiles):
    """Files that a browser asks about each time, so that a page is never half old and half new after an update."""

    def file_response(self, *args: object, **how: object) -> Response:
        response = super().file_response(*args, **how)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response


@cache
def _code_css() -> str:
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-theme=dark] .code")
    return f"{light}\n{dark}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(4)
def _service_worker(prefix: str) -> str:
    """The service worker, told what it keeps: all that the page consists of, under a name that changes with it. What
    else lives on the same host has other names."""
    files = sorted(path for path in STATIC.rglob("*.*") if path.name != "sw.js" and path.suffix != ".png")
    content = {f"{prefix}/": _index(), f"{prefix}/static/code.css": _code_css()}
    content |= {f"{prefix}/static/{path.relative_to(STATIC).as_posix()}": path.read_text("utf-8") for path in files}
    script = (STATIC / "sw.js").read_text("utf-8")
    own = f"klaw{prefix} "
    told = {"OWN": own, "VERSION": own + _digest(json.dumps([script, content])), "FILES": [*content]}
    return f"const {', '.join(f'{name} = {json.dumps(value)}' for name, value in told.items())};\n{script}"


@cache
def _index() -> str:
    """The page; the modules of its first view are asked for at once, not one after the other as they are found."""
    links = "".join(f'<link rel="modulepreload" href="static/{each}">\n' for each in sorted(first_modules()))
    return (STATIC / "index.html").read_text("utf-8").replace("<script", links + "<script", 1)


def first_modules() -> set[str]:
    """The modules without which the first view cannot be shown."""
    found: set[str] = set()
    asked = ["app.js", "views/chats.js"]
    while asked:
        module = asked.pop()
        if module not in found:
            found.add(module)
            named = _IMPORT.findall((STATIC / module).read_text("utf-8"))
            asked += [normpath(join("/static", dirname(module), each)).removeprefix("/static/") for each in named]
    return found


_IMPORT = re.compile(r'^(?:import|export) (?:[^;"]*? from )?"([./].*?)";', re.MULTILINE)


# -- texts as HTML: each request has a child process, since texts can be made so that they take minutes --------------

AT_ONCE = 3
CHILDREN = 3
"""For one request: a text at which one ends is shown as it is, and the next goes on behind it."""


class Renderer:
    """Renders one request of each user at a time, in turn."""

    def __init__(self) -> None:
        self._places = trio.CapacityLimiter(AT_ONCE)
        self._turns: defaultdict[UserId, trio.Lock] = defaultdict(trio.Lock)

    async def render(self, user: UserId, texts: Sequence[str]) -> bytes:
        """The HTML of some texts, as JSON: ``{"html": […]}``."""
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


# -- notifications of browsers: see ``gateway.push`` -----------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ToNotify:
    endpoint: Annotated[str, Bounds(1, 2_000)]
    p256dh: Annotated[str, Bounds(80, 100, "[A-Za-z0-9_-]+=*")]
    auth: Annotated[str, Bounds(16, 40, "[A-Za-z0-9_-]+=*")]
    words: bool = True


class NotifiedBrowser(TypedDict):
    id: str


class PushKey(TypedDict):
    key: str


def _push_routes(api: Api) -> list[Route]:
    def push() -> Pusher:
        if api.services.push is None:
            raise HttpRefusal(503, "this server sends no notifications")
        return api.services.push

    async def key(request: Request) -> Response:
        api.grant(request)
        return JSONResponse({"key": await push().public_key()})

    async def subscribe(request: Request) -> Response:
        grant = api.grant(request)
        asked = await api.json(request, partial(REQUESTS.read, cls=ToNotify), MAX_PUSH_BYTES)
        made = await push().subscribe(grant, asked.endpoint, asked.p256dh, asked.auth, words=asked.words)
        return JSONResponse({"id": made}, 201)

    async def unsubscribe(request: Request) -> Response:
        user, which = api.grant(request).user, request.path_params["id"]
        if not await push().remove(lambda each: each.user == user and each.id == which):
            return problem(404, "unknown_browser", "no browser of yours with this id is notified")
        return Response(status_code=204)

    about = "The key with which this server signs notifications. A browser wants it as applicationServerKey."
    of_key = About("push_key", about, "push", answer=PushKey)
    about = "Notify a browser. The body is its push subscription; words: whether notifications quote the message."
    of_new = About("push_add", about, "push", body=ToNotify, answer=NotifiedBrowser, status=201)
    about = "Notify a browser no more. The id is what push_add gave."
    of_gone = About("push_delete", about, "push", status=204, gives=())
    return [
        DescribedRoute(f"{PREFIX}/push", key, "GET", of_key),
        DescribedRoute(f"{PREFIX}/push", subscribe, "POST", of_new),
        DescribedRoute(f"{PREFIX}/push/{{id}}", unsubscribe, "DELETE", of_gone),
    ]


# -- logins of browsers: a token is given once, from then on a cookie stands for it ------------------------------------


MAX_LOGIN_BYTES = 2_048
"""Longest body of a login, which anybody may send: reading JSON takes a third of a second for each megabyte."""
MAX_PUSH_BYTES = 4_096
_DAY_S = 86_400.0


@attrs.frozen(kw_only=True)
class LogIn:
    token: Annotated[str, Bounds(1, 200)] | None = None
    code: Annotated[str, Bounds(1, 200)] | None = None
    """Of ``token_phone``, in the token's place."""


class LoggedIn(TypedDict):
    user: str
    operator: bool


class Me(LoggedIn):
    needs_token: bool
    zone: str | None
    server: str
    hint: str | None
    degraded: list[dict[str, str]]


def login_routes(api: Api) -> list[Route]:
    async def who(request: Request) -> Response:
        grant = api.grant(request)
        me = {"user": grant.user, "operator": grant.operator, "needs_token": grant.token is not None}
        zone = await api.parts.readers.run(tasks.zone, grant.user)
        chats = api.services.chats  # what the welcome tells too: nothing of the page moves when that comes
        hint = answers.hint(operator=grant.operator) if chats.is_on_trial() else None
        degraded = [{"code": code, "text": str(text)} for code, text in sorted(chats.health().items())]
        return JSONResponse({**me, "zone": zone, "server": f"klaw {__version__}", "hint": hint, "degraded": degraded})

    async def log_in(request: Request) -> Response:
        authenticator = api.services.auth
        check_origin(headers_of(request), api.services.config.page_origins, place_of(request))
        given = await api.json(request, partial(REQUESTS.read, cls=LogIn), MAX_LOGIN_BYTES)
        if given.code is not None:
            grant = authenticator.redeem(given.code)
            why = "this code was used already, or is too old: make a new one"
        else:
            grant = authenticator.grant(given.token, loopback=False)
            why = "this token is not valid; klaw token add makes one"
        if grant is None:
            raise HttpRefusal(401, why)
        response = JSONResponse({"user": grant.user, "operator": grant.operator})
        await begin_login(api, request, response, grant)
        return response

    async def log_out(request: Request) -> Response:
        api.grant(request)
        secret = session_of(headers_of(request))
        grant = api.services.auth.grant(secret, loopback=False, login=True) if secret else None
        if grant is None or grant.token is None:
            return problem(400, "not_logged_in", "this request has no login")
        login = grant.token
        await api.core.files.run(tokens.revoke_tokens, api.services.auth.path, login)
        if api.services.push is not None:
            await api.services.push.remove(lambda each: each.login == login)
        connection_of(request).user = None
        response = Response(status_code=204)
        _set_cookie(response, request, "", 0)
        return response

    about = "Get a cookie for a token, or for a code of token_phone. Programs need none: they send the token."
    begun = About("log_in", about, "login", body=LogIn, answer=LoggedIn)
    ended = About("log_out", "End a browser's login. The token stays valid.", "login", status=204, gives=())
    about = "Who I am. It tells the user whose data a token or a cookie opens."
    return [
        DescribedRoute(f"{PREFIX}/me", who, "GET", About("me", about, "login", answer=Me)),
        DescribedRoute(f"{PREFIX}/login", log_in, "POST", begun),
        DescribedRoute(f"{PREFIX}/logout", log_out, "POST", ended),
    ]


async def begin_login(api: Api, request: Request, response: Response, grant: tokens.Grant) -> None:
    now, holds_s = api.core.clock.now(), api.services.config.http.session_days * _DAY_S
    add = partial(tokens.add_login, api.services.auth.path, grant, iso(now), iso(now + holds_s))
    _set_cookie(response, request, await api.core.files.run(add), round(holds_s))


def _set_cookie(response: Response, request: Request, value: str, age_s: int) -> None:
    more: dict[str, Any] = {"path": f"{prefix_of(request)}/", "secure": request.url.scheme == "https"}
    response.set_cookie(COOKIE, value, max_age=age_s, httponly=True, samesite="strict", **more)
