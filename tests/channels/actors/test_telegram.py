"""Telegram's Bot API, asked over real sockets, of an emulator that is as strict as its documentation."""

import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from klaw.channels import telegram as module
from klaw.channels.messenger import (
    BotInvited,
    BotRemoved,
    Button,
    ButtonPress,
    ChannelError,
    ConversationClosed,
    ConversationMoved,
    EventBatch,
    IncomingMessage,
    Messenger,
    NewConversationId,
    Part,
    ReceivedElsewhere,
    RefusedByMessenger,
    TooManyRequests,
    Unreachable,
    WrongToken,
)
from klaw.channels.telegram import Telegram
from tests.support.llm_server import serve_llm
from tests.support.services.imitation import page_reply
from tests.support.services.telegram import MB, TOKEN, Chat, Person, TelegramService, serve_telegram
from tests.support.waiting import until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)


@asynccontextmanager
async def talking() -> AsyncIterator[tuple[TelegramService, Telegram, Person]]:
    """The service, a bot that is open, and somebody who has written to it."""
    async with serve_telegram() as service:
        bot = Telegram(service.token, service.url)
        await bot.open()
        anna = service.person("Anna")
        await anna.starts()
        service.updates.clear()
        try:
            yield service, bot, anna
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                await bot.close()


@pytest.fixture(autouse=True)
def _albums_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALBUM_S", 0)


async def heard(bot: Telegram) -> Any:
    """What the one event is that waits."""
    (event,) = (await bot.receive(None)).events
    return event


def rendered(bot: Telegram, markdown: str) -> Part:
    (part,) = bot.render(markdown)
    return part


def to(chat: Chat) -> str:
    return str(chat.id)


# -- receiving ---------------------------------------------------------------------------------------------------------


async def test_it_is_a_messenger_and_says_who_it_is() -> None:
    async with talking() as (_, bot, _anna):
        messenger: Messenger = bot
        me = await messenger.open()
        assert (me.id, me.name) == ("7000001", "@klaw_bot")
        assert me.link.format(code="AB12") == "https://t.me/klaw_bot?start=AB12"


async def test_a_message_comes_with_who_said_it_and_where() -> None:
    async with talking() as (service, bot, anna):
        sent = await anna.says("Hello 🙂")
        message = await heard(bot)
        assert isinstance(message, IncomingMessage)
        assert (message.text, message.addressed, message.edits) == ("Hello 🙂", True, None)
        assert (message.id, message.at) == (f"{anna.chat.id}:{sent.id}", float(sent.raw["date"]))
        assert (message.sender.id, message.sender.name, message.sender.language) == (str(anna.id), "Anna", "en")
        assert (message.conversation.id, message.conversation.title) == (to(anna.chat), "Anna")
        assert not message.conversation.group
        assert not service.refused


async def test_what_is_not_confirmed_comes_again_and_nothing_that_waited_is_dropped() -> None:
    async with talking() as (service, bot, anna):
        await anna.says("one")
        await anna.says("two")
        first = await bot.receive(None)
        assert first.events == (await bot.receive(None)).events
        await anna.says("three")
        second = await bot.receive(first.position)
        assert [event.text for event in second.events if isinstance(event, IncomingMessage)] == ["three"]
        assert service.confirmed == int(first.position)
        assert not any(asked.get("drop_pending_updates") for _, asked in service.calls)


