"""A strict emulator of Telegram's Bot API: what the documentation says is enforced, and whatever a person does in
Telegram is a method. What people see is in ``Chat.messages``.

In a test::

    async with serve_telegram() as telegram:
        anna = telegram.person("Anna")
        await anna.says("Hello")
        ...  # a bot with telegram.token at telegram.url
        assert anna.chat.of_bot[-1].text == "Hello, Anna"

Alone, for trials by hand (what is typed is said; ``Boris: …`` by somebody else; ``!LABEL`` presses a button)::

    python -m tests.support.services.telegram PORT
"""

import email.parser
import email.policy
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs
import h11
import trio

from tests.support.services.telegram_rules import (
    MAX_CAPTION,
    ApiError,
    Entity,
    bad_request,
    checked_keyboard,
    parsed,
    units,
)

TOKEN = "7000001:AAEmulated-token_of-a-bot-0123456789"
MB = 1024 * 1024
ACTIONS = {"typing", "upload_photo", "record_voice", "upload_voice", "upload_document"}
COMMON = {"chat_id", "message_thread_id", "reply_markup", "disable_notification", "reply_parameters"}
PARAMETERS = {
    "getMe": set(),
    "getUpdates": {"offset", "limit", "timeout", "allowed_updates"},
    "deleteWebhook": {"drop_pending_updates"},
    "sendMessage": COMMON | {"text", "parse_mode", "link_preview_options"},
    "editMessageText": {"chat_id", "message_id", "text", "parse_mode", "link_preview_options", "reply_markup"},
    **{f"send{kind}": COMMON | {kind.lower(), "caption"} for kind in ("Photo", "Voice", "Audio", "Document")},
    "sendChatAction": {"chat_id", "message_thread_id", "action"},
    "setMyCommands": {"commands", "scope", "language_code"},
    "answerCallbackQuery": {"callback_query_id", "text", "show_alert"},
    "getFile": {"file_id"},
    "leaveChat": {"chat_id"},
}
"""Others are refused: the service would leave them unread."""
Json = dict[str, Any]


@attrs.frozen
class StoredFile:
    kind: str
    name: str
    type: str
    data: bytes


@attrs.define(eq=False)
class Shown:
    """A message as people see it."""

    chat: "Chat"
    id: int
    sender: "Person | None"
    """None: the bot."""
    text: str = ""
    entities: tuple[Entity, ...] = ()
    buttons: list[list[tuple[str, str]]] = attrs.field(factory=list)
    file: StoredFile | None = None
    topic: int | None = None
    edits: int = 0
    raw: Json = attrs.field(factory=dict)
    """The object ``Message`` of the API."""

    @property
    def labels(self) -> list[str]:
        return [label for row in self.buttons for label, _ in row]


@attrs.define(eq=False)
class Chat:
    telegram: "TelegramService"
    id: int
    type: str
    title: str
    closed: str = ""
    """Why the bot cannot write there."""
    moved_to: "Chat | None" = None
    topics: dict[int, str] = attrs.field(factory=dict)
    messages: list[Shown] = attrs.field(factory=list)
    actions: list[str] = attrs.field(factory=list)
    _ids: Any = attrs.field(factory=lambda: count(1))

    @property
    def of_bot(self) -> list[Shown]:
        return [message for message in self.messages if message.sender is None]

    @property
    def raw(self) -> Json:
        if self.type == "private":
            return {"id": self.id, "type": "private", "first_name": self.title}
        return {"id": self.id, "type": self.type, "title": self.title} | ({"is_forum": True} if self.topics else {})

    async def adds_bot(self, by: "Person") -> None:
        self.closed = ""
        await self._membership(by, "left", "member")

    async def removes_bot(self, by: "Person") -> None:
        self.closed = "bot was kicked from the group chat"
        await self._membership(by, "member", "kicked")

    async def becomes_supergroup(self, by: "Person") -> "Chat":
        new = self.telegram.chat(-1_001_000_000_000 + self.id, "supergroup", self.title)
        self.moved_to = new
        await by.sends(chat=self, migrate_to_chat_id=new.id)
        await by.sends(chat=new, migrate_from_chat_id=self.id)
        return new

    async def creates_topic(self, by: "Person", name: str) -> int:
        created = await by.sends(chat=self, forum_topic_created={"name": name, "icon_color": 7322096})
        self.topics[created.id] = name
        return created.id

    async def _membership(self, by: "Person", before: str, now: str) -> None:
        old, new = ({"user": self.telegram.bot, "status": status} for status in (before, now))
        change = {"chat": self.raw, "from": by.raw, "date": int(time.time())}
        await self.telegram.tell(my_chat_member=change | {"old_chat_member": old, "new_chat_member": new})


