"""Telegram, through its Bot API. The token is part of every address: no error of the HTTP library gets out of here,
because its text or its request could show it."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, ClassVar
from urllib.parse import quote

import attrs
import httpx2
import structlog
import trio

from klaw.actor.threads import Threads, read_input
from klaw.bounded_body import BoundedBody
from klaw.channels.markup import MAX_CHARS, StyledText, TextStyle, cut, split, styled
from klaw.channels.messenger import (
    Bot,
    Button,
    ButtonPress,
    ChannelError,
    ConversationClosed,
    ConversationMoved,
    EventBatch,
    IncomingFile,
    Limits,
    Part,
    ReceivedElsewhere,
    RefusedByMessenger,
    TooManyRequests,
    Unreachable,
    WrongToken,
)
from klaw.channels.telegram_updates import UPDATES, Json, events
from klaw.llm.providers.http import CONNECT_TIMEOUT_S, client_of, connection_failure

POLL_S = 50
LATE_S = 10.0
"""A poll that is not answered so long after its time is over: the connection is dead."""
REQUEST_S = 60.0
"""No byte for so long ends a request."""
ALBUM_S = 1.0
"""The messages of an album come one by one; after so long all are there."""
PIECE_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_UNITS = 4096
"""UTF-16 units of a message, without its formatting."""
MAX_ENTITIES = 100
"""Of a message; the service leaves out the formatting of more."""
MAX_PHOTO_BYTES = 10_000_000
LONG_QUOTE = 500
"""Characters; a longer quotation is folded."""
MAX_COMMANDS, MAX_HELP = 100, 256
MAX_CONFIRM = 200
MAX_ROW = 30
"""Characters of buttons that stand beside each other on a phone."""
_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_PHOTOS = ("image/jpeg", "image/png", "image/webp")
_SOUNDS = ("audio/mpeg", "audio/mp4", "audio/x-m4a")
_GONE = re.compile("chat not found|not enough rights|have no rights|CHAT_WRITE_FORBIDDEN|thread not found|TOPIC_CLOSED")
"""What refusals say where nothing can be written any more."""
_TAGS = {"strong": "b", "em": "i", "s": "s", "code": "code"}

log = structlog.get_logger("klaw.channels")


@attrs.define(eq=False, repr=False)
class Telegram:
    """A bot; see ``Messenger``. An id of a message is ``CHAT:NUMBER``, that of a forum topic ``CHAT TOPIC``."""

    limits: ClassVar[Limits] = Limits(edit_pause_s=1.5, download_bytes=20 * 1024 * 1024, upload_bytes=50 * 1024 * 1024)

    _token: str
    _api_url: str
    """Of the service, or of somebody's own Bot API server."""
    _client: httpx2.AsyncClient | None = attrs.field(default=None, init=False)
    _opening: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _bot: Bot | None = attrs.field(default=None, init=False)

    async def open(self) -> Bot:
        if not _TOKEN.fullmatch(self._token):
            raise WrongToken("this is no token of a Telegram bot: it looks like 123456:ABC-DEF… (ask @BotFather)")
        me = await self._call("getMe", {})
        name = me["username"]
        self._bot = Bot(id=str(me["id"]), name=f"@{name}", link=f"https://t.me/{name}?start={{code}}")
        return self._bot

    async def receive(self, position: str | None) -> EventBatch:
        """With no position: what the service still keeps (of a day)."""
        bot = self._bot or await self.open()
        asked = {"timeout": POLL_S, "allowed_updates": UPDATES} | ({"offset": int(position)} if position else {})
        updates = await self._updates(asked)
        if updates and "media_group_id" in updates[-1].get("message", {}):
            await trio.sleep(ALBUM_S)
            updates = await self._updates({**asked, "timeout": 0})
        behind = str(updates[-1]["update_id"] + 1) if updates else position or "0"
        return EventBatch(events=tuple(events(updates, bot)), position=behind)

    def render(self, markdown: str) -> list[Part]:
        pieces = split(markdown, lambda piece: len(piece) <= MAX_CHARS)
        return [_part(text) for piece in pieces for text in cut(styled(piece), _fits)]

    async def post(self, conversation: str, part: Part, key: str, *, buttons: Sequence[Button] = ()) -> str:
        del key
        return _id(await self._say("sendMessage", _to(conversation) | _keyboard(buttons), part, conversation))

    async def edit(self, conversation: str, message: str, part: Part, key: str) -> None:
        del key
        chat, _, number = message.partition(":")
        try:
            await self._say("editMessageText", {"chat_id": int(chat), "message_id": int(number)}, part, conversation)
        except RefusedByMessenger as error:
            if "message is not modified" not in str(error):
                raise

    async def upload(
        self, conversation: str, name: str, media_type: str, data: bytes, key: str, *, voice: bool = False
    ) -> str:
        del key
        if len(data) > self.limits.upload_bytes:
            raise RefusedByMessenger("the file is larger than 50 MB, which a Telegram bot cannot send")
        kind = _kind(media_type, len(data), voice=voice)
        file = (name, data, media_type or "application/octet-stream")
        try:
            sent = await self._call(f"send{kind.title()}", _to(conversation), conversation, file={kind: file})
        except RefusedByMessenger:  # a picture of odd size, an odd sound, somebody who wants no voice messages
            if kind == "document":
                raise
            sent = await self._call("sendDocument", _to(conversation), conversation, file={"document": file})
        return _id(sent)

    async def download(self, file: IncomingFile) -> AsyncIterator[bytes]:  # noqa: ASYNC900  nothing is open then
        if (file.bytes or 0) > self.limits.download_bytes:
            raise RefusedByMessenger("the file is larger than 20 MB, which Telegram does not give to bots")
        path = (await self._call("getFile", {"file_id": file.place}))["file_path"]
        # A Bot API server on one's own machine tells where the file lies there, below a folder named like the token.
        path = path.rpartition(f"{self._token}/")[2].lstrip("/")
        url = f"{self._base('/file')}/{quote(path)}"
        status, data = await self._exchange("GET", url, self.limits.download_bytes)
        if status != 200:
            raise RefusedByMessenger("Telegram does not have the file any more")
        for begin in range(0, len(data), PIECE_BYTES):
            yield bytes(data[begin : begin + PIECE_BYTES])

    async def working(self, conversation: str) -> None:
        await self._call("sendChatAction", {**_to(conversation), "action": "typing"}, conversation)

    async def confirm(self, pressed: ButtonPress, text: str) -> None:
        try:
            await self._call("answerCallbackQuery", {"callback_query_id": pressed.token, "text": text[:MAX_CONFIRM]})
        except RefusedByMessenger:  # it was pressed too long ago
            log.info("telegram_press_too_old")

    async def leave(self, conversation: str) -> None:
        await self._call("leaveChat", {"chat_id": _to(conversation)["chat_id"]}, conversation)

    async def join(self, conversation: str) -> None:
        """A bot is added without being asked."""

    async def show_commands(self, commands: Mapping[str, Mapping[str, str]]) -> None:
        for language, words in commands.items():
            known = {word: text for word, text in words.items() if _COMMAND.fullmatch(word) and text}
            menu = [{"command": word, "description": text[:MAX_HELP]} for word, text in known.items()]
            spoken = {} if language == "en" else {"language_code": language}
            await self._call("setMyCommands", {"commands": menu[:MAX_COMMANDS], **spoken})

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # -- the API -----------------------------------------------------------------------------------------------------

    async def _updates(self, asked: Json) -> list[dict[str, Any]]:
        try:
            return list(await self._call("getUpdates", asked, wait_s=POLL_S + LATE_S))
        except ReceivedElsewhere as error:
            if "webhook" not in str(error):
                raise
        log.warning("telegram_webhook_removed")
        await self._call("deleteWebhook", {"drop_pending_updates": False})
        return list(await self._call("getUpdates", asked, wait_s=POLL_S + LATE_S))

    async def _say(self, method: str, members: Json, part: Part, conversation: str) -> Any:
        """Send or edit a text; without formatting, if the service does not understand that."""
        members = {**members, "link_preview_options": {"is_disabled": True}}
        try:
            return await self._call(method, {**members, "text": part.formatted, "parse_mode": "HTML"}, conversation)
        except RefusedByMessenger as error:
            if "can't parse entities" not in str(error):
                raise
            log.warning("telegram_formatting_refused")
        return await self._call(method, {**members, "text": part.text}, conversation)

    async def _call(
        self,
        method: str,
        members: Json,
        conversation: str | None = None,
        *,
        file: Mapping[str, tuple[str, bytes, str]] | None = None,
        wait_s: float = REQUEST_S,
    ) -> Any:
        body: dict[str, Any] = {"data": members, "files": file} if file else {"json": members}
        timeout = httpx2.Timeout(wait_s, connect=CONNECT_TIMEOUT_S)
        url = f"{self._base()}/{method}"
        status, data = await self._exchange("POST", url, MAX_ANSWER_BYTES, timeout=timeout, **body)
        answer = await read_input(len(data), _read, bytes(data))
        if answer.get("ok"):
            return answer["result"]
        said = str(answer.get("description", "")).replace(self._token, "<token>")
        raise failure(status, said, answer.get("parameters", {}), conversation)

    async def _exchange(self, method: str, url: str, at_most: int, **more: Any) -> tuple[int, bytearray]:
        """Status and body of an answer."""
        async with self._opening:
            if self._client is None:  # loading certificates takes a tenth of a second
                self._client = await _THREADS.run(client_of, self._api_url, {}, REQUEST_S)
        whole = BoundedBody(at_most)
        with _translated():
            async with self._client.stream(method, url, **more) as response:
                if not await whole.read(response.aiter_raw()):
                    raise RefusedByMessenger(f"the answer of Telegram is longer than {at_most // 1024 // 1024} MB")
        return response.status_code, whole.data

    def _base(self, kind: str = "") -> str:
        return f"{self._api_url.rstrip('/')}{kind}/bot{self._token}"