async def test_it_waits_until_something_is_said() -> None:
    async with talking() as (service, bot, anna):
        found: list[EventBatch] = []

        async def receive() -> None:
            found.append(await bot.receive("5"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await until(lambda: service.polled)
            assert not found
            await anna.says("Now")
        assert [event.text for event in found[0].events if isinstance(event, IncomingMessage)] == ["Now"]


async def test_an_edit_names_what_it_replaces() -> None:
    async with talking() as (service, bot, anna):
        sent = await anna.says("Helo")
        service.updates.clear()
        await anna.edits(sent, "Hello")
        edit = await heard(bot)
        assert (edit.text, edit.edits) == ("Hello", f"{anna.chat.id}:{sent.id}")
        assert edit.id == f"{edit.edits}:e:{sent.raw['edit_date']}"


async def test_the_code_of_a_link_is_in_the_text() -> None:
    async with talking() as (_, bot, anna):
        await anna.starts("AB12CD34")
        assert (await heard(bot)).text == "/start AB12CD34"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"location": {"latitude": 55.75, "longitude": 37.62}}, "📍 55.75, 37.62"),
        (
            {
                "venue": {"title": "Café", "address": "Main St 1", "location": {"latitude": 1.5, "longitude": 2.5}},
                "location": {"latitude": 1.5, "longitude": 2.5},
            },
            "📍 Café, Main St 1 (1.5, 2.5)",
        ),
        ({"contact": {"phone_number": "+4912", "first_name": "Boris", "last_name": "K"}}, "👤 Boris K +4912"),
        ({"poll": {"question": "When?", "options": [{"text": "now"}, {"text": "later"}]}}, "📊 When?\n- now\n- later"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "🎲 4"),
        ({"sticker": {"file_id": "s", "emoji": "😀", "width": 1, "height": 1}}, "😀"),
        ({"sticker": {"file_id": "s", "width": 1, "height": 1}}, "🖼"),
    ],
)
async def test_what_is_neither_text_nor_file_comes_as_text(content: dict[str, Any], text: str) -> None:
    async with talking() as (_, bot, anna):
        await anna.sends(**content)
        assert (await heard(bot)).text == text


async def test_links_and_code_of_a_text_are_not_lost() -> None:
    async with talking() as (_, bot, anna):
        text = "🙂 see here: f(x)\nx = 1"
        entities = [
            {"type": "text_link", "offset": 7, "length": 4, "url": "https://a.example/"},
            {"type": "code", "offset": 13, "length": 4},
            {"type": "pre", "offset": 18, "length": 5, "language": "python"},
        ]
        await anna.says(text, entities=entities)
        assert (await heard(bot)).text == "🙂 see here (https://a.example/): `f(x)`\n```python\nx = 1\n```"


@pytest.mark.parametrize(("language", "label"), [("en", "Forwarded from"), ("ru", "Переслано от")])
async def test_a_forwarded_text_is_quoted_with_its_origin(language: str, label: str) -> None:
    async with talking() as (service, bot, _):
        origins: list[tuple[dict[str, Any], str]] = [
            ({"type": "user", "sender_user": {"id": 1, "first_name": "Boris", "last_name": "K"}}, "Boris K"),
            ({"type": "hidden_user", "sender_user_name": "Somebody"}, "Somebody"),
            ({"type": "chat", "sender_chat": {"id": 2, "type": "group", "title": "Choir"}}, "Choir"),
            ({"type": "channel", "chat": {"id": 3, "type": "channel", "title": "News"}, "message_id": 5}, "News"),
        ]
        person = service.person("Vera", language)
        for origin, _name in origins:
            await person.says("/new\n@klaw_bot do it", forwarded_from=origin)
        batch = await bot.receive(None)
        texts = [event.text for event in batch.events if isinstance(event, IncomingMessage)]
        assert texts == [f"> {label} {name}:\n> /new\n> @klaw_bot do it" for _, name in origins]


async def test_a_reply_quotes_what_it_replies_to() -> None:
    async with talking() as (service, bot, anna):
        first = await anna.says("a\nb " + "x" * 400)
        service.updates.clear()
        await anna.says("Why?", reply_to=first)
        await anna.says("/why", reply_to=first)
        await anna.says("This?", reply_to=first, quote={"text": "b x", "position": 2})
        reply, command, exact = (await bot.receive(None)).events
        assert isinstance(reply, IncomingMessage)
        assert reply.text == "> a\n> b " + "x" * 296 + "…\n\nWhy?"
        assert isinstance(command, IncomingMessage)
        assert command.text == "/why"
        assert isinstance(exact, IncomingMessage)
        assert exact.text == "> b x\n\nThis?"


