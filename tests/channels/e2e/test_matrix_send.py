"""What Klaw sends, as people in Matrix rooms see it through a real homeserver."""

from contextlib import suppress

import pytest
import trio

from klaw.channels.messenger import (
    Button,
    ButtonPress,
    ConversationClosed,
    ConversationMoved,
    RefusedByMessenger,
    Unreachable,
)
from tests.support.matrix import MatrixAccount, account, together
from tests.support.services.synapse import Synapse
from tests.support.waiting import until

YES_NO = (Button(label="Allow", data="allow:1"), Button(label="Refuse", data="deny:1"))


async def post(klaw: MatrixAccount, conversation: str, markdown: str, key: str, **more) -> str:
    (part,) = klaw.matrix.render(markdown)
    return await klaw.matrix.post(conversation, part, key, **more)


async def test_answer_is_shown_with_its_formatting(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await post(klaw, room, f"**Да**, {anna.id}: `x < 1`", "k1")
        seen = await anna.sees(room, lambda text: "Да" in text)
        assert seen["content"] == {
            "msgtype": "m.text",
            "body": f"Да, {anna.id}: x < 1",
            "format": "org.matrix.custom.html",
            "formatted_body": f"<p><strong>Да</strong>, {anna.id}: <code>x &lt; 1</code></p>",
            "m.mentions": {},
        }


async def test_repeated_key_shows_nothing_twice_even_from_another_process(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        first = await post(klaw, room, "only once", "k/1?")
        await klaw.restart()
        assert await post(klaw, room, "only once", "k/1?") == first
        assert await anna.texts(room, klaw.person) == ["only once"]


async def test_answer_grows_by_edits(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        message = await post(klaw, room, "It is …", "k1")
        for number, text in enumerate(("It is a **cat** …", "It is a **cat**, I think.")):
            (part,) = klaw.matrix.render(text)
            await klaw.matrix.edit(room, message, part, f"k1-{number}")
        (seen,) = await anna.messages(room, klaw.person)
        assert seen["content"]["body"] == "It is a cat, I think."
        assert seen["content"]["formatted_body"] == "<p>It is a <strong>cat</strong>, I think.</p>"


async def test_longest_part_fits_into_an_event_also_as_edit(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        text = "".join(f'Абзац {number}: "ёжики" & <дикобразы>. Ещё слово.\n\n' for number in range(2_000))
        parts = klaw.matrix.render(text)
        message = await klaw.matrix.post(room, parts[0], "k0", buttons=YES_NO)
        await klaw.matrix.edit(room, message, parts[1], "k0-e")
        for number, part in enumerate(parts[1:], 1):
            await klaw.matrix.post(room, part, f"k{number}")
        seen = await anna.messages(room, klaw.person)
        assert len(seen) == len(parts)
        assert seen[0]["content"]["body"].startswith(parts[1].text)


async def test_thread_is_answered_in_the_thread(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        root = await anna.say(room, "the trip")
        message = await post(klaw, f"{room} {root}", "in here", "k1")
        (part,) = klaw.matrix.render("in here, again")
        await klaw.matrix.edit(f"{room} {root}", message, part, "k2")
        await klaw.matrix.working(f"{room} {root}")
        picture = await klaw.matrix.upload(f"{room} {root}", "a.png", "image/png", b"\x89PNG", "k3")
        answer = await anna.ask("GET", f"/_matrix/client/v1/rooms/{room}/relations/{root}/m.thread")
        assert {event["event_id"] for event in answer["chunk"]} == {message, picture}


@pytest.mark.parametrize(
    ("media_type", "voice", "msgtype"),
    [
        ("image/jpeg", False, "m.image"),
        ("audio/ogg", True, "m.audio"),
        ("audio/mpeg", False, "m.audio"),
        ("video/mp4", False, "m.video"),
        ("text/plain", False, "m.file"),
    ],
)
async def test_file_arrives_as_what_it_is(synapse: Synapse, media_type: str, voice: bool, msgtype: str) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        message = await klaw.matrix.upload(room, "Имя & co", media_type, b"some bytes", "k1", voice=voice)
        assert await klaw.matrix.upload(room, "Имя & co", media_type, b"some bytes", "k1", voice=voice) == message
        (seen,) = await anna.messages(room, klaw.person)
        content = seen["content"]
        assert (content["msgtype"], content["body"], content["filename"]) == (msgtype, "Имя & co", "Имя & co")
        assert content["info"] == {"mimetype": media_type, "size": 10}
        assert ("org.matrix.msc3245.voice" in content) is voice
        assert await anna.download(content["url"]) == b"some bytes"


async def test_file_larger_than_the_homeserver_takes_is_refused(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        with pytest.raises(RefusedByMessenger, match="at most 30,000,000 bytes"):
            await klaw.matrix.upload(room, "a", "text/plain", bytes(30_000_001), "k1")


async def test_buttons_are_reactions_that_people_tap(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        message = await post(klaw, room, "Run `ls`?", "k1", buttons=YES_NO)
        seen = await anna.sees(room, lambda text: "Run" in text)
        assert seen["content"]["body"] == "Run ls?\n\n✅ Allow\n❌ Refuse"
        assert seen["content"]["formatted_body"].endswith("<p>✅ Allow<br>❌ Refuse</p>")
        offered = [
            each["content"]["m.relates_to"] for each in await anna.timeline(room) if each["type"] == "m.reaction"
        ]
        assert [(each["event_id"], each["key"]) for each in offered] == [(message, "✅"), (message, "❌")]
        await klaw.restart()
        await anna.react(room, message, "🎉")
        await anna.react(room, message, "❌\ufe0f")
        pressed = await klaw.next(ButtonPress)
        assert (pressed.data, pressed.message, pressed.conversation.id) == ("deny:1", message, room)
        assert pressed.sender.id == anna.id
        assert sum(isinstance(event, ButtonPress) for event in klaw.events) == 1
        await klaw.matrix.confirm(pressed, "refused")


async def test_buttons_are_gone_after_an_edit_without_them(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        message = await post(klaw, room, "Run?", "k1", buttons=YES_NO)
        (part,) = klaw.matrix.render("Refused by Anna")
        await klaw.matrix.edit(room, message, part, "k2")
        await anna.react(room, message, "✅")
        three = tuple(Button(label=f"Number {number}", data=f"n:{number}") for number in range(3))
        other = await post(klaw, room, "Which?", "k3", buttons=three)
        await anna.react(room, other, "2\ufe0f\u20e3")
        pressed = await klaw.next(ButtonPress)
        assert (pressed.message, pressed.data) == (other, "n:1")


async def test_nobody_else_can_make_buttons(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        forged = await anna.say(room, "press me", **{"klaw.buttons": [{"key": "✅", "data": "allow:1"}]})
        await anna.react(room, forged, "✅")
        real = await post(klaw, room, "Run?", "k1", buttons=YES_NO)
        await anna.react(room, real, "✅")
        assert (await klaw.next(ButtonPress)).message == real


async def test_people_see_that_an_answer_is_being_written(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await klaw.matrix.working(room)

        async def shown() -> bool:
            await klaw.matrix.working(room)
            return klaw.person.id in await anna.typing(room)

        assert await until(shown)


async def test_room_without_the_bot_is_closed(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        await anna.kick(room, klaw.person)
        with pytest.raises(ConversationClosed, match=r"M_FORBIDDEN .*not in room"):
            await post(klaw, room, "hello?", "k1")
        with pytest.raises(ConversationClosed):
            await post(klaw, "!nowhere:klaw.test", "hello?", "k2")


async def test_upgraded_room_says_where_it_is_now(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna, preset="public_chat")
        upgraded = await anna.ask("POST", f"rooms/{room}/upgrade", {"new_version": "11"})
        while not klaw.matrix._rooms[room].successor:
            await klaw.receive()
        with pytest.raises(ConversationMoved) as moved:
            await post(klaw, room, "hello?", "k1")
        assert moved.value.to == upgraded["replacement_room"]
        await post(klaw, moved.value.to, "hello!", "k1")


async def test_homeserver_that_was_away_is_found_again(synapse: Synapse) -> None:
    async with account(synapse) as klaw:
        anna = await synapse.person("anna")
        room = await together(klaw, anna)
        synapse.stop()
        (part,) = klaw.matrix.render("are you back?")

        async def sent() -> str:
            with suppress(Unreachable):
                return await klaw.matrix.post(room, part, "k1")
            return ""

        with pytest.raises(Unreachable, match="Connection refused"):
            await klaw.matrix.post(room, part, "k1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(synapse.start)
            await until(sent)
        assert await anna.texts(room, klaw.person) == ["are you back?"]
