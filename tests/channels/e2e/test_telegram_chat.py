"""People talk with a real server in Telegram: a strict emulator of its Bot API stands for the service."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.channels.delivery import AGAIN
from klaw.cli.admin_call import RefusedByServer, call
from klaw.config.paths import Paths
from tests.support.llm_server import LlmServer, Text, Tool, Wait, serve_llm, text_reply, tool_reply
from tests.support.server import Server, served, write_home
from tests.support.services.imitation import json_reply
from tests.support.services.telegram import Chat, Person, Shown, TelegramService, serve_telegram
from tests.support.services.voice import OGG, VoiceService
from tests.support.waiting import until


@attrs.define
class World:
    server: Server
    telegram: TelegramService
    llm: LlmServer

    async def ask(self, operation: str, **args: Any) -> dict[str, Any]:
        """Carry out an operation as the operator."""
        paths = Paths.resolve(self.server.home, {})
        return await trio.to_thread.run_sync(lambda: call(paths, operation, timeout_s=120, **args))

    async def connect(self) -> dict[str, Any]:
        given = {"type": "telegram", "api_url": self.telegram.url, "token": self.telegram.token}
        return await self.ask("channels_add", **given, user="local")

    async def paired(self, name: str = "Anna", user: str = "local", language: str = "en") -> Person:
        """Somebody who came by the link of a user."""
        person = self.telegram.person(name, language)
        code = (await self.ask("channels_invite", name="telegram", user=user))["code"]
        await person.starts(code)
        await said(person.chat, "connected" if language == "en" else "подключены")
        return person


async def said(chat: Chat, words: str) -> Shown:
    """The message of the bot with these words, once it is there."""
    return await until(lambda: next((each for each in chat.of_bot if words in each.text), None))


@asynccontextmanager
async def telegram_world(home: Path, service: LlmServer | None = None, **sections: Any) -> AsyncIterator[World]:
    async with serve_llm(service) as llm, serve_telegram() as telegram:
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True, "images": False}}}
        async with served(write_home(home, providers={"stub": stub}, **sections)) as server:
            yield World(server, telegram, llm)


async def test_a_stranger_gets_a_code_and_is_let_in(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        made = await world.connect()
        assert made["bot"] == "@klaw_bot"
        assert made["code"] in made["url"]
        anna = world.telegram.person("Anna")
        await anna.says("Hello?")
        told = await said(anna.chat, "code is")
        code = told.text.split("Your code is ")[1][:8]
        await anna.says("Hello??")
        await until(lambda: not world.telegram.updates)  # they are taken, and were not stored
        world.llm.replies.append(text_reply("Good morning, Anna."))
        paired = await world.ask("channels_pair", code=code.lower(), user="anna")
        assert paired["user"] == "anna"
        assert paired["title"] == "Anna"
        await said(anna.chat, "You are connected")
        await anna.says("Good morning")
        await said(anna.chat, "Good morning, Anna.")
        assert len(anna.chat.of_bot) == 3  # the second Hello was not answered at all
        assert world.llm.requests[-1].last_user.endswith("Good morning")
        listed = await world.ask("channels_list")
        assert [each["bot"] for each in listed["channels"]] == ["@klaw_bot"]
        assert [(each["user"], each["chat"]) for each in listed["conversations"]] == [("anna", "Telegram")]
        assert world.telegram.refused == []
        assert world.telegram.token not in world.server.stderr


async def test_a_link_pairs_in_the_language_of_the_person(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        made = await world.connect()
        boris = world.telegram.person("Борис", "ru")
        world.llm.replies.append(text_reply("Привет, Борис!"))
        await boris.starts(made["code"])
        await said(boris.chat, "Готово, вы подключены")
        await boris.says("Привет")
        await said(boris.chat, "Привет, Борис!")
        clara = world.telegram.person("Clara")
        await clara.starts(made["code"])  # it was used up
        await said(clara.chat, "I do not know you yet")
        assert any(each["command"] == "remind" for each in world.telegram.commands["ru"])


async def test_an_answer_grows_and_stays_one_message(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        rest = trio.Event()
        steps = (Text("The **first** half"), Wait(rest), Text(" and the second."))
        world.llm.replies.append(attrs.evolve(text_reply(), steps=steps))
        await anna.says("Tell me")
        draft = await said(anna.chat, "The first half …")
        rest.set()
        await until(lambda: draft.text == "The first half and the second.")
        assert [each.id for each in anna.chat.of_bot].count(draft.id) == 1
        assert sum("first half" in each.text for each in anna.chat.of_bot) == 1


async def test_a_tool_asks_with_buttons(tmp_path: Path) -> None:
    async with telegram_world(tmp_path, tools={"exec": {"enabled": True, "sandbox": "none"}}) as world:
        await world.connect()
        anna = await world.paired()
        call_it = Tool(id="c1", name="host_exec", arguments=json.dumps({"command": "echo 'hello ``````'"}))
        world.llm.replies += [tool_reply(call_it), text_reply("It said hello.")]
        await anna.says("Run echo")
        asked = await said(anna.chat, "May I use host_exec")
        assert "hello ``````" in asked.text
        assert asked.labels == ["Allow", "Refuse"]
        await anna.presses(asked, "Allow")
        await said(anna.chat, "It said hello.")
        await until(lambda: "Allowed by Anna" in asked.text)
        assert not asked.buttons


async def test_a_group_is_a_user_of_its_own(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        world.llm.replies.append(text_reply("I will keep that to myself."))
        await anna.says("My secret is the word ostrich")
        await said(anna.chat, "keep that")
        group = world.telegram.group("Family")
        await group.adds_bot(anna)
        await anna.says("hello all", chat=group)
        await anna.says("@klaw_bot hello", chat=group)
        told = await said(group, "Its code is")
        code = told.text.split("Its code is ")[1][:8]
        paired = await world.ask("channels_pair", code=code)
        assert paired["group"]
        assert paired["user"].startswith("group-")
        await said(group, "This group is connected")
        world.llm.replies.append(text_reply("I know no secret of this group."))
        boris = world.telegram.person("Boris")
        await boris.says("The ostrich is none of the bot's business", chat=group)  # not addressed
        await boris.says("@klaw_bot what is the secret word?", chat=group)
        await said(group, "I know no secret")
        asked = world.llm.requests[-1]
        assert "ostrich" not in str(asked.body)
        assert "Boris: " in asked.last_user


async def test_what_was_said_while_klaw_was_dead_is_answered_once(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        await world.server.kill()
        await anna.says("Are you there?")
        world.llm.replies.append(text_reply("Here I am again."))
        await world.server.start()
        await said(anna.chat, "Here I am again.")
        assert sum("Here I am" in each.text for each in anna.chat.of_bot) == 1
        assert len(world.llm.requests) == 1


async def test_an_edited_question_is_answered_anew(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        world.llm.replies += [text_reply("Lima."), text_reply("Quito.")]
        asked = await anna.says("What is the capital of Peru?")
        await said(anna.chat, "Lima.")
        await anna.edits(asked, "What is the capital of Ecuador?")
        await said(anna.chat, "Quito.")
        assert "Peru" not in str(world.llm.requests[-1].body)


async def test_commands_chats_and_files(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        await anna.says("/chat Garden")
        await said(anna.chat, "You are now in the chat Garden")
        world.llm.replies.append(text_reply("A note about tomatoes."))
        await anna.sends_file("document", b"Tomatoes want sun.", "notes.txt", "text/plain", caption="What is this?")
        await said(anna.chat, "about tomatoes")
        assert "Tomatoes want sun." in str(world.llm.requests[-1].body)
        await anna.says("/help")
        await said(anna.chat, "Commands:")
        await anna.says("/chat")
        listed = await said(anna.chat, "Your chats:")
        assert "Garden" in listed.text
        found = await world.ask("chats_messages", chat="Garden", user="local")
        assert found["messages"][0]["content"] == "What is this?"
        assert found["messages"][0]["files"][0]["name"] == "notes.txt"


def is_degraded(status: dict[str, Any]) -> bool:
    return any("telegram" in each["text"] for each in status["degraded"])


@pytest.mark.parametrize("fault", ["loses_network", "goes_down"])
async def test_nothing_is_lost_while_the_service_is_away(tmp_path: Path, fault: str) -> None:
    assert AGAIN.pause_s(10_000) < 60  # however long that lasted, it is back in less than a minute
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        getattr(world.telegram, fault)()
        await world.server.status_when(is_degraded)
        await anna.says("Anybody?")
        world.llm.replies.append(text_reply("Yes, me."))
        world.telegram.comes_up()
        await said(anna.chat, "Yes, me.")
        await world.server.status_when(
            lambda status: not any("telegram" in each["text"] for each in status["degraded"])
        )


async def test_removing_an_account_ends_its_conversations(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        removed = await world.ask("channels_remove", name="telegram")
        assert [each["title"] for each in removed["ended"]] == ["Anna"]
        await said(anna.chat, "no longer connected")
        assert (await world.ask("channels_list"))["channels"] == []
        secrets = (world.server.home / "config" / "secrets.env").read_text()
        assert world.telegram.token not in secrets


async def test_topics_of_a_group_are_chats_and_a_supergroup_goes_on(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        group = world.telegram.group("Club")
        await group.adds_bot(anna)
        await anna.says("@klaw_bot hello", chat=group)
        code = (await said(group, "Its code is")).text.split("Its code is ")[1][:8]
        await world.ask("channels_pair", code=code)
        await said(group, "This group is connected")
        moved = await group.becomes_supergroup(anna)
        world.llm.replies.append(text_reply("Still here."))
        await anna.says("@klaw_bot are you here?", chat=moved)
        await said(moved, "Still here.")
        topic = await moved.creates_topic(anna, "Books")
        world.llm.replies.append(text_reply("About books."))
        await anna.says("@klaw_bot recommend one", chat=moved, topic=topic)
        answer = await said(moved, "About books.")
        assert answer.topic == topic
        found = (await world.ask("channels_list"))["conversations"]
        assert {each["chat"] for each in found if each["group"]} == {"Telegram", "Club Books"}
        assert len({each["user"] for each in found if each["group"]}) == 1


async def test_who_blocks_the_bot_gets_everything_when_they_come_back(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        await anna.blocks_bot()
        await until(lambda: not world.telegram.updates)
        await world.ask("remind", text="water the plants in 1 second", chat="Telegram", user="local")
        await stored(world, "water the plants")
        await anna.unblocks_bot()
        world.llm.replies.append(text_reply("Welcome back."))
        await anna.says("I am back")
        await said(anna.chat, "water the plants")
        await said(anna.chat, "Welcome back.")


async def test_results_wait_for_the_end_of_quiet_hours_and_reminders_do_not(tmp_path: Path) -> None:
    async with telegram_world(tmp_path, channels={"quiet": "00:00-23:59"}) as world:
        await world.connect()
        anna = await world.paired()
        world.llm.replies.append(text_reply("The weekly report."))
        fields = {"name": "report", "message": "Write the report", "every": "1d"}
        made = await world.ask("schedule_add", fields=fields, channel="telegram", user="local")
        assert made["task"]["inject_into"] == "Telegram"
        await world.ask("schedule_run", name="report", user="local")
        await stored(world, "The weekly report.")
        world.llm.replies.append(text_reply("Good evening."))
        assert not any("report" in each.text for each in anna.chat.of_bot)
        await anna.says("Hello")  # who writes is awake
        await said(anna.chat, "Good evening.")
        assert [each.text for each in anna.chat.of_bot][-2:] == ["The weekly report.", "Good evening."]
        await world.ask("remind", text="call Mum in 1 second", chat="Telegram", user="local")
        await said(anna.chat, "call Mum")


async def stored(world: World, words: str) -> None:
    """Wait until a message of Anna's chat has these words."""

    async def look() -> bool:
        try:
            found = await world.ask("chats_messages", chat="Telegram", user="local")
        except RefusedByServer:  # nothing was said there yet
            return False
        return any(words in each["content"] for each in found["messages"])

    await until(look, every_s=0.1)