@pytest.mark.parametrize(
    ("text", "addressed", "shown"),
    [
        ("Good morning", False, "Good morning"),
        ("What does @klaw_bot say?", True, "What does @klaw_bot say?"),
        ("🙂 @KLAW_BOT", True, "🙂 @KLAW_BOT"),
        ("@klaw_bots", False, "@klaw_bots"),
        ("/new", True, "/new"),
        ("/new@klaw_bot fresh", True, "/new fresh"),
        ("/new@other_bot", False, "/new@other_bot"),
        ("see /new", False, "see /new"),
    ],
)
async def test_in_a_group_it_is_addressed_by_name_or_command(text: str, addressed: bool, shown: str) -> None:
    async with talking() as (service, bot, anna):
        group = service.group("Friends")
        await anna.says(text, chat=group)
        message = await heard(bot)
        assert (message.text, message.addressed) == (shown, addressed)
        assert (message.conversation.id, message.conversation.title) == (to(group), "Friends")
        assert message.conversation.group


async def test_in_a_group_a_reply_to_the_bot_and_a_mention_of_one_without_a_name_address_it() -> None:
    async with talking() as (service, bot, anna):
        group = service.group("Friends")
        group.closed = ""
        await bot.post(to(group), rendered(bot, "I am here"), "k")
        await anna.says("Good", chat=group, reply_to=group.of_bot[0])
        named = [{"type": "text_mention", "offset": 0, "length": 4, "user": service.bot}]
        await anna.says("Klaw?", chat=group, entities=named)
        reply, mention = (await bot.receive(None)).events
        assert isinstance(reply, IncomingMessage)
        assert (reply.text, reply.addressed) == ("> I am here\n\nGood", True)
        assert isinstance(mention, IncomingMessage)
        assert mention.addressed


async def test_who_speaks_for_the_group_is_the_group() -> None:
    async with talking() as (service, bot, anna):
        group = service.group("Friends", supergroup=True)
        await anna.says("Hi", chat=group, sender_chat=group.raw)
        sender = (await heard(bot)).sender
        assert (sender.id, sender.name) == (to(group), "Friends")


async def test_a_topic_is_a_conversation_of_its_own() -> None:
    async with talking() as (service, bot, anna):
        group = service.group("Club", supergroup=True)
        group.closed = ""
        topic = await group.creates_topic(anna, "Garden")
        await anna.says("Tulips?", chat=group, topic=topic)
        message = await heard(bot)
        assert message.conversation.id == f"{group.id} {topic}"
        assert message.conversation.title == "Club: Garden"
        assert (message.text, message.addressed) == ("Tulips?", False)
        sent = await bot.post(message.conversation.id, rendered(bot, "Yes"), "k")
        assert group.of_bot[-1].topic == topic
        await bot.edit(message.conversation.id, sent, rendered(bot, "**Yes**"), "k2")
        await bot.working(message.conversation.id)
        await bot.upload(message.conversation.id, "a.txt", "text/plain", b"a", "k3")
        assert [(each.text, each.topic) for each in group.of_bot] == [("Yes", topic), ("", topic)]
        assert group.actions == ["typing"]
        with pytest.raises(ConversationClosed):
            await bot.post(f"{group.id} 999", rendered(bot, "x"), "k")


async def test_a_button_that_is_pressed_comes_with_its_data_and_is_confirmed() -> None:
    async with talking() as (service, bot, anna):
        buttons = [Button(label="Yes", data="approve:1"), Button(label="Нет", data="deny:1")]
        sent = await bot.post(to(anna.chat), rendered(bot, "Run `ls`?"), "k", buttons=buttons)
        query = await anna.presses(anna.chat.of_bot[0], "Нет")
        pressed = await heard(bot)
        assert isinstance(pressed, ButtonPress)
        assert (pressed.data, pressed.message, pressed.sender.name) == ("deny:1", sent, "Anna")
        await bot.confirm(pressed, "Denied. " + "x" * 300)
        assert service.answered[query].startswith("Denied. x")
        await bot.confirm(pressed, "Too late, and nothing happens.")


