"""Web Push: tells browsers what came while their user had no page in sight (docs/phone.md). It is encrypted for the
browser (RFC 8291); the browser's push service learns when something comes, how long it is, and from which server. The
library ``webpush`` is loaded when somebody switches notifications on, not before."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from klaw import atomic_file
from klaw.actor.clock import iso
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Mailbox
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.config.paths import ensure_private_dir
from klaw.core import Core
from klaw.domain.events import ApprovalAsked, MessageStored
from klaw.domain.message import Role, is_searchable
from klaw.domain.names import ChatId, UserId, name_of, user_of
from klaw.domain.text import in_brief
from klaw.errors import ActorStopped, HttpRefusal, StorageError, ToolRefused
from klaw.gateway.hub import Hub
from klaw.gateway.tokens import Authenticator, Grant
from klaw.operations.operation import OperationError
from klaw.store.kinds import chats, tasks
from klaw.store.kinds.tasks import Subscription

if TYPE_CHECKING:
    from klaw.guarded_http import Forbidden, GuardedHttp

QUEUE = 64
"""Notifications that wait; what comes then is not sent."""
AT_ONCE = 8
"""Notifications of one user that are being sent; what comes then is not sent. Nobody waits for the phones of others."""
DEADLINE_S = 300.0
"""So long a notification is tried again …"""
PAUSES_S = (0.0, 5.0, 20.0, 60.0, 120.0)
"""… after these pauses, or the longer one that the push service asks for."""
TTL_S = 86_400
"""So long a push service keeps what a phone without a connection has not fetched."""
IDLE_S = 15.0
SWEEP_S = 60.0
MAX_WORDS = 160
KEYS_FILE = "vapid.pem"
CONTACT = "noreply@example.org"
"""Push services ask for an address; nobody is there, so that they learn nothing."""
_GONE = (404, 410)

log = structlog.get_logger("klaw.push")


@attrs.frozen(kw_only=True)
class Notification:
    user: UserId
    chat: ChatId
    text: str = ""
    tool: str = ""
    """Waits for the user's permission."""


class PushKeys:
    """Encrypts and signs, with the server's key, which is made once. Blocks. Raises ImportError: the library is not
    installed; OSError, ValueError: the file of the key cannot be used."""

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives import serialization
        from webpush import WebPush
        from webpush.vapid import VAPID

        path = folder / KEYS_FILE
        if not path.exists():
            ensure_private_dir(folder)
            atomic_file.replace(path, VAPID.generate_keys()[0])
        private = path.read_bytes()
        public = serialization.load_pem_private_key(private, None).public_key()
        form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self._sender = WebPush(private, public.public_bytes(*form), CONTACT, TTL_S)
        self.public = VAPID.get_application_server_key(public)
        """What a browser has to know to subscribe."""

    def sealed(self, to: Subscription, payload: bytes) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of a request to a push service. Raises ValueError: the browser's keys are none."""
        from webpush.types import WebPushKeys, WebPushSubscription

        keys = WebPushKeys(auth=to.auth, p256dh=to.p256dh)
        made = self._sender.get(payload, WebPushSubscription(endpoint=to.endpoint, keys=keys))
        return {**made.headers, "urgency": "normal", "content-type": "application/octet-stream"}, made.encrypted


