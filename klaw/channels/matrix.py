"""Matrix: the client-server API of a homeserver, over HTTP. Rooms that are encrypted end to end cannot be read."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Any, ClassVar
from urllib.parse import quote

from klaw.channels import matrix_events as events
from klaw.channels import matrix_html
from klaw.channels.homeserver import REQUEST_S, Homeserver
from klaw.channels.matrix_events import Event, RoomState, at, text_at
from klaw.channels.messenger import (
    Bot,
    BotInvited,
    BotRemoved,
    Button,
    ButtonPress,
    ChannelEvent,
    ConversationClosed,
    ConversationMoved,
    EventBatch,
    IncomingFile,
    Limits,
    NewConversationId,
    OthersCanRead,
    Part,
    RefusedByMessenger,
    TooManyRequests,
    Unreachable,
    room_of,
)
from klaw.domain.text import cut

CLIENT, MEDIA, OLD_MEDIA = "/_matrix/client/v3", "/_matrix/client/v1/media", "/_matrix/media/v3"
POLL_S = 30.0
TRANSFER_S = 600.0
TYPING_S = 8.0
PIECE_BYTES = 1 << 20
MAX_ID = 255
"""Characters of an id; what is longer is none."""
PAGE = 100
MAX_MISSED = 5_000
"""Events of one room that are read after an outage; older ones are left out."""
OLD_CLIENT_CHARS = 500
"""So much of an edited text is shown by clients that know no edits: an event has at most 64 KiB, and holds it twice."""
_NO_ROOM = ("M_FORBIDDEN", "M_NOT_FOUND")
_YES_NO = ("✅", "❌")
_DIGITS = tuple(f"{digit}\N{VARIATION SELECTOR-16}\N{COMBINING ENCLOSING KEYCAP}" for digit in range(1, 10))
_NOTHING: Mapping[str, Any] = {"types": []}


def _filter(timeline: Mapping[str, Any], *more_types: str) -> str:
    state = {"types": [*events.STATE, *more_types], "lazy_load_members": True, "include_redundant_members": True}
    room = {"timeline": timeline, "state": state, "ephemeral": _NOTHING, "account_data": _NOTHING}
    return json.dumps({"room": room, "presence": _NOTHING, "account_data": _NOTHING})


_NEW = _filter({"types": events.TIMELINE, "limit": PAGE})
_MISSED = json.dumps({"types": events.TIMELINE, "lazy_load_members": True})


class Matrix:
    """An account on a homeserver. See ``Messenger``."""

    limits: ClassVar = Limits(edit_pause_s=3.0, download_bytes=20_000_000, upload_bytes=50_000_000)

    def __init__(self, token: str, homeserver: str) -> None:
        self._server = Homeserver(homeserver, token)
        self._me = ""
        self._names: Sequence[str] = ()
        self._upload_bytes = self.limits.upload_bytes
        self._commands: frozenset[str] = frozenset()
        self._rooms: dict[str, RoomState] = {}
        self._unreadable: set[str] = set()
        """Encrypted rooms that were reported."""
        self._knows_rooms = False

    async def open(self) -> Bot:
        await self._server.find()
        self._me = text_at(await self._server.ask("GET", f"{CLIENT}/account/whoami"), "user_id")
        profile = await self._server.optional(f"{CLIENT}/profile/{_path(self._me)}")
        local = self._me.removeprefix("@").partition(":")[0]
        self._names = [name for name in (self._me, local, text_at(profile, "displayname").strip()) if name]
        media = await self._server.optional(f"{MEDIA}/config") or await self._server.optional(f"{OLD_MEDIA}/config")
        self._upload_bytes = min(self.limits.upload_bytes, at(media, "m.upload.size", of=int) or self._upload_bytes)
        return Bot(id=self._me, name=self._me, link=f"https://matrix.to/#/{self._me}")

    async def close(self) -> None:
        await self._server.close()

    # -- what comes ----------------------------------------------------------------------------------------------------

    async def receive(self, position: str | None) -> EventBatch:
        if position is None or not self._knows_rooms:  # what a later answer says is only what has changed
            # Homeservers keep answers to the same question for minutes: who is in a room must not come from there.
            answer = await self._sync(_filter({"limit": 0}, f"klaw.{secrets.token_hex(8)}"), timeout="0")
            for room_id, part in at(answer, "rooms", "join", of=dict).items():
                self._learn(room_id, part, at(part, "state", "events", of=list))
            self._knows_rooms = True
            if position is None:
                return EventBatch(events=tuple(await self._invitations(answer)), position=text_at(answer, "next_batch"))
            shared = [
                OthersCanRead(conversation=room.conversation()) for room in self._rooms.values() if room.members > 2
            ]
            return EventBatch(events=tuple(shared), position=position)
        answer = await self._sync(_NEW, since=position, timeout=f"{POLL_S * 1000:.0f}")
        found = await self._invitations(answer)
        for room_id, part in at(answer, "rooms", "join", of=dict).items():
            found += await self._in_room(room_id, part, position)
        for room_id in at(answer, "rooms", "leave", of=dict):
            self._rooms.pop(room_id, None)
            self._unreadable.discard(room_id)
            found.append(BotRemoved(conversation=room_id))
        return EventBatch(events=tuple(found), position=text_at(answer, "next_batch"))

    async def _sync(self, which: str, **params: str) -> Event:
        return await self._server.ask(
            "GET", f"{CLIENT}/sync", params={"filter": which, **params}, within_s=POLL_S + REQUEST_S
        )

    def _learn(self, room_id: str, part: Event, new: Sequence[Event]) -> RoomState:
        room = self._rooms.setdefault(room_id, RoomState(room_id, self._me))
        room.learn(at(part, "summary", of=dict), new)
        return room

    async def _invitations(self, answer: Event) -> list[Any]:
        found: list[Any] = []
        for room_id, part in at(answer, "rooms", "invite", of=dict).items():
            room, sender = events.invitation(room_id, at(part, "invite_state", "events", of=list), self._me)
            old = next((each.id for each in self._rooms.values() if each.successor == room_id), None)
            if old is not None:
                found += await self._moved(old, room_id)
                continue
            self._unreadable.update([room_id] if room.encrypted else ())
            found.append(BotInvited(conversation=room.conversation(), sender=sender, unreadable=room.encrypted))
        return found

    async def _in_room(self, room_id: str, part: Event, since: str) -> list[Any]:
        new = await self._timeline(room_id, at(part, "timeline", of=dict), since)
        was_private = room_id in self._rooms and not self._rooms[room_id].is_group
        room = self._learn(room_id, part, [*at(part, "state", "events", of=list), *new])
        begin, found = events.entered(new, self._me), list[Any]()
        if begin is not None and room.is_group and new[begin].get("sender") != self._me:
            # Only now it is known who else is there.
            found.append(
                BotInvited(conversation=room.conversation(), sender=room.sender(text_at(new[begin], "sender")))
            )
        elif was_private and room.members > 2:
            found.append(OthersCanRead(conversation=room.conversation()))
        for event in new[begin or 0 :]:
            found += await self._read(room, event)
        if room.members == 1 and any(event.get("type") == events.MEMBER for event in new):
            found.append(BotRemoved(conversation=room_id))
        return found

    async def _timeline(self, room_id: str, part: Event, since: str) -> list[Event]:
        """The new events of a room, also those that an answer leaves out when there are many."""
        new, back = at(part, "events", of=list), text_at(part, "prev_batch")
        is_limited = part.get("limited") is True
        while is_limited and back and len(new) < MAX_MISSED and events.entered(new, self._me) is None:
            params = {"dir": "b", "from": back, "to": since, "limit": str(PAGE), "filter": _MISSED}
            page = await self._server.ask("GET", f"{CLIENT}/rooms/{_path(room_id)}/messages", params=params)
            new, back = [*reversed(at(page, "chunk", of=list)), *new], text_at(page, "end")
        return new

    async def _read(self, room: RoomState, event: Event) -> Sequence[ChannelEvent]:
        kind, content = event.get("type"), at(event, "content", of=dict)
        if event.get("sender") == self._me:
            return ()
        sender = room.sender(text_at(event, "sender"))
        if kind in events.ENCRYPTED:
            if room.id in self._unreadable:
                return ()
            self._unreadable.add(room.id)
            return (BotInvited(conversation=room.conversation(), sender=sender, unreadable=True),)
        if kind == events.TOMBSTONE:
            return await self._moved(room.id, room.successor)
        if kind == "m.room.redaction":
            return (events.removed(event, room),)
        if kind == "m.reaction":
            message = text_at(content, "m.relates_to", "event_id")
            target = await self._event(room.id, message)
            if target is None or target.get("sender") != self._me or (data := events.pressed(event, target)) is None:
                return ()
            return (ButtonPress(conversation=room.conversation(target), sender=sender, data=data, message=message),)
        if kind in events.SPOKEN and content.get("msgtype") != "m.notice":
            about = events.edited(content) or events.replied_to(content)
            target = await self._event(room.id, about) if about else None
            incoming = events.said(event, room, self._names, self._commands, target)
            return () if incoming is None else (incoming,)
        return ()

    async def _moved(self, old: str, new: str) -> Sequence[NewConversationId]:
        """Follow a conversation into the room that replaces it. Nothing: an invitation is missing, or another
        homeserver away; it is tried again when something is sent."""
        try:
            await self.join(new)
        except TooManyRequests:
            raise
        except (RefusedByMessenger, Unreachable):
            return ()
        return (NewConversationId(conversation=old, to=new),)

    async def _event(self, room: str, event: str) -> Event | None:
        try:
            if not 0 < len(event) <= MAX_ID:
                return None
            return await self._server.ask("GET", f"{CLIENT}/rooms/{_path(room)}/event/{_path(event)}")
        except RefusedByMessenger:
            return None

    # -- what goes -----------------------------------------------------------------------------------------------------

    render = staticmethod(matrix_html.render)

    async def post(self, conversation: str, part: Part, key: str, *, buttons: Sequence[Button] = ()) -> str:
        content = _content(part, buttons) | _in_thread(conversation)
        message = await self._send(conversation, content, key)
        for emoji, _ in _pressable(buttons):  # a reaction of its own with each, so that people only tap
            relation = {"rel_type": "m.annotation", "event_id": message, "key": emoji}
            with suppress(RefusedByMessenger, ConversationClosed):  # it is there already, or only people may react here
                await self._send(conversation, {"m.relates_to": relation}, f"{key}.{emoji}", "m.reaction")
        return message

    async def edit(self, conversation: str, message: str, part: Part, key: str) -> None:
        content = {
            "msgtype": "m.text",
            "body": f"* {cut(part.text, OLD_CLIENT_CHARS)}",
            "m.mentions": {},
            "m.new_content": _content(part),
            "m.relates_to": {"rel_type": "m.replace", "event_id": message},
        }
        await self._send(conversation, content, key)

    async def upload(
        self, conversation: str, name: str, media_type: str, data: bytes, key: str, *, voice: bool = False
    ) -> str:
        if len(data) > self._upload_bytes:
            raise RefusedByMessenger(f"the homeserver takes files of at most {self._upload_bytes:,} bytes")
        answer = await self._server.ask(
            "POST",
            "/_matrix/media/v3/upload",
            data,
            media_type=media_type,
            params={"filename": name},
            within_s=TRANSFER_S,
        )
        kind = media_type.partition("/")[0]
        content: dict[str, Any] = {
            "msgtype": f"m.{kind}" if kind in ("image", "audio", "video") else "m.file",
            "body": name,
            "filename": name,
            "url": text_at(answer, "content_uri"),
            "info": {"mimetype": media_type, "size": len(data)},
        }
        if voice:
            content |= {"msgtype": "m.audio", "org.matrix.msc1767.audio": {}, "org.matrix.msc3245.voice": {}}
        return await self._send(conversation, content | _in_thread(conversation), key)

    async def download(self, file: IncomingFile) -> AsyncIterator[bytes]:  # noqa: ASYNC900  nothing is open then
        path, most = f"download/{file.place.removeprefix('mxc://')}", self.limits.download_bytes
        for place in (MEDIA, OLD_MEDIA):
            try:
                answer = await self._server.exchange("GET", f"{place}/{path}", at_most=most)
                break
            except RefusedByMessenger as error:
                if place == OLD_MEDIA or error.code != "M_UNRECOGNIZED":
                    raise
        for begin in range(0, len(answer), PIECE_BYTES):
            yield bytes(answer[begin : begin + PIECE_BYTES])

    async def working(self, conversation: str) -> None:
        body = {"typing": True, "timeout": int(TYPING_S * 1000)}
        await self._put(conversation, f"typing/{_path(self._me)}", body)

    async def confirm(self, pressed: ButtonPress, text: str) -> None:
        """Nothing: the message itself says what came of it."""

    async def leave(self, conversation: str) -> None:
        await self._server.ask("POST", f"{CLIENT}/rooms/{_path(room_of(conversation))}/leave", {})

    async def join(self, conversation: str) -> None:
        await self._server.ask("POST", f"{CLIENT}/join/{_path(room_of(conversation))}", {})

    async def show_commands(self, commands: Mapping[str, Mapping[str, str]]) -> None:
        """Matrix has no menu; these words also count as commands with ``!`` in front."""
        self._commands = frozenset(word for words in commands.values() for word in words)

    async def _send(self, conversation: str, content: Event, key: str, kind: str = "m.room.message") -> str:
        return text_at(await self._put(conversation, f"send/{kind}/{_path(key)}", content), "event_id")

    async def _put(self, conversation: str, path: str, body: Event) -> Event:
        room = room_of(conversation)
        try:
            return await self._server.ask("PUT", f"{CLIENT}/rooms/{_path(room)}/{path}", body)
        except RefusedByMessenger as error:
            if error.code not in _NO_ROOM:
                raise
            closed = ConversationClosed(str(error))
        known = self._rooms.get(room)
        if known is not None and known.successor and await self._moved(room, known.successor):
            raise ConversationMoved(known.successor)
        raise closed


def _in_thread(conversation: str) -> dict[str, Any]:
    """The relation of a message to the thread that it stands in; clients without threads see a reply."""
    root = conversation.partition(" ")[2]
    if not root:
        return {}
    reply = {"is_falling_back": True, "m.in_reply_to": {"event_id": root}}
    return {"m.relates_to": {"rel_type": "m.thread", "event_id": root, **reply}}


def _path(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _pressable(buttons: Sequence[Button]) -> list[tuple[str, Button]]:
    """Buttons with the emoji that presses each."""
    return list(zip(_YES_NO if len(buttons) == 2 else _DIGITS, buttons, strict=False))


def _content(part: Part, buttons: Sequence[Button] = ()) -> dict[str, Any]:
    """A message. Its mentions are none, so that an answer that names people does not ring at theirs."""
    pressable = _pressable(buttons)
    lines = [f"{emoji} {button.label}" for emoji, button in pressable]
    body = "\n\n".join(filter(None, (part.text, "\n".join(lines))))
    content: dict[str, Any] = {"msgtype": "m.text", "body": body, "m.mentions": {}}
    if part.formatted:
        html = "<br>".join(map(escape, lines))
        content |= {
            "format": "org.matrix.custom.html",
            "formatted_body": f"{part.formatted}<p>{html}</p>" if lines else part.formatted,
        }
    if pressable:
        content[events.BUTTONS] = [{"key": emoji, "data": button.data} for emoji, button in pressable]
    return content
