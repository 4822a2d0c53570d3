"""What people do in Matrix rooms, as Klaw is told it by a real homeserver."""

import attrs
import pytest

from klaw.channels.messenger import (
    BotInvited,
    BotRemoved,
    IncomingMessage,
    MessageDeletion,
    NewConversationId,
    RefusedByMessenger,
)
from tests.support.matrix import account, together
from tests.support.services.synapse import Synapse


async def bytes_of(pieces) -> bytes:
    return b"".join([piece async for piece in pieces])


async def test_message_tells_who_says_what_and_where(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        await anna.rename("Anna Ёлкина")
        room = await together(klaw, anna, name="Kitchen")
        await anna.say(room, "Привет, Klaw 👋")
        said = await klaw.next(IncomingMessage)
        assert said.text == "Привет, Klaw 👋"
        assert said.conversation.id == room
        assert said.conversation.title == "Kitchen"
        assert not said.conversation.group
        assert said.addressed
        assert (said.sender.id, said.sender.name) == (anna.id, "Anna Ёлкина")
        assert said.id.startswith("mx:")
        assert len(said.id) == 27
        assert said.edits is None


async def test_invitation_is_reported_and_what_was_said_since_is_received(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await anna.create_room(name="Ours", is_direct=True)
        await anna.say(room, "long before")
        await anna.invite(room, klaw.person)
        await anna.say(room, "are you there?")
        joined = await klaw.next(BotInvited)
        assert joined.conversation.id == room
        assert joined.sender.id == anna.id
        assert not joined.unreadable
        await klaw.matrix.join(room)
        assert (await klaw.next(IncomingMessage)).text == "are you there?"
        assert "long before" not in [getattr(event, "text", "") for event in klaw.events]


async def test_invitation_into_a_group_is_told_again_once_the_group_is_seen(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna, boris = await synapse.person("anna"), await synapse.person("boris")
        room = await anna.create_room(invite=[boris, klaw.person])
        assert not (await klaw.next(BotInvited)).conversation.group
        await klaw.matrix.join(room)
        joined = await klaw.next(BotInvited)
        assert joined.conversation.group
        assert joined.sender.id == anna.id


async def test_invitation_that_stood_before_the_first_start_is_reported(synapse: Synapse) -> None:
    anna, klaw = await synapse.person("anna"), await synapse.person("klaw")
    room = await anna.create_room(invite=[klaw])
    async with account(synapse) as other:
        other.matrix._server._token = klaw.token
        await other.matrix.open()
        batch = await other.matrix.receive(None)
    assert [event.conversation.id for event in batch.events] == [room]


async def test_message_from_before_the_first_start_is_not_received(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.say(room, "earlier")
        klaw.position = None
        await klaw.restart()
        await klaw.receive()
        await anna.say(room, "later")
        assert (await klaw.next(IncomingMessage)).text == "later"


async def test_all_messages_of_an_outage_are_received_in_order(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        wanted = [f"number {number}" for number in range(250)]
        for text in wanted:
            await anna.say(room, text)
        await klaw.restart()
        received = [(await klaw.next(IncomingMessage)).text for _ in wanted]
        assert received == wanted
        assert klaw.events[-1].sender.id == anna.id


async def test_batch_that_was_not_stored_comes_again_with_the_same_ids(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.say(room, "once")
        before, first = klaw.position, await klaw.next(IncomingMessage)
        klaw.position = before
        await klaw.restart()
        assert await klaw.next(IncomingMessage) == first


async def test_file_is_received_with_its_bytes_and_caption(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.send_file(room, b"\x89PNG picture", "image/png", "Кот.png", "m.image")
        said = await klaw.next(IncomingMessage)
        (file,) = said.files
        assert (said.text, file.name, file.type, file.bytes, file.voice) == ("", "Кот.png", "image/png", 12, False)
        assert await bytes_of(klaw.matrix.download(file)) == b"\x89PNG picture"
        await anna.send_file(room, b"%PDF", "application/pdf", "what is this?", filename="a.pdf")
        said = await klaw.next(IncomingMessage)
        assert (said.text, said.files[0].name) == ("what is this?", "a.pdf")


async def test_voice_message_is_marked_as_one(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        voice = {"org.matrix.msc3245.voice": {}}
        await anna.send_file(room, b"OggS", "audio/ogg", "Voice message", "m.audio", **voice)
        (file,) = (await klaw.next(IncomingMessage)).files
        assert file.voice


async def test_file_that_is_too_large_or_gone_is_refused(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.send_file(room, b"a" * 20_000_001, "application/zip", "big.zip")
        (file,) = (await klaw.next(IncomingMessage)).files
        with pytest.raises(RefusedByMessenger, match="20,000,000 bytes"):
            await bytes_of(klaw.matrix.download(file))
        with pytest.raises(RefusedByMessenger, match="M_NOT_FOUND"):
            await bytes_of(klaw.matrix.download(attrs.evolve(file, place="mxc://klaw.test/nothing")))


async def test_edit_names_the_message_that_it_replaces(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        message = await anna.say(room, "at seven")
        first = await klaw.next(IncomingMessage)
        await anna.edit(room, message, "at eight")
        second = await klaw.next(IncomingMessage)
        assert (second.text, second.edits) == ("at eight", first.id)
        assert second.id != first.id


async def test_edit_of_what_another_person_said_is_not_received(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna, mallory = await synapse.person("anna"), await synapse.person("mallory")
        room = await together(klaw, anna, mallory)
        message = await anna.say(room, "yes")
        await mallory.edit(room, message, "no")
        await anna.say(room, "over")
        await klaw.next(IncomingMessage, lambda said: said.text == "over")
        assert not any(getattr(event, "edits", None) for event in klaw.events)


async def test_redaction_names_the_message(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        message = await anna.say(room, "a secret")
        said = await klaw.next(IncomingMessage)
        await anna.redact(room, message)
        removed = await klaw.next(MessageDeletion, lambda removed: removed.id == said.id)
        assert removed.conversation.id == room


async def test_thread_is_a_conversation_of_its_own(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        root = await anna.say(room, "about the trip")
        await klaw.next(IncomingMessage)
        message = await anna.say_in_thread(room, root, "which day?")
        said = await klaw.next(IncomingMessage)
        assert (said.conversation.id, said.text) == (f"{room} {root}", "which day?")
        await anna.edit(room, message, "which week?")
        assert (await klaw.next(IncomingMessage)).conversation.id == f"{room} {root}"


async def test_reply_quotes_what_it_replies_to(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        message = await anna.say(room, "line one\nline two")
        await anna.reply(room, message, "> <@anna:klaw.test> line one\n> line two\n\nand then?")
        assert (await klaw.next(IncomingMessage, lambda said: "then" in said.text)).text == (
            "> line one\n> line two\n\nand then?"
        )
        await anna.edit(room, message, "ы" * 1000)
        await anna.reply(room, message, "so long")
        said = await klaw.next(IncomingMessage, lambda said: "so long" in said.text)
        assert said.text == f"> {'ы' * 299}…\n\nso long"
        await anna.reply(room, message, "/new")
        assert (await klaw.next(IncomingMessage, lambda said: "new" in said.text)).text == "/new"


async def test_forms_other_than_text_come_as_text(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        place = {"msgtype": "m.location", "body": "Home", "geo_uri": "geo:52.5,13.4"}
        await anna.send(room, place)
        assert (await klaw.next(IncomingMessage)).text == "Location: Home, geo:52.5,13.4"
        await anna.send(room, {"msgtype": "m.emote", "body": "waves"})
        assert (await klaw.next(IncomingMessage)).text == f"* {anna.name} waves"
        await anna.send(room, {"body": "a cat", "url": "mxc://klaw.test/a", "info": {}}, "m.sticker")
        assert (await klaw.next(IncomingMessage)).text == "Sticker: a cat"
        poll = {"org.matrix.msc1767.text": "Tea?\n1. yes\n2. no", "org.matrix.msc3381.poll.start": {}}
        await anna.send(room, poll, "org.matrix.msc3381.poll.start")
        assert (await klaw.next(IncomingMessage)).text == "Poll: Tea?\n1. yes\n2. no"
        await anna.send(room, {"m.text": [{"body": "Coffee?\n1. yes"}], "m.poll": {}}, "m.poll.start")
        assert (await klaw.next(IncomingMessage)).text == "Poll: Coffee?\n1. yes"


async def test_notices_of_other_bots_and_own_messages_are_not_received(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.send(room, {"msgtype": "m.notice", "body": "I am a bot"})
        await klaw.person.say(room, "I am Klaw")
        await anna.say(room, "last")
        assert (await klaw.next(IncomingMessage)).text == "last"


async def test_room_of_three_is_a_group_and_one_of_two_is_not(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna, boris = await synapse.person("anna"), await synapse.person("boris")
        room = await together(klaw, anna)
        await klaw.restart()
        await anna.say(room, "alone")
        assert not (await klaw.next(IncomingMessage)).conversation.group
        await anna.invite(room, boris)
        await anna.say(room, "somebody will come")
        assert (await klaw.next(IncomingMessage)).conversation.group
        await klaw.restart()
        await anna.say(room, "after a restart")
        assert (await klaw.next(IncomingMessage)).conversation.group
        await boris.leave(room)
        await anna.say(room, "alone again")
        assert not (await klaw.next(IncomingMessage)).conversation.group


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("nothing for anybody", None),
        ("klawdia is somebody else", None),
        ("ask {name} about it", "ask {name} about it"),
        ("{id}: /status", "/status"),
        ("!new", "/new"),
        ("/new", "/new"),
        ("!nobody knows this", None),
        ("Клешня, привет", "Клешня, привет"),
    ],
)
async def test_group_addresses_the_bot_by_name_or_command(synapse: Synapse, text: str, becomes: str | None) -> None:
    async with account(synapse) as klaw:
        await klaw.person.rename("Клешня")
        await klaw.restart()
        await klaw.matrix.show_commands({"en": {"new": "Start fresh", "status": "Show the state"}})
        anna, boris = await synapse.person("anna"), await synapse.person("boris")
        room = await together(klaw, anna, boris)
        places = {"name": klaw.person.name, "id": klaw.person.id}
        await anna.say(room, text.format(**places))
        said = await klaw.next(IncomingMessage)
        assert said.addressed is (becomes is not None)
        assert said.text == (becomes or text).format(**places)


async def test_group_addresses_the_bot_by_mention_and_reply(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna, boris = await synapse.person("anna"), await synapse.person("boris")
        room = await together(klaw, anna, boris)
        await anna.say(room, "you there", **{"m.mentions": {"user_ids": [klaw.person.id]}})
        assert (await klaw.next(IncomingMessage)).addressed
        link = f'<a href="https://matrix.to/#/{klaw.person.id}">the bot</a> knows'
        await anna.say(room, "the bot knows", format="org.matrix.custom.html", formatted_body=link)
        assert (await klaw.next(IncomingMessage)).addressed
        own = await klaw.person.say(room, "I said it")
        await boris.reply(room, own, "really?")
        assert (await klaw.next(IncomingMessage)).addressed
        other = await anna.say(room, "to nobody")
        assert not (await klaw.next(IncomingMessage)).addressed
        await boris.reply(room, other, "to Anna")
        assert not (await klaw.next(IncomingMessage)).addressed


async def test_encrypted_room_is_reported_once(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await anna.create_room(invite=[klaw.person], encrypted=True)
        joined = await klaw.next(BotInvited)
        assert joined.unreadable
        await klaw.matrix.join(room)
        await anna.send(room, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AwgA"}, "m.room.encrypted")
        plain = await together(klaw, anna)
        assert sum(isinstance(event, BotInvited) and event.unreadable for event in klaw.events) == 1
        await anna.set_state(plain, "m.room.encryption", {"algorithm": "m.megolm.v1.aes-sha2"})
        later = await klaw.next(BotInvited)
        assert (later.conversation.id, later.unreadable) == (plain, True)


async def test_bot_that_was_removed_learns_it(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.kick(room, klaw.person)
        assert (await klaw.next(BotRemoved)).conversation == room
        await anna.invite(room, klaw.person)
        assert (await klaw.next(BotInvited)).conversation.id == room
        await klaw.matrix.leave(room)
        assert (await klaw.next(BotRemoved)).conversation == room


async def test_bot_that_is_left_alone_learns_it(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.leave(room)
        assert (await klaw.next(BotRemoved)).conversation == room


async def test_bot_follows_an_upgraded_room(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna, preset="public_chat")
        upgraded = await anna.ask("POST", f"rooms/{room}/upgrade", {"new_version": "11"})
        moved = await klaw.next(NewConversationId)
        assert (moved.conversation, moved.to) == (room, upgraded["replacement_room"])
        await anna.say(moved.to, "here we are")
        assert (await klaw.next(IncomingMessage)).conversation.id == moved.to


async def test_bot_follows_an_upgraded_private_room_once_it_is_invited(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna, room_version="11")
        upgraded = await anna.ask("POST", f"rooms/{room}/upgrade", {"new_version": "11"})
        await klaw.restart()
        await anna.invite(upgraded["replacement_room"], klaw.person)
        moved = await klaw.next(NewConversationId)
        assert (moved.conversation, moved.to) == (room, upgraded["replacement_room"])
        assert not any(isinstance(event, BotInvited) for event in klaw.events[-3:])
