"""What the events of a homeserver say. Pure. Other people's programs wrote them: nothing in their content is assumed
to be there, or to be of any type."""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from klaw.channels.messenger import ChannelConversation, IncomingFile, IncomingMessage, MessageDeletion, Sender
from klaw.domain.text import clean, cut, one_line, quoted

BUTTONS = "klaw.buttons"
"""Where an own message says what its reactions mean: a list of ``key`` (emoji) and ``data``."""
MAX_QUOTE = 300
MAX_NAME = 100
SPOKEN = ("m.room.message", "m.sticker", "m.poll.start", "org.matrix.msc3381.poll.start")
ENCRYPTED = ("m.room.encrypted", "m.room.encryption")
MEMBER, NAME, ALIAS, TOMBSTONE = "m.room.member", "m.room.name", "m.room.canonical_alias", "m.room.tombstone"
STATE = (MEMBER, NAME, ALIAS, TOMBSTONE, "m.room.encryption")
TIMELINE = (*STATE, *SPOKEN, "m.room.encrypted", "m.reaction", "m.room.redaction")
_FILES = ("m.image", "m.audio", "m.video", "m.file")
_ADDRESS = re.compile(r"mxc://(?:\w[\w.:-]*|\[[\w:.]+\](?::\d+)?)/[\w-]+", re.ASCII)
_VOICE = ("org.matrix.msc3245.voice", "m.voice")
_FALLBACK = re.compile(r"\A> (?:\* )?<@[^\n]*(?:\n>[^\n]*)*\n*")
_COMMAND = re.compile(r"[!/]([a-z_]{1,32})(?![^\s])")

Event = Mapping[str, Any]
T = TypeVar("T", str, int, dict[str, Any], list[Any])