async def test_buttons_with_long_labels_stand_below_each_other() -> None:
    async with talking() as (_, bot, anna):
        buttons = [Button(label="Allow this command once", data="1"), Button(label="Allow always", data="2")]
        sent = await bot.post(to(anna.chat), rendered(bot, "?"), "k", buttons=buttons)
        assert [len(row) for row in anna.chat.of_bot[0].buttons] == [1, 1]
        await bot.edit(to(anna.chat), sent, rendered(bot, "Allowed by Anna"), "k")
        assert anna.chat.of_bot[0].buttons == []


async def test_coming_and_going_are_told() -> None:
    async with talking() as (service, bot, anna):
        group = service.group("Friends")
        await group.adds_bot(anna)
        await group.removes_bot(anna)
        await anna.blocks_bot()
        await anna.unblocks_bot()
        joined, left, blocked = (await bot.receive(None)).events
        assert isinstance(joined, BotInvited)
        assert (joined.conversation.title, joined.sender.name) == ("Friends", "Anna")
        assert left == BotRemoved(conversation=to(group))
        assert blocked == BotRemoved(conversation=to(anna.chat))


async def test_a_group_that_becomes_a_supergroup_moves() -> None:
    async with talking() as (service, bot, anna):
        group = service.group("Friends")
        group.closed = ""
        new = await group.becomes_supergroup(anna)
        assert await heard(bot) == NewConversationId(conversation=to(group), to=to(new))
        with pytest.raises(ConversationMoved) as raised:
            await bot.post(to(group), rendered(bot, "x"), "k")
        assert raised.value.to == to(new)


async def test_what_nobody_understands_does_not_stop_the_rest(log_events: list[dict[str, Any]]) -> None:
    async with talking() as (service, bot, anna):
        await service.tell(message={"message_id": 1, "chat": {"id": 1, "type": "private"}, "text": "no sender"})
        await service.tell(message={})
        await anna.sends(giveaway={"winner_count": 1})
        await service.tell(callback_query={"id": "1", "from": anna.raw, "game_short_name": "chess"})
        await anna.says("Hello")
        batch = await bot.receive(None)
        assert [event.text for event in batch.events if isinstance(event, IncomingMessage)] == ["Hello"]
        assert int(batch.position) == service.updates[-1]["update_id"] + 1
        assert [event["event"] for event in log_events].count("telegram_update_unreadable") == 2


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "media_type", "shown"),
    [
        ("photo", "", "", ("photo_2.jpg", "image/jpeg")),
        ("voice", "", "audio/ogg", ("voice_2.ogg", "audio/ogg")),
        ("audio", "Lied.mp3", "audio/mpeg", ("Lied.mp3", "audio/mpeg")),
        ("video_note", "", "", ("video_note_2.mp4", "video/mp4")),
        ("video", "film.mov", "video/quicktime", ("film.mov", "video/quicktime")),
        ("document", "Отчёт.pdf", "application/pdf", ("Отчёт.pdf", "application/pdf")),
        ("document", "", "", ("document_2.bin", "")),
    ],
)
async def test_files_come_with_name_and_type_and_are_fetched(
    kind: str, name: str, media_type: str, shown: tuple[str, str]
) -> None:
    async with talking() as (_, bot, anna):
        data = bytes(range(256)) * 600
        await anna.sends_file(kind, data, name, media_type, caption="Look")
        message = await heard(bot)
        (file,) = message.files
        assert (file.name, file.type) == shown
        assert (file.bytes, file.voice) == (len(data), kind == "voice")
        assert message.text == "Look"
        assert b"".join([chunk async for chunk in bot.download(file)]) == data


