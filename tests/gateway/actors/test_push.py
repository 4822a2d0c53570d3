"""Web Push, with a push service of the test's own over TLS, and a browser that decrypts what comes (RFC 8291)."""

import base64
import json
import shutil
import ssl
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import attrs
import jwt
import pytest
import trio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from klaw.domain.events import Approval, ApprovalAsked
from klaw.domain.message import Role
from klaw.domain.names import UserId, chat_id
from klaw.gateway import push
from klaw.gateway.push import Pusher, PushKeys
from klaw.gateway.tokens import Authenticator, Grant, add_token, revoke_tokens, tokens_file
from klaw.guarded_http import GuardedHttp, forbidden
from klaw.operations.operation import OperationError
from klaw.store.kinds import messages, tasks
from klaw.store.kinds.tasks import Subscription
from tests.support.inside import inside
from tests.support.programs.web_site import Names, read_request
from tests.support.server import write_home
from tests.support.stores import new
from tests.support.waiting import HANG_S, until
from tests.toolbox.actors.web.test_fetch import certificate

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="there is no openssl to make a certificate with"
)
LOCAL, ANNA = UserId("local"), UserId("anna")
HERE = Grant(user=LOCAL, token=None, operator=True)
HOST = "site.example"
LONG = "The **ladder** leans\non the shed. " + "It is long. " * 40


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def derived(length: int, secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


@attrs.define
class Browser:
    """The keys that a browser makes for a subscription."""

    key: ec.EllipticCurvePrivateKey = attrs.Factory(partial(ec.generate_private_key, ec.SECP256R1()))
    auth: bytes = b"0123456789abcdef"

    @property
    def public(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def read(self, body: bytes) -> bytes:
        """Decrypt one record of aes128gcm (RFC 8188) by the keys of RFC 8291."""
        salt, length = body[:16], body[20]
        server, sealed = body[21 : 21 + length], body[21 + length :]
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), server))
        secret = derived(32, shared, self.auth, b"WebPush: info\0" + self.public + server)
        key = derived(16, secret, salt, b"Content-Encoding: aes128gcm\0")
        nonce = derived(12, secret, salt, b"Content-Encoding: nonce\0")
        text = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert text[-1:] == b"\2"  # the last record
        return text[:-1]