def at(tree: Any, *keys: str, of: type[T]) -> T:
    """What stands below ``keys``, if it has this type; else that type's empty value."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, of) else of()


def text_at(tree: Any, *keys: str) -> str:
    return at(tree, *keys, of=str)


def message_id(event_id: str) -> str:
    return f"mx:{hashlib.sha256(event_id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def shown(name: str) -> str:
    """A name that somebody chose, on one line."""
    return cut(one_line(clean(name)), MAX_NAME)


@attrs.define
class RoomState:
    """What is known of a room that the bot is in."""

    id: str
    bot: str
    members: int = 0
    """Also the invited ones, and the bot."""
    title: str = ""
    encrypted: bool = False
    successor: str = ""
    """The room that replaces it."""
    names: dict[str, str] = attrs.Factory(dict)
    """Of the people who are known so far, by their ids."""
    _counts: dict[str, int] = attrs.Factory(dict)
    _named: dict[str, str] = attrs.Factory(dict)
    _heroes: list[str] = attrs.Factory(list)

    def learn(self, summary: Event, events: Iterable[Event]) -> None:
        """Take in what a ``/sync`` says of the room. Its summary has only what is new."""
        for count in ("m.joined_member_count", "m.invited_member_count"):
            if count in summary:
                self._counts[count] = at(summary, count, of=int)
        self.members = sum(self._counts.values())
        self._heroes = [each for each in at(summary, "m.heroes", of=list) if isinstance(each, str)] or self._heroes
        for event in events:
            content, key, kind = at(event, "content", of=dict), event.get("state_key"), text_at(event, "type")
            if not isinstance(key, str):
                continue
            match kind:
                case "m.room.member":
                    self.names[key] = shown(text_at(content, "displayname"))
                case "m.room.name" | "m.room.canonical_alias":
                    self._named[kind] = text_at(content, "name") or text_at(content, "alias")
                case "m.room.encryption":
                    self.encrypted = True
                case "m.room.tombstone":
                    self.successor = text_at(content, "replacement_room")
        heroes = [self.sender(each).name for each in self._heroes if each != self.bot]
        self.title = shown(self._named.get(NAME) or self._named.get(ALIAS) or ", ".join(heroes[:3]))

    @property
    def is_group(self) -> bool:
        return self.members != 2

    def sender(self, user: str) -> Sender:
        return Sender(id=user, name=self.names.get(user) or user.removeprefix("@").partition(":")[0])

    def conversation(self, event: Event | None = None) -> ChannelConversation:
        """That of an event: its thread, if it has one."""
        content = at(event, "content", of=dict)
        root = thread_root(content)
        return ChannelConversation(id=f"{self.id} {root}" if root else self.id, title=self.title, group=self.is_group)


def invitation(room_id: str, stripped: Sequence[Event], bot: str) -> tuple[RoomState, Sender]:
    """The room that the bot is invited to, and who invites it. How many are there is told to members only: it counts
    as a conversation of two."""
    room = RoomState(room_id, bot)
    room.learn({"m.joined_member_count": 2}, stripped)
    own = next((each for each in stripped if each.get("type") == MEMBER and each.get("state_key") == bot), {})
    return room, room.sender(text_at(own, "sender"))


def entered(events: Sequence[Event], bot: str) -> int | None:
    """Where the bot came in last: its invitation, or its joining without one. None: not among these events."""
    for number in reversed(range(len(events))):
        event = events[number]
        if event.get("type") == MEMBER and event.get("state_key") == bot:
            membership = text_at(event, "content", "membership")
            before = text_at(event, "unsigned", "prev_content", "membership")
            if membership == "invite" or (membership == "join" and before not in ("join", "invite")):
                return number
    return None


def newest_content(event: Event) -> dict[str, Any]:
    """The content of a message: that of its last edit, as the homeserver puts it beside."""
    edit = at(event, "unsigned", "m.relations", "m.replace", "content", "m.new_content", of=dict)
    return edit or at(event, "content", of=dict)


def thread_root(content: Event) -> str:
    relation = at(content, "m.relates_to", of=dict)
    return text_at(relation, "event_id") if relation.get("rel_type") == "m.thread" else ""


def edited(content: Event) -> str:
    """The event that this one replaces; empty: it is no edit."""
    relation = at(content, "m.relates_to", of=dict)
    return text_at(relation, "event_id") if relation.get("rel_type") == "m.replace" else ""


def replied_to(content: Event) -> str:
    """The event that this one replies to. In threads, clients name the last message too, for those without threads."""
    relation = at(content, "m.relates_to", of=dict)
    is_fallback = thread_root(content) and relation.get("is_falling_back") is True
    return "" if is_fallback else text_at(relation, "m.in_reply_to", "event_id")


def pressed(event: Event, target: Event) -> str | None:
    """What the button means that a reaction to an own message presses; None: there is no such button."""
    emoji = text_at(event, "content", "m.relates_to", "key").replace("\ufe0f", "")
    buttons = at(newest_content(target), BUTTONS, of=list)
    found = (text_at(each, "data") for each in buttons if text_at(each, "key").replace("\ufe0f", "") == emoji)
    return next(filter(None, found), None)


def removed(event: Event, room: RoomState) -> MessageDeletion:
    target = text_at(event, "content", "redacts") or text_at(event, "redacts")
    return MessageDeletion(conversation=room.conversation(), id=message_id(target))


def said(
    event: Event, room: RoomState, bot_names: Sequence[str], commands: Container[str], target: Event | None
) -> IncomingMessage | None:
    """What somebody says; None: nothing that is for anybody.

    Args:
        bot_names: what people call the bot.
        commands: the words that count as commands with ``!`` in front.
        target: the event that it edits or replies to, if that could be read.
    """
    content, sender = at(event, "content", of=dict), room.sender(text_at(event, "sender"))
    of_edit = edited(content)
    if of_edit:
        if target is None or target.get("sender") != sender.id:
            return None
        new = at(content, "m.new_content", of=dict)
    else:
        new = content
    file = _file(new)
    text = clean(_text(event, new, sender.name, file)).strip()
    if not text and file is None:
        return None
    command = _command(text, bot_names, commands)
    is_reply_to_bot = not of_edit and target is not None and target.get("sender") == room.bot
    is_addressed = command is not None or is_reply_to_bot or _mentions(new, room.bot, bot_names)
    if command is None and not of_edit and target is not None and (quote := _quote(target)):
        text = f"{quote}\n\n{text}".rstrip()
    return IncomingMessage(
        id=message_id(text_at(event, "event_id")),
        conversation=room.conversation(target if of_edit else event),
        sender=sender,
        at=at(event, "origin_server_ts", of=int) / 1000,
        text=command or text,
        files=() if file is None else (file,),
        addressed=is_addressed or not room.is_group,
        edits=message_id(of_edit) if of_edit else None,
    )


def _text(event: Event, content: Event, name: str, file: IncomingFile | None) -> str:
    body = text_at(content, "body")
    if event.get("type") == "m.sticker":
        return f"Sticker: {body}"
    if event.get("type") != "m.room.message":
        fallback = at(content, "m.text", of=list)
        return f"Poll: {text_at(content, 'org.matrix.msc1767.text') or text_at(next(iter(fallback), None), 'body')}"
    if file is not None:  # without a name of its own, the file's stands where its caption would
        return body if "filename" in content and body != file.name else ""
    match content.get("msgtype"):
        case "m.text":
            return _FALLBACK.sub("", body) if replied_to(content) else body
        case "m.emote":
            return f"* {name} {body}"
        case "m.location":
            return f"Location: {body}, {text_at(content, 'geo_uri')}"
    return ""


def _file(content: Event) -> IncomingFile | None:
    address = text_at(content, "url")
    if content.get("msgtype") not in _FILES or not _ADDRESS.fullmatch(address):
        return None
    size = at(content, "info", of=dict).get("size")
    return IncomingFile(
        name=clean(text_at(content, "filename") or text_at(content, "body")),
        type=text_at(content, "info", "mimetype"),
        bytes=size if isinstance(size, int) else None,
        place=address,
        voice=any(key in content for key in _VOICE),
    )


def _quote(target: Event) -> str:
    content = newest_content(target)
    return quoted(cut(_FALLBACK.sub("", clean(text_at(content, "body"))).strip(), MAX_QUOTE))


def _command(text: str, bot_names: Sequence[str], commands: Container[str]) -> str | None:
    """The command that a text is, as ``/word …``: people write it with ``!`` too, since their clients take ``/`` for
    themselves, and behind the bot's name."""
    names = "|".join(map(re.escape, bot_names))
    rest = re.sub(rf"\A@?(?:{names})[:,]?\s+", "", text, flags=re.IGNORECASE)
    found = _COMMAND.match(rest)
    return f"/{rest[1:]}" if found and (rest[0] == "/" or found[1] in commands) else None


def _mentions(content: Event, bot: str, bot_names: Sequence[str]) -> bool:
    if bot in at(content, "m.mentions", "user_ids", of=list) or bot in text_at(content, "formatted_body"):
        return True
    names = "|".join(map(re.escape, bot_names))
    return re.search(rf"(?<!\w)(?:{names})(?!\w)", text_at(content, "body"), re.IGNORECASE) is not None