@attrs.define(eq=False)
class Pusher:
    """Notifies the browsers of all users. Its actor runs once there is one. ``http``, ``forbidden``: see
    ``klaw.guarded_http``."""

    _core: Core
    _auth: Authenticator
    _hub: Hub
    _http: "GuardedHttp | None" = None
    _forbidden: "Forbidden | None" = None
    _ports: Sequence[int] = (443,)
    mailbox: Mailbox[Notification] = attrs.field(factory=lambda: Mailbox("gateway.push", QUEUE), init=False)
    _users: set[UserId] = attrs.field(factory=set, init=False)
    _keys: PushKeys | None = attrs.field(default=None, init=False)
    _threads: Threads = attrs.field(factory=lambda: Threads("push", 1), init=False)
    _sending: Counter[UserId] = attrs.field(factory=Counter, init=False)

    async def start(self) -> None:
        """Run the actor, if a browser is to be notified."""
        self._users = {each.user for each in await self._core.readers.run(tasks.subscriptions)}
        if self._users and self._hub.unseen is None:
            self._hub.unseen = self.take
            await self._core.supervisor.start(ActorSpec(name=self.mailbox.name, run=self.run, mailbox=self.mailbox))

    # -- who is notified ---------------------------------------------------------------------------------------------

    async def public_key(self) -> str:
        """Raises HttpRefusal: the library is not installed, or the key cannot be used."""
        key: str = (await self._loaded()).public
        return key

    async def subscribe(self, grant: Grant, endpoint: str, p256dh: str, auth: str, *, words: bool) -> str:
        """Notify a browser from now on; returns its id. Raises OperationError: what it gave is not valid; HttpRefusal:
        nobody can be notified."""
        from klaw.guarded_http import parse

        try:
            is_valid = parse(endpoint, self._ports).scheme == "https"
        except ToolRefused:
            is_valid = False
        if not is_valid:
            text = "must be the address of a push service: https://, on port 443, without user name"
            raise OperationError("bad_push", text, field="endpoint")
        made = Subscription(
            user=grant.user,
            id=hashlib.sha256(endpoint.encode()).hexdigest()[:32],
            endpoint=endpoint,
            p256dh=p256dh,
            auth=auth,
            login=grant.token,
            words=words,
            created_at=self._now(),
        )
        try:
            await self._threads.run((await self._loaded()).sealed, made, b"")
        except ValueError:
            raise OperationError("bad_push", "p256dh and auth are no keys of a browser", field="p256dh") from None
        await self._core.writer.run(tasks.subscribe, made)
        await self.start()
        return made.id

    async def remove(self, which: Callable[[Subscription], bool]) -> int:
        """Notify some browsers no more; returns how many."""
        there = await self._core.readers.run(tasks.subscriptions)
        gone = [each for each in there if which(each)]
        if gone:
            await self._core.writer.run(tasks.unsubscribe, gone, self._now())
        self._users = {each.user for each in there if each not in gone}
        return len(gone)

    def _holds(self, each: Subscription) -> bool:
        return self._auth.holds(Grant(user=each.user, token=each.login))

    # -- what is sent ------------------------------------------------------------------------------------------------

    def take(self, event: MessageStored | ApprovalAsked) -> None:
        """Have an answer, a task's result, a reminder or a question sent, if its user sees no page. Never waits."""
        if isinstance(event, ApprovalAsked):
            made = Notification(user=user_of(event.chat), chat=event.chat, tool=event.approval.tool)
        else:
            said = event.message
            if said.role is not Role.ASSISTANT or not is_searchable(said.role, said.type):
                return
            made = Notification(user=said.user, chat=said.chat, text=in_brief(said.content[:2000], MAX_WORDS))
        if made.user in self._users and not self._hub.in_sight(made.user):
            with suppress(ActorStopped):
                self.mailbox.tell(made)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        self._sending.clear()
        async with trio.open_nursery() as nursery:
            task_status.started()
            vitals.doing("idle")
            while True:
                what = None
                with trio.move_on_after(SWEEP_S):
                    try:
                        what = await self.mailbox.receive()
                    except trio.EndOfChannel:
                        break
                if what is None:
                    await self.sweep()
                elif self._sending[what.user] < AT_ONCE:
                    self._sending[what.user] += 1
                    nursery.start_soon(self._notify, what)

    async def sweep(self) -> None:
        """Forget browsers whose login has ended."""
        with suppress(StorageError):
            await self.remove(lambda each: not self._holds(each))

    async def _notify(self, what: Notification) -> None:
        try:
            there = await self._core.readers.run(tasks.subscriptions, what.user)
            chat = await self._core.readers.run(chats.get, what.user, what.chat)
            title = (chat.title or chat.name) if chat is not None else ""
            words = {"title": title, "text": what.text, "tool": what.tool}
            async with trio.open_nursery() as nursery:
                for each in there:
                    told = {name: value for name, value in words.items() if value and each.words}
                    payload = json.dumps({"chat": name_of(what.chat), **told}, ensure_ascii=False).encode()
                    nursery.start_soon(self._send, each, payload)
        except StorageError as error:
            log.warning("push_not_read", error=error_class(error))
        finally:
            self._sending[what.user] -= 1

    async def _send(self, to: Subscription, payload: bytes) -> None:
        from klaw.guarded_http import ExchangeFailed

        if not self._holds(to):
            return
        try:
            headers, body = await self._threads.run((await self._loaded()).sealed, to, payload)
        except (HttpRefusal, ValueError) as error:
            log.warning("push_not_made", error=error_class(error))
            return
        status, asked_s = 0, 0.0
        with trio.move_on_after(DEADLINE_S):
            for pause_s in PAUSES_S:
                await trio.sleep(max(pause_s, asked_s))
                try:
                    status, asked_s = await self._post(to.endpoint, headers, body)
                except ExchangeFailed:
                    continue
                except ToolRefused:
                    break
                if status in _GONE:
                    with suppress(StorageError):
                        await self.remove(lambda each: each.id == to.id)
                    return
                if status < 300:
                    return
                if status < 500 and status != 429:
                    break
        log.warning("push_not_sent", status=status)

    async def _post(self, endpoint: str, headers: Mapping[str, str], body: bytes) -> tuple[int, float]:
        """The status, and after how many seconds the push service wants to be asked again. Follows no redirect. Raises
        ToolRefused."""
        from klaw import guarded_http

        if self._http is None:
            self._http = guarded_http.GuardedHttp(idle_s=IDLE_S, connect_s=IDLE_S)
        target, rule = guarded_http.parse(endpoint, self._ports), self._forbidden or guarded_http.forbidden
        async with (
            self._http.opened(rule, keep=False) as connections,
            connections.exchange("POST", target, headers, body) as answer,
        ):
            asked = answer.headers.get("retry-after", "")
            return answer.status, min(float(asked), DEADLINE_S) if asked.isdecimal() and len(asked) < 9 else 0.0

    async def _loaded(self) -> PushKeys:
        if self._keys is None:
            try:
                self._keys = await self._threads.run(partial(PushKeys, self._core.paths.config_dir))
            except ImportError:
                text = "Notifications need the Python package webpush: install klaw[push] and start the server again."
                raise HttpRefusal(409, text) from None
            except (OSError, ValueError) as error:
                log.error("push_key_unusable", error=error_class(error))
                raise HttpRefusal(409, f"The key for notifications, {KEYS_FILE}, cannot be read or made.") from None
        return self._keys

    def _now(self) -> str:
        return iso(self._core.clock.now())
