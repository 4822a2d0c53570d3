"""Logins of browsers: a token is given once, from then on a cookie stands for it. They are in the tokens file, so that
`klaw token list` shows and `klaw token revoke` ends them.
"""

from functools import partial
from typing import Annotated, Any, TypedDict

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from klaw import __version__
from klaw.actor.clock import iso
from klaw.api.openapi import PREFIX, About, DescribedRoute
from klaw.api.problems import problem
from klaw.api.request_auth import Api, connection_of, headers_of, place_of
from klaw.convert import REQUESTS, Bounds
from klaw.errors import HttpRefusal
from klaw.gateway import tokens
from klaw.gateway.origin_check import COOKIE, check_origin, session_of

MAX_LOGIN_BYTES = 2_048
"""Longest body of a login, which anybody may send: reading JSON takes a third of a second for each megabyte."""
_DAY_S = 86_400.0


@attrs.frozen(kw_only=True)
class LogIn:
    """Body of a login."""

    token: Annotated[str, Bounds(1, 200)]


class LoggedIn(TypedDict):
    user: str
    operator: bool


class Me(LoggedIn):
    needs_token: bool
    server: str


def routes(api: Api) -> list[Route]:
    """Who I am, login and logout."""

    async def who(request: Request) -> Response:
        grant = api.grant(request)
        return JSONResponse(
            {
                "user": grant.user,
                "operator": grant.operator,
                "needs_token": grant.token is not None,
                "server": f"klaw {__version__}",
            }
        )

    async def log_in(request: Request) -> Response:
        authenticator = api.services.auth
        check_origin(headers_of(request), api.services.config.allowed_origins, place_of(request))
        given = await api.json(request, partial(REQUESTS.read, cls=LogIn), MAX_LOGIN_BYTES)
        grant = authenticator.grant(given.token, loopback=False)
        if grant is None:
            raise HttpRefusal(401, "this token is not valid; klaw token add makes one")
        now, holds_s = api.core.clock.now(), api.services.config.http.session_days * _DAY_S
        add = partial(tokens.add_login, authenticator.path, grant, iso(now), iso(now + holds_s))
        secret = await api.core.files.run(add)
        response = JSONResponse({"user": grant.user, "operator": grant.operator})
        _set_cookie(response, request, secret, round(holds_s))
        return response

    async def log_out(request: Request) -> Response:
        api.grant(request)
        secret = session_of(headers_of(request))
        grant = api.services.auth.grant(secret, loopback=False, login=True) if secret else None
        if grant is None or grant.token is None:
            return problem(400, "not_logged_in", "this request has no login")
        await api.core.files.run(tokens.revoke_tokens, api.services.auth.path, grant.token)
        connection_of(request).user = None
        response = Response(status_code=204)
        _set_cookie(response, request, "", 0)
        return response

    def told_of(name: str, help_text: str, **more: Any) -> About:
        return About(name=name, help=help_text, tag="login", **more)

    begun = told_of("log_in", "Get a cookie for a token.", body=LogIn, answer=LoggedIn)
    ended = told_of("log_out", "End a browser's login.", status=204, gives=())
    return [
        DescribedRoute(f"{PREFIX}/me", who, "GET", told_of("me", "Who I am.", answer=Me)),
        DescribedRoute(f"{PREFIX}/login", log_in, "POST", begun),
        DescribedRoute(f"{PREFIX}/logout", log_out, "POST", ended),
    ]


def _set_cookie(response: Response, request: Request, value: str, age_s: int) -> None:
    more: dict[str, Any] = {"secure": request.headers.get("x-forwarded-proto") == "https"}
    response.set_cookie(COOKIE, value, max_age=age_s, path="/", httponly=True, samesite="strict", **more)
