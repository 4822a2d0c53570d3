"""OAuth 2.1 for MCP clients elsewhere, such as Claude and ChatGPT: a user who is logged in lets one in to ``/mcp``.

A client's id is what it registered (RFC 7591), written out. So nothing is kept of strangers, and an id that somebody
made up is worth as much as a registered one: what counts is the consent, on a page that names where the code goes.
Nothing leads a browser elsewhere without a click on that page.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

import klaw.web
from klaw.api import page
from klaw.api.request_auth import Api, address_of, headers_of, place_of
from klaw.convert import FRAMES, Bounds, Check
from klaw.domain.text import cut, one_line, printable
from klaw.errors import BadValue, HttpRefusal
from klaw.gateway import tokens
from klaw.gateway.origin_check import check_origin, session_of
from klaw.gateway.tokens import ClientTokens, Grant, McpClient

SCOPE = "mcp"
CODE_S = 60.0
MAX_CODES = 100
MAX_BODY_BYTES = 8_192
MAX_NAME = 60
_ASKED = "response_type", "client_id", "redirect_uri", "code_challenge", "code_challenge_method", "state", "resource"
_LOOPBACK = re.compile(r"\A(http://(?:127\.0\.0\.1|\[::1\]|localhost))(:[0-9]{1,5})?(?![^/?])")
_REDIRECT = re.compile(
    rf"(?:(?P<web>https://[A-Za-z0-9.-]+(?::[0-9]{{1,5}})?)(?![^/?])|(?P<here>{_LOOPBACK.pattern})"
    r"|(?P<app>[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+|cursor|vscode|vscode-insiders|windsurf):)"
    r"[A-Za-z0-9._~:/?@!$&'()*+,;=%\[\]-]*"
)
"""Web pages over TLS, programs of the browser's own machine, and apps by a scheme of a domain (RFC 8252, 7) or one of
those that editors use."""


class OAuthError(Exception):
    """``code`` of RFC 6749, 5.2 or RFC 7591, 3.2.2; on a page, the key of a text."""

    def __init__(self, code: str, text: str = "", status: int = 400) -> None:
        super().__init__(text)
        self.code, self.status = code, status


def _redirect_uri(text: str) -> str:
    if not _REDIRECT.fullmatch(text):
        raise ValueError("must be an https address, one of the browser's own machine, or of an app")
    return text


@attrs.frozen(kw_only=True)
class Registration:
    redirect_uris: Annotated[tuple[Annotated[str, Bounds(1, 300), Check(_redirect_uri)], ...], Bounds(1, 10)]
    client_name: Annotated[str, Bounds(0, 200)] = ""

    @property
    def name(self) -> str:
        return cut(printable(one_line(self.client_name)), MAX_NAME) or cut(place_in(self.redirect_uris[0]), MAX_NAME)

    @property
    def id(self) -> str:
        written = json.dumps([self.client_name, *self.redirect_uris], separators=(",", ":"))
        return base64.urlsafe_b64encode(written.encode()).decode().rstrip("=")

    def accepts(self, uri: str) -> bool:
        """Whether a code may be sent there: exactly a registered one, on the loopback with any port (RFC 8252, 7.3)."""
        return any(_LOOPBACK.sub(r"\1", uri) == _LOOPBACK.sub(r"\1", each) for each in self.redirect_uris)


def registered(client_id: str) -> Registration:
    """Raises OAuthError: it is no client's id."""
    try:
        name, *uris = json.loads(base64.urlsafe_b64decode(client_id + "=" * (-len(client_id) % 4)))
        return FRAMES.read({"client_name": name, "redirect_uris": uris}, Registration)
    except (ValueError, TypeError, RecursionError, BadValue):
        raise OAuthError("invalid_client", "there is no client of this id: register again", 401) from None


def place_in(uri: str) -> str:
    """What a person should know of a redirect URI: its host, or the scheme of an app."""
    found = _REDIRECT.match(uri)
    assert found is not None
    return f"{found['app']}:" if found["app"] else urlsplit(uri).netloc