_THREADS = Threads("telegram", 1)


@contextmanager
def _translated() -> Iterator[None]:
    """The exceptions of the HTTP library as Klaw's, and not as their cause: they know the address."""
    try:
        yield
    except httpx2.ConnectError as error:
        text = f"Telegram cannot be reached{connection_failure(error)}"
    except httpx2.TimeoutException:
        text = "Telegram does not answer"
    except (httpx2.InvalidURL, UnicodeError):
        text = "Telegram cannot be reached: the address of its API is not usable"
    except httpx2.HTTPError:
        text = "the connection to Telegram broke"
    else:
        return
    raise Unreachable(text) from None


def _read(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {}


def failure(status: int, said: str, about: Json, conversation: str | None) -> ChannelError:
    """The error for an answer that is not ``ok``. ``about`` is its ``parameters``."""
    if (to := about.get("migrate_to_chat_id")) is not None:
        return ConversationMoved(str(to))
    if status == 429:
        return TooManyRequests(float(about.get("retry_after", 5)), conversation)
    if status >= 500 or not said:
        why = f": {said}" if said else "; is the address of its API right?"
        return Unreachable(f"Telegram answered with status {status}{why}")
    text = f"Telegram says: {said}"
    if status == 401 or (status == 404 and said == "Not Found"):
        return WrongToken("Telegram does not know this token; ask @BotFather for a new one")
    if status == 409:
        return ReceivedElsewhere(text)
    return ConversationClosed(text) if status == 403 or _GONE.search(said) else RefusedByMessenger(text)


def _fits(text: StyledText) -> bool:
    return _units(text.text) <= MAX_UNITS and len({each for _, styles in text.runs for each in styles}) <= MAX_ENTITIES


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _part(text: StyledText) -> Part:
    plain = text.plain
    return Part(text=plain if _units(plain) <= MAX_UNITS else text.text, formatted=to_html(text))


def to_html(text: StyledText) -> str:
    """In the HTML of the Bot API."""
    long = {style for begin, end, style in text.ranges("quote") if end - begin > LONG_QUOTE}
    html: list[str] = []
    opened: list[TextStyle] = []
    for run, styles in (*text.runs, ("", ())):
        same = next((at for at, pair in enumerate(zip(opened, styles, strict=False)) if pair[0] is not pair[1]), None)
        same = min(len(opened), len(styles)) if same is None else same
        html += [_tags(style, folded=False)[1] for style in reversed(opened[same:])]
        html += [_tags(style, folded=style in long)[0] for style in styles[same:]]
        html.append(escape(run, quote=False))
        opened = list(styles)
    return "".join(html)


def _tags(style: TextStyle, *, folded: bool) -> tuple[str, str]:
    match style.kind:
        case "link":
            return f'<a href="{escape(style.value)}">', "</a>"
        case "quote":
            return "<blockquote expandable>" if folded else "<blockquote>", "</blockquote>"
        case "pre" if style.value:
            return f'<pre><code class="language-{escape(style.value)}">', "</code></pre>"
    tag = _TAGS.get(style.kind, style.kind)
    return f"<{tag}>", f"</{tag}>"


def _to(conversation: str) -> dict[str, Any]:
    chat, _, topic = conversation.partition(" ")
    return {"chat_id": int(chat), **({"message_thread_id": int(topic)} if topic else {})}


def _keyboard(buttons: Sequence[Button]) -> dict[str, Any]:
    """Short buttons beside each other, others below each other."""
    keys = [{"text": button.label, "callback_data": button.data} for button in buttons]
    rows = [keys] if sum(len(button.label) for button in buttons) <= MAX_ROW else [[key] for key in keys]
    return {"reply_markup": {"inline_keyboard": rows}} if keys else {}


def _kind(media_type: str, size: int, *, voice: bool) -> str:
    if voice:
        return "voice"
    if media_type in _PHOTOS and size <= MAX_PHOTO_BYTES:
        return "photo"
    return "audio" if media_type in _SOUNDS else "document"


def _id(message: Json) -> str:
    return f"{message['chat']['id']}:{message['message_id']}"