async def test_an_older_message_is_corrected_without_an_answer(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        world.llm.replies += [text_reply("Noted."), text_reply("Yes.")]
        first = await anna.says("The key is under the mat")
        await said(anna.chat, "Noted.")
        await anna.says("Understood?")
        await said(anna.chat, "Yes.")
        await anna.edits(first, "The key is under the stone")
        await stored(world, "(edited) The key is under the stone")
        world.llm.replies.append(text_reply("Under the stone."))
        await anna.says("Where is the key?")
        await said(anna.chat, "Under the stone.")
        assert "(edited) The key is under the stone" in str(world.llm.requests[-1].body)
        assert len(world.llm.requests) == 3


async def test_a_voice_message_is_heard_and_answered_with_voice(tmp_path: Path) -> None:
    service = VoiceService()
    voice = {"transcribe": "stub/whisper-1", "speak": "stub/tts-1"}
    async with telegram_world(tmp_path, service, voice=voice) as world:
        await world.connect()
        anna = await world.paired(language="ru")
        await world.ask("config_set", values={"channels.accounts.telegram.speak": True})
        service.heard[OGG] = "Какая столица Перу?"
        service.answer = lambda _: text_reply("**Лима.**")  # also to the trial calls of the start
        await anna.sends_file("voice", OGG)
        await said(anna.chat, "Лима.")
        spoken = await until(lambda: next((each for each in anna.chat.of_bot if each.file is not None), None))
        assert spoken.file is not None
        assert spoken.file.kind == "voice"
        found = (await world.ask("chats_messages", chat="Telegram", user="local"))["messages"]
        asked = next(each for each in found if each["role"] == "user")
        assert (asked["content"], asked["transcribed"]) == ("Какая столица Перу?", True)
        assert asked["files"][0]["type"] == "audio/ogg"


async def test_without_a_model_that_hears_klaw_says_how_to_get_one(tmp_path: Path) -> None:
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        await anna.sends_file("voice", OGG)
        told = await said(anna.chat, "Klaw cannot listen yet")
        assert "voice.transcribe" in told.text
        await until(lambda: not world.telegram.updates)
        assert world.llm.requests == []


async def test_a_picture_of_an_answer_is_shown(tmp_path: Path) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    message = {
        "role": "assistant",
        "content": "Here.",
        "images": [{"image_url": {"url": f"data:image/png;base64,{pixel}"}}],
    }
    body = {
        "id": "1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    async with telegram_world(tmp_path) as world:
        await world.connect()
        anna = await world.paired()
        world.llm.replies.append(json_reply(body))
        await anna.says("Draw a dot")
        await said(anna.chat, "Here.")
        shown = await until(lambda: next((each for each in anna.chat.of_bot if each.file is not None), None))
        assert shown.file is not None
        assert shown.file.kind == "photo"