@attrs.define(eq=False)
class Person:
    telegram: "TelegramService"
    id: int
    name: str
    language: str
    chat: Chat
    """With the bot."""

    @property
    def raw(self) -> Json:
        return {"id": self.id, "is_bot": False, "first_name": self.name, "language_code": self.language}

    async def says(self, text: str, **more: Any) -> Shown:
        return await self.sends(text=text, **more)

    async def starts(self, code: str = "") -> Shown:
        """Opens ``t.me/BOT?start=CODE`` and presses Start."""
        return await self.says(f"/start {code}".rstrip())

    async def sends(
        self,
        *,
        chat: Chat | None = None,
        topic: int | None = None,
        reply_to: Shown | None = None,
        forwarded_from: Json | None = None,
        **content: Any,
    ) -> Shown:
        """Send a message with the members of the API's object: ``location=…``, ``contact=…``."""
        chat = chat or self.chat
        shown = Shown(chat, next(chat._ids), self, str(content.get("text", content.get("caption", ""))), topic=topic)
        raw: Json = {"message_id": shown.id, "from": self.raw, "chat": chat.raw, "date": int(time.time())}
        for name, entities in (("text", "entities"), ("caption", "caption_entities")):
            if name in content and (found := content.pop(entities, None) or entities_of(content[name])):
                raw[entities] = found
        if topic is not None:
            raw |= {"message_thread_id": topic, "is_topic_message": True}
            root = next(each for each in chat.messages if each.id == topic)
            raw["reply_to_message"] = root.raw
        if reply_to is not None:
            raw["reply_to_message"] = {key: value for key, value in reply_to.raw.items() if key != "reply_to_message"}
        if forwarded_from is not None:
            raw["forward_origin"] = {"date": int(time.time()), **forwarded_from}
        shown.raw = raw | content
        chat.messages.append(shown)
        await self.telegram.tell(message=shown.raw)
        return shown

    async def sends_file(self, kind: str, data: bytes, name: str = "", media_type: str = "", **more: Any) -> Shown:
        """``kind``: photo, voice, audio, video, video_note, document."""
        return await self.sends(**{kind: self.telegram.keeps(kind, data, name, media_type)}, **more)

    async def sends_album(self, photos: Iterable[bytes], caption: str = "", **more: Any) -> list[Shown]:
        album = str(self.telegram.number())
        sent = []
        for number, data in enumerate(photos):
            words = {"caption": caption} if caption and number == 0 else {}
            sent.append(await self.sends_file("photo", data, media_group_id=album, **words, **more))
        return sent

    async def edits(self, message: Shown, text: str) -> None:
        name, entities = ("caption", "caption_entities") if "caption" in message.raw else ("text", "entities")
        changed = {key: value for key, value in message.raw.items() if key != entities}
        message.text, message.edits = text, message.edits + 1
        message.raw = changed | {name: text, "edit_date": int(time.time()), entities: entities_of(text)}
        await self.telegram.tell(edited_message=message.raw)

    async def presses(self, message: Shown, label: str) -> str:
        """Returns the id of the query, for ``TelegramService.answered``."""
        data = next(data for row in message.buttons for name, data in row if name == label)
        query = str(self.telegram.number())
        self.telegram.queries.add(query)
        asked = {"id": query, "from": self.raw, "message": message.raw, "chat_instance": "1", "data": data}
        await self.telegram.tell(callback_query=asked)
        return query

    async def blocks_bot(self) -> None:
        self.chat.closed = "bot was blocked by the user"
        await self.chat._membership(self, "member", "kicked")

    async def unblocks_bot(self) -> None:
        self.chat.closed = ""
        await self.chat._membership(self, "kicked", "member")