@attrs.frozen(kw_only=True)
class AuthorizationRequest:
    """What a client asks a user for."""

    client: Registration
    client_id: str
    redirect_uri: str
    challenge: str
    state: str | None
    query: str

    def redirect(self, **told: str) -> Response:
        told |= {"state": self.state} if self.state is not None else {}
        begun = f"{self.redirect_uri}{'&' if '?' in self.redirect_uri else '?'}"
        return RedirectResponse(begun + urlencode(told), 303, {"cache-control": "no-store"})


@attrs.define
class AuthorizationCode:
    asked: AuthorizationRequest
    grant: Grant
    until: float
    used: bool = False
    made: ClientTokens | None = None


class AuthorizationServer:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._codes: dict[str, AuthorizationCode] = {}
        """By SHA-256. A restart ends them."""
        self._key = secrets.token_bytes(32)

    async def answer(self, request: Request) -> Response:
        what = request.scope["path"].removeprefix(request.scope.get("root_path", "")).split("/")[2]
        try:
            match what, request.method:
                case "oauth-protected-resource", _:
                    return JSONResponse(self._resource(address_of(request, self._api)))
                case "oauth-authorization-server", _:
                    return JSONResponse(self._metadata(address_of(request, self._api)))
                case "register", _:
                    return await self._register(request)
                case "authorize", "POST":
                    return await self._decide(request)
                case "authorize", _:
                    return self._ask(request)
            given = await self._form(request)
            if what == "token":
                return await self._token(request, given)
            await self._change(tokens.end_client, given.get("token", ""), given.get("client_id", ""))
            return Response()
        except OAuthError as error:
            if what == "authorize":
                problem = error.code if error.code in _TEXTS["en"] else "wrong_request"
                return shown(request, "refused", error.status, problem)
            told = {"error": error.code, "error_description": str(error)}
            return JSONResponse(told, error.status, {"cache-control": "no-store"})

    async def _form(self, request: Request) -> dict[str, str]:
        """Raises OAuthError, HttpRefusal."""
        body = await self._api.body(request, MAX_BODY_BYTES)
        return _single(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

    def _resource(self, address: str) -> dict[str, Any]:
        return {
            "resource": f"{address}/mcp",
            "authorization_servers": [address],
            "scopes_supported": [SCOPE],
            "bearer_methods_supported": ["header"],
            "resource_name": "Klaw",
        }

    def _metadata(self, address: str) -> dict[str, Any]:
        return {
            "issuer": address,
            **{f"{name}_endpoint": f"{address}/oauth/{path}" for name, path in _ENDPOINTS},
            "scopes_supported": [SCOPE],
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    async def _register(self, request: Request) -> Response:
        try:
            client = await self._api.json(request, partial(FRAMES.read, cls=Registration), MAX_BODY_BYTES)
        except BadValue as error:
            of_uri = any(each.path.startswith("redirect_uris") for each in error.problems)
            code = "invalid_redirect_uri" if of_uri else "invalid_client_metadata"
            raise OAuthError(code, "; ".join(map(str, error.problems))) from None
        told = {"grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"], "scope": SCOPE}
        made = {"client_id": client.id, **attrs.asdict(client), **told, "token_endpoint_auth_method": "none"}
        return JSONResponse(made, 201, {"cache-control": "no-store"})

    # -- the user's consent --------------------------------------------------------------------------------------------

    def _asked(self, request: Request) -> AuthorizationRequest:
        """Raises OAuthError."""
        given = _single(request.query_params.multi_items())
        try:
            client = registered(given.get("client_id", ""))
        except OAuthError:
            raise OAuthError("client") from None
        uri = given.get("redirect_uri", client.redirect_uris[0] if len(client.redirect_uris) == 1 else "")
        if not _REDIRECT.fullmatch(uri) or not client.accepts(uri):
            raise OAuthError("redirect")
        challenge = given.get("code_challenge", "")
        asks_so = given.get("response_type"), given.get("code_challenge_method")
        if asks_so != ("code", "S256") or not re.fullmatch(r"[A-Za-z0-9_-]{43}", challenge):
            raise OAuthError("pkce")
        self._check_resource(request, given)
        query = urlencode({name: given[name] for name in _ASKED if name in given})
        return AuthorizationRequest(
            client=client,
            client_id=given["client_id"],
            redirect_uri=uri,
            challenge=challenge,
            state=given.get("state"),
            query=query,
        )

    def _check_resource(self, request: Request, given: Mapping[str, str]) -> None:
        own = f"{address_of(request, self._api)}/mcp"
        if given.get("resource", own).rstrip("/") != own:
            raise OAuthError("invalid_target", f"tokens are given for {own} only")

    def _login(self, request: Request) -> tuple[str, Grant | None]:
        """The secret of the browser's login, and whose it is."""
        secret = session_of(headers_of(request)) or ""
        return secret, self._api.services.auth.grant(secret, loopback=False, login=True)

    def _ask(self, request: Request) -> Response:
        asked, (secret, grant) = self._asked(request), self._login(request)
        if grant is None and "again" not in request.query_params:
            # The browser keeps its login from what another site leads to: this page leads to itself.
            return shown(request, "again", again=f"?{asked.query}&again=1")
        return self._consent(request, asked, secret, grant)

    def _consent(
        self, request: Request, asked: AuthorizationRequest, secret: str, grant: Grant | None, problem: str = ""
    ) -> Response:
        """The page that asks, or the one to log in on."""
        told: dict[str, Any] = {"client": asked.client.name, "place": place_in(asked.redirect_uri), "goes_to": asked.redirect_uri}
        if grant is None:
            return shown(request, "login", 401 if problem else 200, problem, **told)
        return shown(request, "consent", user=grant.user, form=self._form_key(secret, asked), **told)

    def _form_key(self, secret: str, asked: AuthorizationRequest) -> str:
        """Only a form that this login was shown for these very questions has it."""
        return hmac.new(self._key, f"{secret} {asked.query}".encode(), "sha256").hexdigest()

    async def _decide(self, request: Request) -> Response:
        try:
            check_origin(headers_of(request), self._api.services.config.page_origins, place_of(request))
        except HttpRefusal as refused:
            raise OAuthError("origin", status=refused.status) from None
        asked, (secret, grant) = self._asked(request), self._login(request)
        given = await self._form(request)
        if "token" in given:
            owner = self._api.services.auth.grant(given["token"].strip(), loopback=False)
            if owner is None:
                return self._consent(request, asked, secret, None, "wrong")
            response: Response = RedirectResponse(f"?{asked.query}", 303)
            await page.begin_login(self._api, request, response, owner)
            return response
        sent, own = (each.encode() for each in (given.get("form", ""), self._form_key(secret, asked)))
        if grant is None or not hmac.compare_digest(sent, own):
            return self._consent(request, asked, secret, grant)
        issuer = address_of(request, self._api)
        if given.get("deed") != "allow":
            return asked.redirect(error="access_denied", iss=issuer)
        now = self._api.core.clock.now()
        return asked.redirect(code=self.keep(AuthorizationCode(asked, grant, now + CODE_S), now), iss=issuer)

    # -- tokens --------------------------------------------------------------------------------------------------------

    async def _token(self, request: Request, given: Mapping[str, str]) -> Response:
        client_id = given.get("client_id", "")
        client, now = registered(client_id), self._api.core.clock.now()
        holds_s = self._api.services.config.http.session_days * 86_400
        self._check_resource(request, given)
        match given.get("grant_type"):
            case "authorization_code":
                code = await self.redeemed(given, now)
                named = McpClient(name=client.name, id=client_id)
                made = code.made = await self._change(tokens.add_client, code.grant, named, now, holds_s)
            case "refresh_token":
                made = await self._change(tokens.renew_client, given.get("refresh_token", ""), client_id, now, holds_s)
            case _:
                raise OAuthError("unsupported_grant_type", "authorization_code and refresh_token are known")
        if made is None:
            raise OAuthError("invalid_grant", "this was used, revoked or is too old: log in again")
        told = {"token_type": "Bearer", "expires_in": round(tokens.ACCESS_S), "scope": SCOPE}
        pair = {"access_token": made.access, "refresh_token": made.refresh}
        return JSONResponse({**pair, **told}, headers={"cache-control": "no-store"})

    def keep(self, made: AuthorizationCode, now: float) -> str:
        """The code; only the newest are kept."""
        code = secrets.token_urlsafe(32)
        kept = [(digest, each) for digest, each in self._codes.items() if each.until > now]
        self._codes = {**dict(kept[1 - MAX_CODES :]), _sha256(code): made}
        return code

    async def redeemed(self, given: Mapping[str, str], now: float) -> AuthorizationCode:
        """The code, which is used up now, also if anything is wrong. Used twice, it is in two hands: what was made of
        it ends. Raises OAuthError."""
        wrong = OAuthError("invalid_grant", "the code is not valid, or is another client's: log in again")
        code = self._codes.get(_sha256(given.get("code", "")))
        if code is None or code.until <= now:
            raise wrong
        if code.used:
            if code.made is not None:
                await self._change(tokens.end_client, code.made.access, code.asked.client_id)
            raise wrong
        code.used, asked, verifier = True, code.asked, given.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        of_client = (given.get("client_id"), given.get("redirect_uri", asked.redirect_uri))
        if of_client != (asked.client_id, asked.redirect_uri) or not 43 <= len(verifier) <= 128:
            raise wrong
        if not hmac.compare_digest(digest, asked.challenge.encode()):
            raise wrong
        return code

    async def _change(self, change: Any, *given: Any) -> Any:
        return await self._api.core.files.run(change, self._api.services.auth.path, *given)


_ENDPOINTS = (
    ("authorization", "authorize"), ("token", "token"), ("registration", "register"), ("revocation", "revoke")
)  # fmt: skip


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _single(given: list[tuple[str, str]]) -> dict[str, str]:
    """Raises OAuthError: one is given twice, which each reader might understand in another way."""
    if len(dict(given)) < len(given):
        raise OAuthError("invalid_request", "a parameter stands here twice")
    return dict(given)


# -- pages, in English and Russian ------------------------------------------------------------------------------------

_FILES = Path(klaw.web.__file__).parent
_TEXTS: Mapping[str, Mapping[str, str]] = json.loads((_FILES / "consent.json").read_text("utf-8"))
_PAGE, *_PARTS = re.split("<!-- ([a-z]+) -->", (_FILES / "consent.html").read_text("utf-8"))
_BODIES = dict(zip(_PARTS[::2], _PARTS[1::2], strict=True))


def shown(
    request: Request, which: str, status: int = 200, problem: str = "", goes_to: str = "", **told: str
) -> Response:
    """One of the pages in the browser's language. ``problem``: the key of a text; ``told`` is escaped here."""
    accepted = [each.strip()[:2].lower() for each in request.headers.get("accept-language", "").split(",")]
    lang = next((each for each in accepted if each in _TEXTS), "en")
    safe = {name: escape(each) for name, each in told.items()}
    named = {name: f"<bdi>{each}</bdi>" for name, each in safe.items()}
    texts = {name: escape(each).format_map(defaultdict(str, named)) for name, each in _TEXTS[lang].items()}
    body = Template(_BODIES[which]).substitute({**texts, **safe, "problem": texts.get(problem, "")})
    # Browsers hold what a form leads to against form-action, also where that leads on to.
    places = f" https: {urlsplit(goes_to).scheme}:" if goes_to else ""
    policy = (
        f"default-src 'none'; style-src 'self'; form-action 'self'{places}; frame-ancestors 'none'; base-uri 'none'"
    )
    # Without a referrer policy of its own, its form would come from the origin "null".
    more = {"content-security-policy": policy, "referrer-policy": "same-origin", "cache-control": "no-store"}
    return HTMLResponse(Template(_PAGE).substitute(lang=lang, body=body), status, more)
