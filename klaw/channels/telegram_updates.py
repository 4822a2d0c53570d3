"""What Telegram's Bot API tells (its objects ``Update`` and ``Message``), as events. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import structlog

from klaw.channels.messenger import (
    Bot,
    BotInvited,
    BotRemoved,
    ButtonPress,
    ChannelConversation,
    ChannelEvent,
    IncomingFile,
    IncomingMessage,
    NewConversationId,
    Sender,
)
from klaw.domain.text import quoted

Json: TypeAlias = Mapping[str, Any]

UPDATES = ("message", "edited_message", "callback_query", "my_chat_member")
MAX_QUOTE = 300
"""Characters of what a message replies to."""
_FILES = {
    "voice": ("ogg", "audio/ogg"),
    "audio": ("mp3", "audio/mpeg"),
    "video_note": ("mp4", "video/mp4"),
    "video": ("mp4", "video/mp4"),
    "animation": ("mp4", "video/mp4"),
    "document": ("bin", ""),
    "photo": ("jpg", "image/jpeg"),
}
"""Suffix and media type of those that tell neither."""
_FORWARDED = {"ru": "Переслано от"}

log = structlog.get_logger("klaw.channels")


def events(updates: Iterable[Json], bot: Bot) -> list[ChannelEvent]:
    """Without what Klaw has no use for. The messages of an album are one, with the id of its first."""
    found: list[ChannelEvent] = []
    albums: dict[str, int] = {}
    for update in updates:
        try:
            event = _event(update, bot)
        except (KeyError, TypeError, ValueError, AttributeError):  # one that nobody understands must not stop the rest
            log.warning("telegram_update_unreadable")
            continue
        message = update.get("message", {})
        album = message.get("media_group_id", "")
        if isinstance(event, IncomingMessage) and album and album in albums:
            found[albums[album]] = _joined(found[albums[album]], event, captioned="caption" in message)
        elif event is not None:
            albums[album] = len(found)
            found.append(event)
    return found


def _joined(album: ChannelEvent, more: IncomingMessage, *, captioned: bool) -> IncomingMessage:
    assert isinstance(album, IncomingMessage)
    text = more.text if captioned else album.text
    return attrs.evolve(
        album, text=text, files=(*album.files, *more.files), addressed=album.addressed or more.addressed
    )


def _event(update: Json, bot: Bot) -> ChannelEvent | None:
    match update:
        case {"message": message} if message["chat"]["type"] != "channel":
            return _message(message, bot)
        case {"edited_message": message} if message["chat"]["type"] != "channel":
            event = _message(message, bot)
            if not isinstance(event, IncomingMessage):
                return None
            return attrs.evolve(event, id=f"{event.id}:e:{message['edit_date']}", edits=event.id)
        case {"callback_query": {"id": token, "from": user, "message": message, "data": data}}:
            return ButtonPress(
                conversation=_conversation(message),
                sender=_person(user),
                data=data,
                message=f"{message['chat']['id']}:{message['message_id']}",
                token=token,
            )
        case {"my_chat_member": change} if change["chat"]["type"] != "channel":
            return _membership(change)
    return None


def _membership(change: Json) -> BotInvited | BotRemoved | None:
    was, is_now = _is_member(change["old_chat_member"]), _is_member(change["new_chat_member"])
    if was and not is_now:
        return BotRemoved(conversation=str(change["chat"]["id"]))
    if is_now and not was and change["chat"]["type"] != "private":
        return BotInvited(conversation=_conversation(change), sender=_person(change["from"]))
    return None


def _is_member(member: Json) -> bool:
    return member["status"] in ("creator", "administrator", "member") or bool(member.get("is_member"))


def _message(message: Json, bot: Bot) -> IncomingMessage | NewConversationId | None:
    chat = str(message["chat"]["id"])
    if "migrate_to_chat_id" in message:
        return NewConversationId(conversation=chat, to=str(message["migrate_to_chat_id"]))
    text, files = _text(message), tuple(_files(message))
    if not text and not files:
        return None
    group, sender = message["chat"]["type"] != "private", _sender(message)
    addressed = not group
    if "forward_origin" in message:
        label = _FORWARDED.get(sender.language.partition("-")[0], "Forwarded from")
        text = quoted(f"{label} {_origin(message['forward_origin'])}:\n{text}".rstrip())
    else:
        command, other = _command(message, bot)
        reply = _replied(message)
        is_for_bot = command is not None and not other
        answers_bot = str(reply.get("from", {}).get("id")) == bot.id
        addressed = addressed or is_for_bot or answers_bot or _mentions(message, bot)
        said = message.get("quote", {}).get("text") or (reply and _body(reply))
        if command is not None:  # what it replies to would hide it
            text = command
        elif said:
            text = f"{quoted(said[:MAX_QUOTE] + '…' * (len(said) > MAX_QUOTE))}\n\n{text}".rstrip()
    return IncomingMessage(
        id=f"{chat}:{message['message_id']}",
        conversation=_conversation(message),
        sender=sender,
        at=float(message["date"]),
        text=text,
        files=files,
        addressed=addressed,
    )


def _conversation(message: Json) -> ChannelConversation:
    chat = message["chat"]
    number, title = str(chat["id"]), chat.get("title") or _name(chat)
    if message.get("is_topic_message"):
        number += f" {message['message_thread_id']}"
        topic = message.get("reply_to_message", {}).get("forum_topic_created", {}).get("name")
        title += f": {topic}" if topic else ""
    return ChannelConversation(id=number, title=title, group=chat["type"] != "private")


def _sender(message: Json) -> Sender:
    """Who speaks for a group or a channel is known by that only."""
    if (chat := message.get("sender_chat")) is not None:
        return Sender(id=str(chat["id"]), name=chat.get("title") or _name(chat))
    return _person(message["from"])


def _person(user: Json) -> Sender:
    return Sender(id=str(user["id"]), name=_name(user), language=user.get("language_code", ""))


def _name(user: Json) -> str:
    return f"{user.get('first_name', '')} {user.get('last_name', '')}".strip() or str(user.get("username", ""))


def _origin(origin: Json) -> str:
    """Who has said what is forwarded."""
    chat = origin.get("sender_chat") or origin.get("chat")
    if chat:
        return str(chat.get("title") or _name(chat))
    return str(origin.get("sender_user_name") or _name(origin["sender_user"]))


def _replied(message: Json) -> Json:
    """The message that is replied to, if any; everything in a topic replies to the creation of that."""
    reply: Json = message.get("reply_to_message", {})
    return {} if "forum_topic_created" in reply else reply


# -- text --------------------------------------------------------------------------------------------------------------


def _text(message: Json) -> str:
    """The text, the caption, or words for what is neither text nor file."""
    match message:
        case {"venue": {"title": title, "address": address, "location": place}}:
            return f"📍 {title}, {address} ({place['latitude']}, {place['longitude']})"
        case {"location": place}:
            return f"📍 {place['latitude']}, {place['longitude']}"
        case {"contact": {"phone_number": number} as contact}:
            return f"👤 {_name(contact)} {number}"
        case {"poll": {"question": question, "options": options}}:
            return "\n".join([f"📊 {question}", *(f"- {option['text']}" for option in options)])
        case {"dice": {"emoji": emoji, "value": value}}:
            return f"{emoji} {value}"
        case {"sticker": sticker}:
            return str(sticker.get("emoji", "🖼"))
    return _body(message)


def _body(message: Json) -> str:
    """Text or caption; links and code as Markdown."""
    text = _words(message)
    for entity, before, inside in sorted(_entities(message), key=lambda each: len(each[1]), reverse=True):
        behind = text[len(before) + len(inside) :]
        match entity:
            case {"type": "text_link", "url": url} if url.rstrip("/") != inside:
                inside = f"{inside} ({url})"  # noqa: PLW2901
            case {"type": "code"} if "`" not in inside:
                inside = f"`{inside}`"  # noqa: PLW2901
            case {"type": "pre"}:
                begin, end = "\n" * (before[-1:] not in ("", "\n")), "\n" * (behind[:1] not in ("", "\n"))
                inside = f"{begin}```{entity.get('language', '')}\n{inside}\n```{end}"  # noqa: PLW2901
        text = before + inside + behind
    return text


def _words(message: Json) -> str:
    return str(message.get("text") or message.get("caption") or "")


def _entities(message: Json) -> Iterator[tuple[Json, str, str]]:
    """Each with what stands before it and in it; the service counts in UTF-16."""
    units = _words(message).encode("utf-16-le", "surrogatepass")
    for entity in message.get("entities", message.get("caption_entities", ())):
        begin, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
        yield entity, units[:begin].decode("utf-16-le", "replace"), units[begin:end].decode("utf-16-le", "replace")


def _command(message: Json, bot: Bot) -> tuple[str | None, bool]:
    """The text of a command, without the bot's name; and whether it is for another bot."""
    for entity, before, inside in _entities(message):
        if entity["type"] == "bot_command" and not before:
            word, _, name = inside.partition("@")
            other = bool(name) and f"@{name}".lower() != bot.name.lower()
            return (inside if other else word) + _words(message)[len(inside) :], other
    return None, False


def _mentions(message: Json, bot: Bot) -> bool:
    return any(
        (entity["type"] == "mention" and inside.lower() == bot.name.lower())
        or str(entity.get("user", {}).get("id")) == bot.id
        for entity, _, inside in _entities(message)
    )


# -- files -------------------------------------------------------------------------------------------------------------


def _files(message: Json) -> Iterator[IncomingFile]:
    for kind, (suffix, media_type) in _FILES.items():
        file = message.get(kind)
        if not file or (kind == "document" and "animation" in message):  # which is told as a document, too
            continue
        if kind == "photo":  # in several sizes
            file = max(file, key=lambda size: size["width"] * size["height"])
        yield IncomingFile(
            name=file.get("file_name") or f"{kind}_{message['message_id']}.{suffix}",
            type=file.get("mime_type", media_type),
            bytes=file.get("file_size"),
            place=file["file_id"],
            voice=kind == "voice",
        )