async def test_an_animation_is_one_file() -> None:
    async with talking() as (service, bot, anna):
        file = service.keeps("animation", b"gif", "a.mp4", "video/mp4")
        await anna.sends(animation=file, document=file)
        assert [each.name for each in (await heard(bot)).files] == ["a.mp4"]


async def test_an_album_is_one_message() -> None:
    async with talking() as (service, bot, anna):
        sent = await anna.sends_album([b"1", b"22", b"333"], "Holidays")
        message = await heard(bot)
        assert message.id == f"{anna.chat.id}:{sent[0].id}"
        assert (message.text, [file.bytes for file in message.files]) == ("Holidays", [1, 2, 3])
        service.at_once.append(1)  # the rest comes a moment later
        assert (await heard(bot)).files == message.files


async def test_an_album_of_a_reply_has_the_quotation_once() -> None:
    async with talking() as (service, bot, anna):
        first = await anna.says("Photos?")
        service.updates.clear()
        await anna.sends_album([b"1", b"22"], "Here", reply_to=first)
        assert (await heard(bot)).text == "> Photos?\n\nHere"


async def test_files_that_are_too_large_or_gone_are_refused() -> None:
    async with talking() as (service, bot, anna):
        await anna.sends_file("document", b"x", "a.bin")
        (file,) = (await heard(bot)).files
        service.files.clear()
        with pytest.raises(RefusedByMessenger, match="wrong file_id"):
            await anext(bot.download(file))
        service.updates.clear()
        await anna.sends_file("document", bytes(20 * MB + 1), "b.bin")
        (file,) = (await heard(bot)).files
        with pytest.raises(RefusedByMessenger, match="20 MB"):
            await anext(bot.download(file))
        assert ("getFile", {"file_id": file.place}) not in service.calls
        with pytest.raises(RefusedByMessenger, match="50 MB"):
            await bot.upload(to(anna.chat), "c.bin", "", bytes(50 * MB + 1), "k")


@pytest.mark.parametrize(
    ("name", "media_type", "data", "kind"),
    [
        ("a.png", "image/png", PNG, "photo"),
        ("broken.png", "image/png", b"no picture", "document"),
        ("a.svg", "image/svg+xml", b"<svg/>", "document"),
        ("Песня.mp3", "audio/mpeg", b"ID3", "audio"),
        ('a "b"\n.txt', "text/plain", b"text", "document"),
        ("none", "", b"\0", "document"),
    ],
)
async def test_files_are_sent_as_what_they_are(name: str, media_type: str, data: bytes, kind: str) -> None:
    async with talking() as (_, bot, anna):
        sent = await bot.upload(to(anna.chat), name, media_type, data, "k")
        (shown,) = anna.chat.of_bot
        assert sent == f"{anna.chat.id}:{shown.id}"
        assert shown.file is not None
        assert (shown.file.kind, shown.file.data) == (kind, data)
        assert shown.file.name == name.replace('"', "%22").replace("\n", "%0A")


async def test_speech_is_sent_as_a_voice_message() -> None:
    async with talking() as (_, bot, anna):
        await bot.upload(to(anna.chat), "answer.ogg", "audio/ogg", b"OggS", "k", voice=True)
        assert [shown.file and shown.file.kind for shown in anna.chat.of_bot] == ["voice"]


# -- sending -----------------------------------------------------------------------------------------------------------


async def test_an_answer_grows_in_place() -> None:
    async with talking() as (service, bot, anna):
        sent = await bot.post(to(anna.chat), rendered(bot, "# Plan"), "1")
        await bot.edit(to(anna.chat), sent, rendered(bot, "# Plan\n\n1. **one**"), "2")
        await bot.edit(to(anna.chat), sent, rendered(bot, "# Plan\n\n1. **one**"), "3")
        (shown,) = anna.chat.of_bot
        assert (shown.text, shown.edits) == ("Plan\n\n1. one", 1)
        assert [(each.type, each.offset, each.length) for each in shown.entities] == [("bold", 0, 4), ("bold", 9, 3)]
        assert service.refused == [each for each in service.refused if "not modified" in each]
        anna.chat.messages.remove(shown)
        with pytest.raises(RefusedByMessenger, match="message to edit not found"):
            await bot.edit(to(anna.chat), sent, rendered(bot, "x"), "4")