@attrs.define
class PushService:
    port: int
    answers: list[str] = attrs.Factory(list)
    """Status lines, with further headers, for the next requests; then 201."""
    requests: list[tuple[str, dict[str, str], bytes]] = attrs.Factory(list)
    """Path, headers and body."""

    def url(self, path: str = "/send/1", host: str = HOST) -> str:
        return f"https://{host}:{self.port}{path}"

    async def serve(self, context: ssl.SSLContext, plain: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            stream = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
            data = await read_request(stream)
            if data is not None:
                head, _, body = data.partition(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                answer = self.answers.pop(0) if self.answers else "201 Created"
                await stream.send_all(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())
                self.requests.append((first.split()[1], headers, body))
        await trio.aclose_forcefully(plain)


@attrs.define
class World:
    app: Any
    service: PushService
    pusher: Pusher
    browser: Browser
    tokens: Any

    async def subscribe(self, grant: Grant = HERE, endpoint: str = "", *, words: bool = True) -> str:
        given = endpoint or self.service.url(), b64(self.browser.public), b64(self.browser.auth)
        return await self.pusher.subscribe(grant, *given, words=words)

    async def say(self, text: str = "Ready.", user: UserId = LOCAL, **more: Any) -> None:
        more = {"role": Role.ASSISTANT, **more}
        await self.app.core.writer.run(messages.append, [new(text, user=user, chat="garden", **more)])

    async def sent(self, count: int = 1) -> list[dict[str, str]]:
        """What the browser shows of the first requests."""
        await until(lambda: len(self.service.requests) >= count)
        await until(lambda: not self.pusher.mailbox.report().depth)
        return [json.loads(self.browser.read(body)) for _, _, body in self.service.requests]

    async def subscriptions(self) -> list[Subscription]:
        found: list[Subscription] = await self.app.core.readers.run(tasks.subscriptions)
        return found


@asynccontextmanager
async def world(tmp_path: Any, *, app: Any = None) -> AsyncIterator[World]:
    pem = certificate(tmp_path)
    (listener,) = await trio.open_tcp_listeners(0, host="0.0.0.0")
    service = PushService(listener.socket.getsockname()[1])
    names = Names({HOST: [["127.0.0.7"]], "evil.example": [["127.0.0.1"]]})
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    trusted = ssl.create_default_context(cafile=str(pem))

    def rule(address: str) -> str | None:
        return None if address == "127.0.0.7" else forbidden(address)

    async with trio.open_nursery() as nursery, inside(write_home(tmp_path / "home")) as here:
        nursery.start_soon(trio.serve_listeners, partial(service.serve, context), [listener])
        core, path = here.app.core, tokens_file(here.app.core.paths.config_dir)
        http = GuardedHttp(idle_s=HANG_S, connect_s=HANG_S, resolve=names.resolve, tls=lambda: trusted)
        pusher = Pusher(core, Authenticator(path, recheck_s=0), here.app.hub, http, rule, (443, service.port))
        await pusher.start()
        with trio.fail_after(HANG_S):
            yield World(here.app, service, pusher, Browser(), path)
        await core.supervisor.stop(pusher.mailbox.name, "the test is over")
        nursery.cancel_scope.cancel(reason="the test is over")


VECTOR = {  # RFC 8291, appendix A
    "text": b"When I grow up, I want to be a watermelon",
    "server": "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
    "browser": "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    "salt": "DGv6ra1nlYgDCS1FRnbzlw",
    "body": "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8"
    "wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
}


def private(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(raw(text), "big"), ec.SECP256R1())


def test_the_example_of_rfc_8291_is_made_and_read(tmp_path, monkeypatch):
    import webpush

    server, browser = private(VECTOR["server"]), Browser(private(VECTOR["browser"]), raw(VECTOR["auth"]))
    keys = PushKeys(tmp_path)
    known = SimpleNamespace(
        generate_private_key=lambda *_: server, SECP256R1=ec.SECP256R1, ECDH=ec.ECDH,
        EllipticCurvePublicKey=ec.EllipticCurvePublicKey,
    )  # fmt: skip
    monkeypatch.setattr(webpush, "ec", known)
    monkeypatch.setattr(webpush, "os", SimpleNamespace(urandom=lambda _: raw(VECTOR["salt"])))
    to = Subscription(
        user=LOCAL, id="1", endpoint="https://push.example/1", p256dh=b64(browser.public), auth=VECTOR["auth"],
        login=None, words=True, created_at="2026-01-01T00:00:00.000Z",
    )  # fmt: skip
    _, body = keys.sealed(to, VECTOR["text"])
    assert b64(body) == VECTOR["body"]
    assert browser.read(raw(VECTOR["body"])) == VECTOR["text"]


async def test_an_answer_reaches_the_browser_and_nobody_else_can_read_it(tmp_path):
    async with world(tmp_path) as here:
        await here.say("before anybody asked for it")
        assert not here.app.core.supervisor.alive("gateway.push")
        await here.subscribe()
        await here.say(LONG)
        (told,) = await here.sent()
        assert told["chat"] == told["title"] == "garden"
        assert told["text"].startswith("The ladder leans on the shed. It is long.")
        assert len(told["text"]) <= 160
        path, headers, body = here.service.requests[0]
        assert path == "/send/1"
        assert (headers["content-encoding"], headers["ttl"]) == ("aes128gcm", "86400")
        assert b"ladder" not in body
        assert b"garden" not in body
        told_token, told_key = (each.split("=", 1)[1] for each in headers["authorization"].split(" ", 1)[1].split(", "))
        assert told_key == await here.pusher.public_key()
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw(told_key))
        claims = jwt.decode(told_token, public, algorithms=["ES256"], audience=f"https://{HOST}")
        assert time.time() < claims["exp"] <= time.time() + 86_400
        assert claims["sub"] == "mailto:noreply@example.org"
        key = here.app.core.paths.config_dir / push.KEYS_FILE
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert PushKeys(key.parent).public == told_key


async def test_only_what_its_user_has_not_seen_is_sent(tmp_path):
    async with world(tmp_path) as here:
        await here.subscribe()
        page = object()
        here.app.hub.set_in_sight(page, LOCAL, visible=True)
        await here.say("seen")
        here.app.hub.set_in_sight(page, LOCAL, visible=False)
        await here.say("a question", role=Role.USER)
        await here.say("somebody else's", user=ANNA)
        await here.say("unseen")
        here.app.hub.set_in_sight(page, ANNA, visible=True)
        question = Approval(
            id="a1", chat=chat_id(LOCAL, "garden"), tool="host_exec", what="rm -r /", until="2026-01-01T00:00:00.000Z"
        )
        here.app.hub.emit(ApprovalAsked(approval=question))
        told = await here.sent(2)
        assert sorted(told, key=lambda each: "tool" in each) == [
            {"chat": "garden", "title": "garden", "text": "unseen"},
            {"chat": "garden", "title": "garden", "tool": "host_exec"},
        ]


async def test_without_words_only_that_something_came_is_sent(tmp_path):
    async with world(tmp_path) as here:
        await here.subscribe(words=False)
        await here.say("the secret")
        assert await here.sent() == [{"chat": "garden"}]


@pytest.mark.parametrize("gone", ["404 Not Found", "410 Gone"])
async def test_a_browser_that_is_gone_is_forgotten(tmp_path, gone):
    async with world(tmp_path) as here:
        await here.subscribe()
        here.service.answers = [gone]
        await here.say()
        await until(lambda: not here.pusher._users)
        assert await here.subscriptions() == []
        await here.say()
        assert len(here.service.requests) == 1


async def test_a_push_service_that_fails_is_asked_again_and_never_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(push, "PAUSES_S", (0.0, 0.01, 0.01, 0.01))
    async with world(tmp_path) as here:
        await here.subscribe()
        here.service.answers = ["503 Service Unavailable", "429 Too Many Requests\r\nRetry-After: 0", "201 Created"]
        await here.say("first")
        assert [each["text"] for each in await here.sent(3)] == ["first"] * 3
        here.service.answers = [f"307 Temporary Redirect\r\nLocation: {here.service.url('/other')}"]
        await here.say("second")
        await here.sent(4)
        await here.say("third")
        await here.sent(5)
        assert [path for path, _, _ in here.service.requests] == ["/send/1"] * 5
        assert len(await here.subscriptions()) == 1


async def test_an_address_of_this_network_gets_nothing(tmp_path):
    async with world(tmp_path) as here:
        await here.subscribe()
        await here.subscribe(endpoint=here.service.url(host="evil.example"))
        await here.say("ready")
        await here.sent()
        await until(lambda: not here.pusher._sending.total())
        assert len(here.service.requests) == 1


@pytest.mark.parametrize(
    "endpoint",
    ["http://site.example/", "https://site.example:22/", "ftp://site.example/", "https://a:b@site.example/", "nothing"],
)
async def test_an_endpoint_that_is_no_push_service_is_refused(tmp_path, endpoint):
    async with world(tmp_path) as here:
        with pytest.raises(OperationError, match="https://, on port 443"):
            await here.subscribe(endpoint=endpoint)
        with pytest.raises(OperationError, match="no keys"):
            await here.pusher.subscribe(HERE, here.service.url(), b64(b"\4" + b"x" * 64), b64(b"x" * 16), words=True)
        assert await here.subscriptions() == []


async def test_a_login_that_ended_gets_nothing(tmp_path):
    async with world(tmp_path) as here:
        token, _ = add_token(here.tokens, "local", "2026-01-01T00:00:00Z")
        other, _ = add_token(here.tokens, "local", "2026-01-01T00:00:00Z")
        await here.subscribe(Grant(user=LOCAL, token=token.id))
        await here.subscribe(Grant(user=LOCAL, token=other.id), here.service.url("/send/2"))
        revoke_tokens(here.tokens, token.id)
        await here.say()
        await here.sent()
        await until(lambda: not here.pusher._sending.total())
        assert [path for path, _, _ in here.service.requests] == ["/send/2"]
        await here.pusher.sweep()
        assert [each.login for each in await here.subscriptions()] == [other.id]


async def test_a_user_has_at_most_twenty_browsers_and_a_browser_one_user(tmp_path):
    async with world(tmp_path) as here:
        ids = [await here.subscribe(endpoint=here.service.url(f"/{number}")) for number in range(21)]
        assert [each.id for each in await here.subscriptions()] == ids[1:]
        entries = [each.created_at for each in await here.subscriptions()]
        await here.subscribe(endpoint=here.service.url("/20"))  # nothing is new
        assert [each.created_at for each in await here.subscriptions()] == entries
        await here.subscribe(Grant(user=ANNA, token=None), here.service.url("/20"))
        assert [each.user for each in await here.subscriptions() if each.id == ids[20]] == [ANNA]


async def test_notifications_that_nobody_can_send_are_bounded(tmp_path):
    async with world(tmp_path) as here:
        await here.subscribe()
        await here.app.core.supervisor.stop("gateway.push", "the test wants it")
        await here.say("after the end")  # nothing is raised
        here.pusher.mailbox.reopen()
        for number in range(push.QUEUE + 5):
            await here.say(str(number))
        assert here.pusher.mailbox.report().depth == push.QUEUE
        assert here.pusher.mailbox.report().dropped == 5