def entities_of(text: str) -> list[Json]:
    """What Telegram finds in people's texts by itself."""
    found = []
    for kind, pattern in (
        ("bot_command", r"(?<![\w/])/[A-Za-z0-9_]{1,64}(?:@\w+)?"),
        ("mention", r"(?<![\w/])@\w{3,32}"),
    ):
        for match in re.finditer(pattern, text):
            found.append({"type": kind, "offset": units(text[: match.start()]), "length": units(match[0])})
    return found


def _snake_case(method: str) -> str:
    return "_" + re.sub("([A-Z])", r"_\1", method).lower()


@attrs.define
class _Fault:
    method: str | None
    error: ApiError
    times: int


class TelegramService:
    def __init__(self) -> None:
        self.token = TOKEN
        self.bot = {"id": 7000001, "is_bot": True, "first_name": "Klaw", "username": "klaw_bot"}
        self.port = 0
        self.chats: dict[int, Chat] = {}
        self.people: dict[str, Person] = {}
        self.files: dict[str, StoredFile] = {}
        self.updates: list[Json] = []
        """Not yet confirmed."""
        self.webhook = ""
        self.commands: dict[str, list[Json]] = {}
        self.queries: set[str] = set()
        self.answered: dict[str, str] = {}
        self.calls: list[tuple[str, Json]] = []
        self.refused: list[str] = []
        """What it did not take (without faults that were asked for)."""
        self.confirmed = 0
        self.gone = False
        self._faults: list[_Fault] = []
        self._down: ApiError | None = None
        self._number = count(1000)
        self._news = trio.Condition()
        self._poll: trio.CancelScope | None = None
        self._connections: set[trio.CancelScope] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def number(self) -> int:
        return next(self._number)

    def chat(self, number: int, kind: str, title: str) -> Chat:
        return self.chats.setdefault(number, Chat(self, number, kind, title))

    def person(self, name: str, language: str = "en") -> Person:
        if name not in self.people:
            number = 500_000_000 + self.number()
            self.people[name] = Person(self, number, name, language, self.chat(number, "private", name))
        return self.people[name]

    def group(self, title: str, *, supergroup: bool = False) -> Chat:
        """A group without the bot; see ``Chat.adds_bot``."""
        number = -self.number() - (1_001_000_000_000 if supergroup else 0)
        chat = self.chat(number, "supergroup" if supergroup else "group", title)
        chat.closed = "bot is not a member of the group chat"
        return chat

    def keeps(self, kind: str, data: bytes, name: str = "", media_type: str = "") -> Any:
        """Keep a file; returns what a message says of it."""
        key = f"file-{self.number()}"
        self.files[key] = StoredFile(kind, name, media_type, data)
        about = {"file_id": key, "file_unique_id": key, "file_size": len(data)}
        if kind == "photo":
            small = {"file_id": "thumbnail", "file_unique_id": "thumbnail", "file_size": 1, "width": 90, "height": 90}
            return [small, about | {"width": 800, "height": 800}]
        about |= {"duration": 3} if kind in ("voice", "audio", "video", "video_note") else {}
        return about | ({"file_name": name} if name else {}) | ({"mime_type": media_type} if media_type else {})

    async def tell(self, **update: Any) -> None:
        async with self._news:
            self.updates.append({"update_id": 880_000_000 + self.number(), **update})
            self._news.notify_all()

    # -- faults ----------------------------------------------------------------------------------------------------

    def fails(
        self, status: int, description: str, method: str | None = None, times: int = 1, **parameters: Any
    ) -> None:
        """The next calls (of a method) fail."""
        self._faults.append(_Fault(method, ApiError(status, description, **parameters), times))

    def limits(self, retry_after: int, method: str | None = None, times: int = 1) -> None:
        text = f"Too Many Requests: retry after {retry_after}"
        self.fails(429, text, method, times, retry_after=retry_after)

    def goes_down(self, status: int = 500) -> None:
        """Every call fails, until ``comes_up``."""
        self._down = ApiError(status, "Internal Server Error")

    def loses_network(self) -> None:
        """Connections break, new ones too, until ``comes_up``."""
        self.gone = True
        for scope in list(self._connections):
            scope.cancel(reason="the network is gone")

    def comes_up(self) -> None:
        self.gone, self._down = False, None

    # -- the API ---------------------------------------------------------------------------------------------------

    async def call(self, method: str, asked: Json, files: Mapping[str, StoredFile]) -> Any:
        if self._down is not None:
            raise self._down
        for fault in self._faults:
            if fault.method in (None, method):
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                raise fault.error
        try:
            handler: Callable[..., Awaitable[Any]] | None = getattr(self, _snake_case(method), None)
            if method not in PARAMETERS:
                raise ApiError(404, "Not Found: method not found")
            if unknown := set(asked) - PARAMETERS[method]:
                raise bad_request(f"{method} has no parameters {unknown}")
            if handler is None:
                return await self._send_file(method.removeprefix("send").lower(), asked, files)
            return await handler(asked)
        except ApiError as error:
            self.refused.append(f"{method}: {error.description}")
            raise

    async def _get_me(self, asked: Json) -> Any:
        return self.bot | {"can_join_groups": True, "can_read_all_group_messages": True}

    async def _get_updates(self, asked: Json) -> Any:
        if self.webhook:
            text = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
            raise ApiError(409, f"Conflict: {text}")
        if self._poll is not None:
            self._poll.cancel(reason="a second poller")
        offset, most = int(asked.get("offset", 0)), int(asked.get("limit", 100))
        if not 1 <= most <= 100 or offset < 0:
            raise bad_request("limit is 1 to 100; a negative offset forgets updates")
        self.updates = [each for each in self.updates if each["update_id"] >= offset]
        self.confirmed = max(self.confirmed, offset)
        kinds = asked.get("allowed_updates")

        def waiting() -> list[Json]:
            return [each for each in self.updates if not kinds or set(each) & set(kinds)][:most]

        with trio.CancelScope() as poll:
            self._poll = poll
            with trio.move_on_after(float(asked.get("timeout", 0))):
                async with self._news:
                    while not waiting():
                        await self._news.wait()
        if self._poll is not poll:
            text = "terminated by other getUpdates request; make sure that only one bot instance is running"
            raise ApiError(409, f"Conflict: {text}")
        self._poll = None
        return waiting()

    async def _delete_webhook(self, asked: Json) -> Any:
        self.webhook = ""
        if asked.get("drop_pending_updates"):
            self.updates.clear()
        return True

    async def _send_message(self, asked: Json) -> Any:
        chat = self._open_chat(asked)
        text, entities = parsed(asked.get("text", ""), asked.get("parse_mode"))
        return self._put(chat, asked, text=text, entities=entities).raw

    async def _edit_message_text(self, asked: Json) -> Any:
        chat = self._open_chat(asked)
        message = next((each for each in chat.messages if each.id == asked["message_id"]), None)
        if message is None:
            raise bad_request("message to edit not found")
        if message.sender is not None or message.file is not None:
            raise bad_request("message can't be edited")
        text, entities = parsed(asked.get("text", ""), asked.get("parse_mode"))
        buttons = checked_keyboard(asked.get("reply_markup"))
        if (message.text, message.entities, message.buttons) == (text, entities, buttons):
            same = "specified new message content and reply markup are exactly the same as a current content"
            raise bad_request(f"message is not modified: {same} and reply markup of the message")
        message.text, message.entities, message.buttons = text, entities, buttons
        message.edits += 1
        message.raw |= {"text": text, "edit_date": int(time.time())}
        return message.raw

    async def _send_file(self, kind: str, asked: Json, files: Mapping[str, StoredFile]) -> Any:
        chat = self._open_chat(asked)
        if kind not in files:
            raise bad_request(f"there is no {kind} in the request")
        file = files[kind]
        if not file.data:
            raise bad_request("file must be non-empty")
        if len(file.data) > (10 if kind == "photo" else 50) * MB:
            raise ApiError(413, "Request Entity Too Large")
        if kind == "photo" and not file.data.startswith((b"\x89PNG", b"\xff\xd8", b"RIFF")):
            raise bad_request("IMAGE_PROCESS_FAILED")
        text, _ = parsed(asked["caption"], None, MAX_CAPTION) if asked.get("caption") else ("", ())
        shown = self._put(chat, asked, text=text, file=attrs.evolve(file, kind=kind))
        shown.raw[kind] = self.keeps(kind, file.data, file.name, file.type)
        return shown.raw

    async def _send_chat_action(self, asked: Json) -> Any:
        chat = self._open_chat(asked)
        if asked.get("action") not in ACTIONS:
            raise bad_request("wrong parameter action in request")
        chat.actions.append(asked["action"])
        return True

    async def _set_my_commands(self, asked: Json) -> Any:
        commands = asked["commands"]
        if len(commands) > 100:
            raise bad_request("BOT_COMMANDS_TOO_MUCH")
        for each in commands:
            if not re.fullmatch("[a-z0-9_]{1,32}", each["command"]):
                raise bad_request("BOT_COMMAND_INVALID")
            if not 1 <= len(each["description"]) <= 256:
                raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
        language = asked.get("language_code", "")
        if not re.fullmatch("([a-z]{2})?", language):
            raise bad_request("invalid language code specified")
        self.commands[language] = commands
        return True

    async def _answer_callback_query(self, asked: Json) -> Any:
        if len(asked.get("text", "")) > 200:
            raise bad_request("MESSAGE_TOO_LONG")
        if asked["callback_query_id"] not in self.queries:
            raise bad_request("query is too old and response timeout expired or query ID is invalid")
        self.queries.remove(asked["callback_query_id"])
        self.answered[asked["callback_query_id"]] = asked.get("text", "")
        return True

    async def _get_file(self, asked: Json) -> Any:
        file = self.files.get(asked.get("file_id", ""))
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        if len(file.data) > 20 * MB:
            raise bad_request("file is too big")
        key = asked["file_id"]
        return {"file_id": key, "file_unique_id": key, "file_size": len(file.data), "file_path": f"{file.kind}s/{key}"}

    async def _leave_chat(self, asked: Json) -> Any:
        self._open_chat(asked).closed = "bot is not a member of the group chat"
        return True

    def _open_chat(self, asked: Json) -> Chat:
        chat = self.chats.get(int(asked.get("chat_id", 0)))
        if chat is None or (chat.type == "private" and not chat.messages):
            raise bad_request("chat not found")
        if chat.moved_to is not None:
            text = "Bad Request: group chat was upgraded to a supergroup chat"
            raise ApiError(400, text, migrate_to_chat_id=chat.moved_to.id)
        if chat.closed:
            raise ApiError(403, f"Forbidden: {chat.closed}")
        if asked.get("message_thread_id") is not None and int(asked["message_thread_id"]) not in chat.topics:
            raise bad_request("message thread not found")
        return chat

    def _put(self, chat: Chat, asked: Json, **about: Any) -> Shown:
        topic = int(asked["message_thread_id"]) if "message_thread_id" in asked else None
        shown = Shown(
            chat, next(chat._ids), None, topic=topic, buttons=checked_keyboard(asked.get("reply_markup")), **about
        )
        shown.raw = {"message_id": shown.id, "from": self.bot, "chat": chat.raw, "date": int(time.time())}
        shown.raw |= {"text": shown.text} if shown.file is None else {}
        shown.raw |= {"message_thread_id": topic, "is_topic_message": True} if topic is not None else {}
        chat.messages.append(shown)
        return shown

    # -- HTTP ------------------------------------------------------------------------------------------------------

    async def serve(self, port: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen on the loopback port (0: a free one) until cancelled."""
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        await trio.serve_listeners(self._connection, listeners, task_status=task_status)

    async def _connection(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        with trio.CancelScope() as scope, suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            self._connections.add(scope)
            while not self.gone and (request := await self._request(stream, http)) is not None:
                answer: tuple[int, str, bytes] | None = None
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._until_closed, stream, http, nursery.cancel_scope)
                    answer = await self._reply(*request)
                    nursery.cancel_scope.cancel(reason="it is answered")
                if answer is None:
                    break
                status, media_type, body = answer
                headers = [("content-type", media_type), ("content-length", str(len(body)))]
                await stream.send_all(http.send(h11.Response(status_code=status, headers=headers)) or b"")
                await stream.send_all((http.send(h11.Data(data=body)) or b"") + (http.send(h11.EndOfMessage()) or b""))
                if http.our_state is h11.MUST_CLOSE:
                    break
                http.start_next_cycle()
        self._connections.discard(scope)
        await trio.aclose_forcefully(stream)

    async def _until_closed(self, stream: trio.SocketStream, http: h11.Connection, scope: trio.CancelScope) -> None:
        """Notice that the client has gone away while it waits."""
        with suppress(trio.BrokenResourceError):
            while data := await stream.receive_some(65536):
                http.receive_data(data)
        scope.cancel(reason="the client has gone away")

    async def _request(self, stream: trio.SocketStream, http: h11.Connection) -> tuple[str, str, bytes] | None:
        target, kind, body = "", "", bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                target = event.target.decode()
                kind = dict(event.headers).get(b"content-type", b"").decode()
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return target, kind, bytes(body)
            else:
                return None

    async def _reply(self, target: str, kind: str, body: bytes) -> tuple[int, str, bytes]:
        address = urlsplit(target)
        try:
            found = re.fullmatch(r"(/file)?/bot([^/]*)/(.*)", unquote(address.path))
            if found is None:
                raise ApiError(404, "Not Found")
            if found[2] != self.token:
                raise ApiError(401, "Unauthorized") if ":" in found[2] else ApiError(404, "Not Found")
            if found[1]:
                file = self.files.get(found[3].rpartition("/")[2])
                return (200, "application/octet-stream", file.data) if file else (404, "text/plain", b"")
            asked, files = read_body(kind, body)
            asked |= dict(parse_qsl(address.query))
            self.calls.append((found[3], asked))
            return (
                200,
                "application/json",
                json.dumps({"ok": True, "result": await self.call(found[3], asked, files)}).encode(),
            )
        except ApiError as error:
            answer: Json = {"ok": False, "error_code": error.status, "description": error.description}
            answer |= {"parameters": error.parameters} if error.parameters else {}
            return error.status, "application/json", json.dumps(answer).encode()


def read_body(kind: str, body: bytes) -> tuple[Json, dict[str, StoredFile]]:
    """The members and the files of a request: JSON, or a form with files."""
    if not kind.startswith("multipart/"):
        return (json.loads(body) if body else {}), {}
    whole = b"content-type: " + kind.encode() + b"\r\n\r\n" + body
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(whole)
    asked: Json = {}
    files: dict[str, StoredFile] = {}
    for part in message.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        if (file_name := part.get_filename()) is not None:
            files[name] = StoredFile("", file_name, part.get_content_type(), data)
        else:
            asked[name] = data.decode()
    return asked, files


@asynccontextmanager
async def serve_telegram(service: TelegramService | None = None) -> AsyncIterator[TelegramService]:
    """Run an emulator on a free loopback port for the body."""
    service = service or TelegramService()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.serve, 0)
        yield service
        nursery.cancel_scope.cancel(reason="the test is over")


async def _by_hand(port: int) -> None:
    service = TelegramService()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.serve, port)
        print(json.dumps({"url": service.url, "token": service.token}), flush=True)
        nursery.start_soon(_print_messages, service)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            who, text = (
                match.groups() if (match := re.fullmatch(r"(\w+): (.*)\n", line)) else ("Anna", line.rstrip("\n"))
            )
            person = service.person(who)
            if text.startswith("!"):
                pressed = next(each for each in reversed(person.chat.messages) if text[1:] in each.labels)
                await person.presses(pressed, text[1:])
            elif text:
                await person.says(text)
        await trio.sleep_forever()


async def _print_messages(service: TelegramService) -> None:
    printed: dict[tuple[int, int], int] = {}
    while True:
        for chat in list(service.chats.values()):
            for message in chat.of_bot:
                if printed.get((chat.id, message.id)) != message.edits:
                    printed[chat.id, message.id] = message.edits
                    said = [f"{chat.title} {message.id}{'*' * message.edits}:", message.text]
                    said += [f"<{message.file.kind} {message.file.name}>"] if message.file else []
                    print(*said, *(f"[{label}]" for label in message.labels), flush=True)
        await trio.sleep(0.2)


if __name__ == "__main__":
    trio.run(_by_hand, int(sys.argv[1]))