async def test_a_long_answer_comes_in_parts_that_are_all_taken() -> None:
    async with talking() as (service, bot, anna):
        code = "\n".join(f"print({number})  # 🙂" for number in range(600))
        for number, part in enumerate(bot.render(f"Here:\n\n```python\n{code}\n```\n\nThat is **all**.")):
            await bot.post(to(anna.chat), part, str(number))
        assert len(anna.chat.of_bot) > 2
        assert not service.refused
        assert "".join(shown.text for shown in anna.chat.of_bot).count("print(") == 600
        assert all("python" in [each.value for each in shown.entities] for shown in anna.chat.of_bot[1:-1])


async def test_formatting_that_is_refused_is_left_out(log_events: list[dict[str, Any]]) -> None:
    async with talking() as (service, bot, anna):
        service.fails(400, 'Bad Request: can\'t parse entities: Unsupported start tag "x" at byte offset 3')
        await bot.post(to(anna.chat), rendered(bot, "see [a & b](https://a.example)"), "k")
        (shown,) = anna.chat.of_bot
        assert (shown.text, shown.entities) == ("see a & b (https://a.example)", ())
        assert "telegram_formatting_refused" in [event["event"] for event in log_events]


async def test_commands_are_a_menu_in_each_language() -> None:
    async with talking() as (service, bot, _):
        english, russian = {"new": "Start fresh", "No-Word": "x", "stop": ""}, {"new": "Начать заново"}
        await bot.show_commands({"en": english, "ru": russian})
        assert service.commands[""] == [{"command": "new", "description": "Start fresh"}]
        assert service.commands["ru"] == [{"command": "new", "description": "Начать заново"}]


async def test_it_leaves_a_group() -> None:
    async with talking() as (service, bot, _):
        group = service.group("Friends")
        group.closed = ""
        await bot.join(to(group))
        await bot.leave(to(group))
        with pytest.raises(ConversationClosed, match="not a member"):
            await bot.post(to(group), rendered(bot, "x"), "k")


# -- errors ------------------------------------------------------------------------------------------------------------


async def test_too_many_requests_say_when_to_ask_again() -> None:
    async with talking() as (service, bot, anna):
        service.limits(17, "sendMessage")
        with pytest.raises(TooManyRequests) as raised:
            await bot.post(to(anna.chat), rendered(bot, "x"), "k")
        assert (raised.value.after_s, raised.value.conversation) == (17, to(anna.chat))
        await bot.post(to(anna.chat), rendered(bot, "x"), "k")
        service.limits(3, "getUpdates")
        with pytest.raises(TooManyRequests) as raised:
            await bot.receive(None)
        assert (raised.value.after_s, raised.value.conversation) == (3, None)


async def test_a_blocked_bot_is_told_so() -> None:
    async with talking() as (_, bot, anna):
        await anna.blocks_bot()
        with pytest.raises(ConversationClosed, match="blocked by the user"):
            await bot.post(to(anna.chat), rendered(bot, "x"), "k")
        with pytest.raises(ConversationClosed, match="chat not found"):
            await bot.working("12345")


async def test_another_program_with_the_token_is_noticed() -> None:
    async with talking() as (service, bot, _):
        other = Telegram(service.token, service.url)
        await other.open()
        async with trio.open_nursery() as nursery:

            async def first() -> None:
                with pytest.raises(ReceivedElsewhere, match="terminated by other getUpdates"):
                    await bot.receive("1")
                nursery.cancel_scope.cancel(reason="it was noticed")

            nursery.start_soon(first)
            await until(lambda: service.polled)
            nursery.start_soon(other.receive, "1")
        await other.close()


