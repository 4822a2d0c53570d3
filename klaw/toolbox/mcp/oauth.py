"""Logging in to an MCP server with OAuth 2.1. The SDK has the protocol; here stand who is asked, where tokens are kept,
and the device grant (RFC 8628). Needs the SDK: imported when a server connects."""

import json
import re
import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import extract_field_from_www_auth, issuers_match
from mcp.shared._request_clock import waiting_on_a_person
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.config.tools import McpOAuthConfig
from klaw.domain.text import printable
from klaw.errors import ConfigError, McpError
from klaw.llm.providers.refusals import shown
from klaw.toolbox.mcp.guard import Link
from klaw.toolbox.mcp.host import Login, LoginFile

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
MAX_CODE = 60
NO_REDIRECT = "http://127.0.0.1/callback"
"""Where nobody logs in."""
_REASONS = {
    "Protected resource http": "its metadata is about another address than its own",
    "Authorization server metadata issuer": "the authorization server calls itself by another address",
    "Authorization response": "the answer came from another authorization server",
    "State parameter": "the address belongs to another login",
    "Token exchange failed": "the authorization server gives no token",
}
"""What the SDK says, which may quote the server, in Klaw's words."""


class LoginStorage:
    """``TokenStorage`` of the SDK, over the file of one server."""

    def __init__(self, file: LoginFile, threads: Threads) -> None:
        self._file, self._threads = file, threads
        self.name = file.name
        self.kept: dict[str, Any] = {}

    async def save(self, **changed: Any) -> None:
        self.kept |= changed
        await self._threads.run(self._file.write, self.kept)

    async def get_tokens(self) -> OAuthToken | None:
        self.kept = await self._threads.run(self._file.read)
        found = self.kept.get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        until = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        await self.save(tokens=tokens.model_dump(mode="json", exclude_none=True), until=until)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = self.kept.get("client")
        return OAuthClientInformationFull.model_validate(found) if found else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self.save(client=client_info.model_dump(mode="json", exclude_none=True))


def provider_of(
    path: str, url: str, config: McpOAuthConfig, storage: LoginStorage, link: Link, login: Login | None
) -> httpx2.Auth:
    """How requests to a server are authorized. ``path``: its key in the configuration. Blocks. Raises McpError: a
    secret cannot be read."""
    try:
        secret = config.client_secret.reveal(f"{path}.oauth.clientSecret") if config.client_secret else None
        key = config.private_key.reveal(f"{path}.oauth.privateKey") if config.private_key else None
    except ConfigError as error:
        raise McpError(str(error)) from None
    scope, client = " ".join(config.scopes) or None, config.client_id or ""
    if config.grant == "browser":
        return PersonOAuth(url, config, secret, storage, link, login)
    about: dict[str, Any] = {"storage": storage, "client_id": client, "scope": scope, "issuer": config.issuer}
    if key is None:
        return ClientCredentialsOAuthProvider(url, client_secret=secret or "", **about)
    algorithm = "ES256" if "BEGIN EC" in key or _is_elliptic(key) else "RS256"
    signed = SignedJWTParameters(issuer=client, subject=client, signing_key=key, signing_algorithm=algorithm)
    return PrivateKeyJWTOAuthProvider(url, assertion_provider=signed.create_assertion_provider(), **about)


def _is_elliptic(key: str) -> bool:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return isinstance(load_pem_private_key(key.encode(), None), EllipticCurvePrivateKey)
    except ValueError:
        raise McpError("its oauth.privateKey is no PEM key without a password") from None