async def test_a_webhook_that_is_set_is_removed_and_nothing_is_dropped() -> None:
    async with talking() as (service, bot, anna):
        service.webhook = "https://old.example/hook"
        await anna.says("Still here?")
        assert (await heard(bot)).text == "Still here?"
        assert ("deleteWebhook", {"drop_pending_updates": False}) in service.calls


async def test_wrong_tokens() -> None:
    async with serve_telegram() as service:
        for token in ("7000001:AAwrong", "not a token", "7000001:AA/../getMe", ""):
            bot = Telegram(token, service.url)
            with pytest.raises(WrongToken, match="BotFather"):
                await bot.open()
            await bot.close()
        service.fails(404, "Not Found")
        bot = Telegram(service.token, service.url)
        with pytest.raises(WrongToken):
            await bot.open()
        await bot.open()
        await bot.close()


async def test_a_service_that_fails_or_is_gone_works_again_later() -> None:
    async with talking() as (service, bot, anna):
        service.goes_down(502)
        with pytest.raises(Unreachable, match="status 502"):
            await bot.receive(None)
        service.loses_network()
        with pytest.raises(Unreachable, match="broke"):
            await bot.post(to(anna.chat), rendered(bot, "x"), "k")
        service.comes_up()
        await anna.says("Back?")
        assert (await heard(bot)).text == "Back?"


async def test_a_connection_that_breaks_while_it_waits() -> None:
    async with talking() as (service, bot, _), trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(Unreachable):
                await bot.receive("1")

        nursery.start_soon(receive)
        await until(lambda: service.polled)
        service.loses_network()


async def test_an_address_where_no_telegram_is() -> None:
    async with serve_llm() as server:
        server.respond = lambda _request: page_reply()
        bot = Telegram(TOKEN, f"http://127.0.0.1:{server.port}/")
        with pytest.raises(Unreachable, match="address of its API"):
            await bot.open()
        await bot.close()
    bot = Telegram(TOKEN, f"http://127.0.0.1:{server.port}")
    with pytest.raises(Unreachable, match="Connection refused"):
        await bot.open()
    await bot.close()


def _becomes_silent(service: TelegramService) -> None:
    service.silent = True


BREAKS: dict[str, Callable[[TelegramService], None]] = {
    "token quoted": lambda service: service.fails(400, f"Bad Request: /bot{TOKEN}/x is odd"),
    "401": lambda service: service.fails(401, "Unauthorized"),
    "403": lambda service: service.fails(403, f"Forbidden: {TOKEN}"),
    "409": lambda service: service.fails(409, f"Conflict: {TOKEN}"),
    "500": lambda service: service.goes_down(500),
    "network": lambda service: service.loses_network(),
    "silence": _becomes_silent,
}


@pytest.mark.parametrize("how", BREAKS)
async def test_no_error_and_no_log_line_holds_the_token(
    how: str, log_events: list[dict[str, Any]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0)
    caplog.set_level("DEBUG", "klaw")
    async with talking() as (service, bot, _):
        BREAKS[how](service)
        monkeypatch.setattr(module, "LATE_S", 0.2 if how == "silence" else 60.0)
        with pytest.raises(ChannelError) as raised:
            await bot.receive("1")
        shown = "".join(traceback.format_exception(raised.value)) + repr((raised.value, bot, log_events, caplog.text))
        assert "AAEmulated" not in shown
        assert raised.value.__cause__ is None


async def test_a_bot_api_server_of_ones_own_tells_where_files_lie_on_its_disk() -> None:
    async with talking() as (service, bot, anna):
        service.files_below = f"/var/lib/telegram-bot-api/{TOKEN}"
        await anna.sends_file("document", b"data", "a.bin")
        (file,) = (await heard(bot)).files
        assert b"".join([chunk async for chunk in bot.download(file)]) == b"data"