class PersonOAuth(OAuthClientProvider):
    """Authorizes requests with the tokens of a login that a person made, and renews them. Without a ``login`` nobody
    is there now: what needs a person ends the connection."""

    plain: httpx2.AsyncClient | None = None
    """For requests of the device grant: through the guard of the connection, and not authorized."""

    def __init__(
        self,
        url: str,
        config: McpOAuthConfig,
        secret: str | None,
        storage: LoginStorage,
        link: Link,
        login: Login | None,
    ) -> None:
        document = config.client_id if (config.client_id or "").startswith("https://") else None
        grants = ["authorization_code", "refresh_token", *([DEVICE] if login and login.device else [])]
        redirect: Any = login.redirect if login else NO_REDIRECT
        metadata = OAuthClientMetadata(client_name="Klaw", redirect_uris=[redirect], grant_types=grants)
        super().__init__(url, metadata, storage, self._show, self._answer, document)
        self._config, self._storage, self._link, self._login = config, storage, link, login
        self._own = None
        if config.client_id is not None and document is None:
            about: dict[str, Any] = {"client_id": config.client_id, "client_secret": secret, "issuer": config.issuer}
            method = "client_secret_basic" if secret else "none"
            self._own = OAuthClientInformationFull(token_endpoint_auth_method=method, **about)
        self._device_endpoint = ""

    async def _initialize(self) -> None:
        """Also what the SDK forgets: without it, an old token would not be renewed, or at another address."""
        context = self.context
        await super()._initialize()
        kept = self._storage.kept
        context.token_expiry_time, context.auth_server_url = kept.get("until"), kept.get("issuer")
        if kept.get("server"):
            context.oauth_metadata = OAuthMetadata.model_validate(kept["server"])
        if kept.get("resource"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(kept["resource"])
        context.client_info = self._own or context.client_info
        registered = context.client_info.redirect_uris if context.client_info else None
        if self._login and registered and self._login.redirect not in map(str, registered):
            context.client_info = None  # Klaw listens at another port now

    async def _auth_flow(  # noqa: ASYNC900 - httpx2 drives it to its end
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        logs_in = self._login is not None and not self._login.over
        flow = self._log_in(request) if logs_in else self._use_login(request)
        try:
            wanted = await anext(flow)
            while True:
                wanted = await flow.asend((yield wanted))
        except StopAsyncIteration:
            return
        except (OAuthFlowError, McpError, ValueError, KeyError) as error:  # of the SDK, or of what the server wrote
            self._link.end(reason_of(error))
            if self._login is not None:
                self._login.end(shown(str(error), ()))
            raise
        finally:
            await flow.aclose()

    async def _use_login(  # noqa: ASYNC900 - httpx2 drives it to its end
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        context = self.context
        for refused in (False, True):
            await context.lock.acquire()  # so that only one of several requests renews the tokens
            try:
                if not self._initialized:
                    await self._initialize()
                context.protocol_version = request.headers.get("mcp-protocol-version")
                token = context.current_tokens.access_token if context.current_tokens else ""
                stale = not context.is_token_valid() or (refused and self._used(request) == token)
                if stale and context.can_refresh_token():
                    answer = yield await self._refresh_token()
                    if not await self._handle_refresh_response(answer):
                        await self._renewal_refused(answer)
            finally:
                context.lock.release()
            if context.is_token_valid():
                self._add_auth_header(request)
            response = yield request
            if response.status_code != 401 or not context.can_refresh_token():
                break
        if response.status_code == 401:
            self._link.challenge = response
            what = "wants a login" if context.current_tokens is None else "does not accept Klaw's login"
            self._link.end(f"it {what}; {self._to_do}")
        elif extract_field_from_www_auth(response, "error") == "insufficient_scope":  # for this request
            self._link.challenge = response
            self._link.wants = f"it wants more rights than Klaw's login has; {self._to_do}"
        elif response.status_code in (403, 407):
            self._link.end(f"it refuses Klaw (HTTP status {response.status_code})")

    def _used(self, request: httpx2.Request) -> str:
        return request.headers.get("authorization", "").removeprefix("Bearer ")

    async def _renewal_refused(self, answer: httpx2.Response) -> None:
        if answer.status_code < 500:
            await self._storage.save(tokens=None)
            self._link.end(f"its login is over; {self._to_do}")
        else:
            self._link.end(f"its authorization server answers with HTTP status {answer.status_code}")

    @property
    def _to_do(self) -> str:
        return f"log in: klaw mcp login {self._storage.name}"

    async def _log_in(  # noqa: ASYNC900 - httpx2 drives it to its end
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        assert self._login is not None
        flow, began = super()._auth_flow(request), False
        response: httpx2.Response | None = None
        try:
            wanted = await anext(flow)
            while True:
                if (response := wanted.extensions.get("answer")) is None:
                    response = yield wanted
                if wanted is request and not began:
                    began = True
                    if response.status_code not in (401, 403):  # perhaps it refuses something else
                        response = self._login.challenge or httpx2.Response(401, request=request)
                elif "/.well-known/o" in wanted.url.path and "protected-resource" not in wanted.url.path:
                    await self._look_for_device_grant(response)
                wanted = await flow.asend(response)
        except StopAsyncIteration:
            pass
        finally:
            await flow.aclose()
        server, resource = self.context.oauth_metadata, self.context.protected_resource_metadata
        await self._storage.save(
            server=server and server.model_dump(mode="json", exclude_none=True),
            resource=resource and resource.model_dump(mode="json", exclude_none=True),
            issuer=self.context.auth_server_url,
        )
        if response is not None and response.status_code in (401, 403):
            await self._storage.save(tokens=None)
            raise OAuthFlowError("it refuses the token of its authorization server")
        self._login.end()

    def _select_authorization_server(self, advertised: list[str]) -> str:
        issuer = self._config.issuer
        if issuer is None:
            return advertised[0]
        if found := next((each for each in advertised if issuers_match(each, issuer)), None):
            return found
        raise OAuthFlowError("Authorization server metadata issuer is not oauth.issuer")

    async def _show(self, address: str) -> None:
        assert self._login is not None
        if urlsplit(address).scheme not in ("https", "http"):  # for a person's browser
            raise OAuthFlowError("its login page is no web address")
        self._login.show(address)

    async def _answer(self) -> AuthorizationCodeResult:
        assert self._login is not None
        given = await self._login.answered()
        if "code" not in given:
            why = given.get("error", "")
            raise OAuthFlowError(f"it was refused ({why if re.fullmatch('[a-z_]{1,40}', why) else 'no code'})")
        return AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given.get("iss"))

    async def _perform_authorization(self) -> httpx2.Request:
        if self._config.scopes:
            self.context.client_metadata.scope = " ".join(self._config.scopes)
        if self._login is not None and self._login.device:
            return await self._by_device(self._login)
        return await super()._perform_authorization()

    async def _look_for_device_grant(self, response: httpx2.Response) -> None:
        if response.status_code == 200:
            found = json.loads(await response.aread())
            self._device_endpoint = found.get("device_authorization_endpoint", "") if isinstance(found, dict) else ""

    async def _by_device(self, login: Login) -> httpx2.Request:
        """Ask for a code, show it, and wait until the person has typed it. Returns a request with its answer."""
        context = self.context
        if not self._device_endpoint or context.client_info is None or self.plain is None:
            raise OAuthFlowError("its authorization server takes no codes: log in without --device")
        about = {"client_id": context.client_info.client_id, "resource": context.get_resource_url()}
        asked = {**about, **({"scope": context.client_metadata.scope} if context.client_metadata.scope else {})}
        data, headers = context.prepare_token_auth(asked, {})
        begun = (await self.plain.post(self._device_endpoint, data=data, headers=headers)).json()
        await self._show(str(begun.get("verification_uri_complete") or begun["verification_uri"]))
        login.show(login.address, printable(str(begun["user_code"]))[:MAX_CODE])
        asked = {**about, "grant_type": DEVICE, "device_code": str(begun["device_code"])}
        data, headers = context.prepare_token_auth(asked, {})
        pause = max(1.0, float(begun.get("interval", 5)))
        with waiting_on_a_person():
            while True:
                await trio.sleep(pause)
                answer = await self.plain.post(self._get_token_endpoint(), data=data, headers=headers)
                error = answer.json().get("error") if answer.status_code == 400 else None
                pause += 5 if error == "slow_down" else 0
                if error not in ("slow_down", "authorization_pending"):
                    return httpx2.Request("POST", self._get_token_endpoint(), extensions={"answer": answer})


def reason_of(error: Exception) -> str:
    """Why a login failed."""
    if isinstance(error, OAuthRegistrationError):
        return "its authorization server does not register Klaw: set oauth.clientId"
    text = str(error)
    known = next((told for begin, told in _REASONS.items() if text.startswith(begin)), None)
    own = text if text.startswith(("it ", "its ")) else f"({error_class(error)})"
    return f"the login failed: {known or own}"
