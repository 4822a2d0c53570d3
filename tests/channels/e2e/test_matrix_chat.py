"""People talk with a real server in rooms of a real Matrix homeserver."""

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from tests.support.llm_server import (
    LlmServer,
    Pause,
    Recorded,
    Reply,
    Text,
    Tool,
    Wait,
    serve_llm,
    text_reply,
    tool_reply,
)
from tests.support.server import Server, served, write_home
from tests.support.services.synapse import Person, Synapse
from tests.support.waiting import until


@attrs.define
class World:
    server: Server
    synapse: Synapse
    llm: LlmServer
    klaw: Person

    async def ask(self, operation: str, **args: Any) -> dict[str, Any]:
        """Carry out an operation as the operator."""
        paths = Paths.resolve(self.server.home, {})
        return await trio.to_thread.run_sync(lambda: call(paths, operation, timeout_s=120, **args))

    async def connect(self) -> dict[str, Any]:
        given = {"type": "matrix", "homeserver": self.synapse.url, "token": self.klaw.token}
        return await self.ask("channels_add", **given, user="local")

    async def invited(self, person: Person, **room: Any) -> str:
        """A room of a person, which Klaw has joined."""
        made = await person.create_room(invite=[self.klaw], **room)
        await until(lambda: self.is_in(person, made), every_s=0.1)
        return made

    async def is_in(self, person: Person, room: str) -> bool:
        return self.klaw.id in (await person.ask("GET", f"rooms/{room}/joined_members"))["joined"]

    async def paired(self, name: str = "anna", user: str = "local") -> tuple[Person, str]:
        """Somebody with the code of a user, and their room."""
        person = await self.synapse.person(name)
        room = await self.invited(person)
        await person.say(room, (await self.ask("channels_invite", name="matrix", user=user))["code"])
        await self.says(person, room, "You are connected")
        return person, room

    async def says(self, person: Person, room: str, words: str) -> dict[str, Any]:
        """The message of Klaw with these words, once a person sees it."""
        return await person.sees(room, lambda text: words in text, self.klaw)

    async def count(self, person: Person, room: str, words: str) -> int:
        return sum(words in text for text in await person.texts(room, self.klaw))


@asynccontextmanager
async def matrix_world(home: Path, synapse: Synapse, **sections: Any) -> AsyncIterator[World]:
    klaw = await synapse.person("klaw")
    async with serve_llm() as llm:
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True, "images": False}}}
        async with served(write_home(home, providers={"stub": stub}, **sections)) as server:
            world = World(server, synapse, llm, klaw)
            await world.connect()
            yield world
        assert klaw.token not in server.stderr
        assert server.events("event_not_taken") == []


async def test_a_stranger_gets_a_code_and_is_let_in(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna = await synapse.person("anna")
        room = await world.invited(anna)
        await anna.say(room, "Hello?")
        told = await world.says(anna, room, "code is")
        code = told["content"]["body"].split("code is ")[1][:8]
        await anna.say(room, "Hello??")
        paired = await world.ask("channels_pair", code=code.lower(), user="anna")
        assert paired["user"] == "anna"
        assert paired["title"] == anna.name
        await world.says(anna, room, "You are connected")
        world.llm.replies.append(text_reply("Good morning, **Anna**."))
        await anna.say(room, "Good morning")
        answer = await world.says(anna, room, "Good morning, Anna.")
        assert answer["content"]["formatted_body"] == "<p>Good morning, <strong>Anna</strong>.</p>"
        assert await world.count(anna, room, "code is") == 1
        assert world.llm.requests[-1].last_user.endswith("Good morning")


async def test_russian_is_spoken_with_who_writes_russian(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        boris = await synapse.person("boris")
        await boris.rename("Борис")
        room = await world.invited(boris)
        await boris.say(room, "Привет")
        await world.says(boris, room, "Ваш код")


async def test_an_answer_grows_and_stays_one_message(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        rest = trio.Event()
        steps = (Text("The **first** half"), Wait(rest), Text(" and the second."))
        world.llm.replies.append(attrs.evolve(text_reply(), steps=steps))
        await anna.say(room, "Tell me")
        draft = await world.says(anna, room, "The first half …")
        rest.set()
        answer = await world.says(anna, room, "The first half and the second.")
        assert answer["event_id"] == draft["event_id"]
        assert await world.count(anna, room, "first") == 1


async def test_files_go_both_ways(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        world.llm.replies.append(text_reply("A note about tomatoes."))
        await anna.send_file(room, b"Tomatoes want sun.", "text/plain", "What is this?", filename="notes.txt")
        await world.says(anna, room, "about tomatoes")
        assert "Tomatoes want sun." in str(world.llm.requests[-1].body)
        found = await world.ask("chats_messages", chat="Matrix", user="local")
        (asked,) = [each for each in found["messages"] if each["content"] == "What is this?"]
        assert [each["name"] for each in asked["files"]] == ["notes.txt"]


async def test_a_tool_asks_with_reactions(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse, tools={"exec": {"enabled": True, "sandbox": "none"}}) as world:
        anna, room = await world.paired()
        call_it = Tool(id="c1", name="host_exec", arguments='{"command": "echo hello"}')
        world.llm.replies += [tool_reply(call_it), text_reply("It said hello.")]
        await anna.say(room, "Run echo")
        asked = await world.says(anna, room, "May I use host_exec")
        assert "echo hello" in asked["content"]["body"]
        assert asked["content"]["body"].endswith("✅ Allow\n❌ Refuse")
        await anna.react(room, asked["event_id"], "✅")
        await world.says(anna, room, "It said hello.")
        over = await world.says(anna, room, f"Allowed by {anna.name}")
        assert over["event_id"] == asked["event_id"]


async def test_a_thread_is_a_chat_of_its_own(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        world.llm.replies += [text_reply("Noted."), text_reply("In the thread.")]
        root = await anna.say(room, "The word is ostrich")
        await world.says(anna, room, "Noted.")
        await anna.say_in_thread(room, root, "Which word?")
        answer = await world.says(anna, room, "In the thread.")
        assert answer["content"]["m.relates_to"]["event_id"] == root
        assert answer["content"]["m.relates_to"]["rel_type"] == "m.thread"
        links = (await world.ask("channels_list"))["conversations"]
        assert len({each["chat"] for each in links}) == 2


async def test_two_people_have_nothing_of_each_other(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, of_anna = await world.paired("anna", "anna")
        boris, of_boris = await world.paired("boris", "boris")
        world.llm.replies += [text_reply("I keep it."), text_reply("I know nothing of it.")]
        await anna.say(of_anna, "My secret is the word ostrich")
        await world.says(anna, of_anna, "I keep it.")
        await boris.say(of_boris, "What is the secret word?")
        await world.says(boris, of_boris, "I know nothing of it.")
        assert "ostrich" not in str(world.llm.requests[-1].body)


async def test_a_group_is_a_user_of_its_own(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        boris = await synapse.person("boris")
        world.llm.replies.append(text_reply("I will keep that to myself."))
        await anna.say(room, "My secret is the word ostrich")
        await world.says(anna, room, "keep that")
        group = await world.invited(anna, name="Family")
        await anna.invite(group, boris)
        await boris.join(group)
        await anna.say(group, "hello all")
        await anna.say(group, f"{world.klaw.name}: hello")
        told = await world.says(anna, group, "Its code is")
        paired = await world.ask("channels_pair", code=told["content"]["body"].split("code is ")[1][:8])
        assert paired["group"]
        assert paired["user"].startswith("group-")
        await world.says(anna, group, "This group is connected")
        world.llm.replies.append(text_reply("I know no secret of this group."))
        await boris.say(group, "The ostrich is none of the bot's business")  # not addressed
        await boris.say(group, f"what is the secret word, {world.klaw.name}?")
        await world.says(boris, group, "I know no secret")
        asked = world.llm.requests[-1]
        assert "ostrich" not in str(asked.body)
        assert f"{boris.name}: " in asked.last_user


async def test_a_group_of_strangers_is_left(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, boris = await synapse.person("anna"), await synapse.person("boris")
        group = await anna.create_room(invite=[boris, world.klaw])

        async def has_left() -> bool:
            events = await anna.timeline(group)
            own = [each for each in events if each.get("state_key") == world.klaw.id]
            return [each["content"]["membership"] for each in own] == ["invite", "join", "leave"]

        await until(has_left, every_s=0.1)


async def test_a_third_person_ends_what_is_private(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        mallory = await synapse.person("mallory")
        world.llm.replies.append(text_reply("I keep it."))
        await anna.say(room, "My secret is the word ostrich")
        await world.says(anna, room, "I keep it.")
        await anna.invite(room, mallory)
        await mallory.join(room)
        await world.says(mallory, room, "no longer connected")  # before anybody has said anything
        await mallory.say(room, f"{world.klaw.name}: what is the secret?")
        await world.says(mallory, room, "Its code is")
        assert len(world.llm.requests) == 1


async def test_who_came_in_while_klaw_was_down_reads_nothing_private(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        mallory = await synapse.person("mallory")
        await world.server.kill()
        await anna.invite(room, mallory)
        await mallory.join(room)
        await world.server.start()
        await world.says(mallory, room, "no longer connected")  # before anybody has said anything


async def test_an_edited_question_is_answered_anew(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        world.llm.replies += [text_reply("Lima."), text_reply("Quito.")]
        asked = await anna.say(room, "What is the capital of Peru?")
        await world.says(anna, room, "Lima.")
        await anna.edit(room, asked, "What is the capital of Ecuador?")
        await world.says(anna, room, "Quito.")
        assert "Peru" not in str(world.llm.requests[-1].body)


async def test_a_deleted_message_is_told_to_be_still_there(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        world.llm.replies.append(text_reply("Noted."))
        message = await anna.say(room, "The word is ostrich")
        await world.says(anna, room, "Noted.")
        await anna.redact(room, message)
        await world.says(anna, room, "You deleted a message here")


async def test_commands_begin_with_either_sign(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        await anna.say(room, "!chat Garden")
        await world.says(anna, room, "You are now in the chat Garden")
        await anna.say(room, "/help")
        await world.says(anna, room, "Commands:")


async def test_an_encrypted_room_is_refused_in_words(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna = await synapse.person("anna")
        room = await world.invited(anna, encrypted=True)
        await world.says(anna, room, "I cannot read encrypted messages")
        await anna.send(room, {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AwgA"}, "m.room.encrypted")
        plain = await world.invited(anna)
        await anna.say(plain, "Hello?")
        await world.says(anna, plain, "code is")
        assert await world.count(anna, room, "cannot read") == 1


async def test_the_homeserver_was_away(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        synapse.stop()
        await world.server.status_when(lambda status: any("matrix" in each["text"] for each in status["degraded"]))
        world.llm.replies.append(text_reply("Yes, me."))
        await synapse.start()
        await anna.say(room, "Anybody?")
        await world.says(anna, room, "Yes, me.")
        await world.server.status_when(lambda status: not any("matrix" in each["text"] for each in status["degraded"]))


async def test_what_was_said_while_klaw_was_dead_is_answered_once(tmp_path: Path, synapse: Synapse) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        anna, room = await world.paired()
        await world.server.kill()
        await anna.say(room, "Are you there?")
        world.llm.replies.append(text_reply("Here I am again."))
        await world.server.start()
        await world.says(anna, room, "Here I am again.")
        assert await world.count(anna, room, "Here I am") == 1
        assert len(world.llm.requests) == 1


async def test_an_invitation_while_klaw_was_dead_for_the_first_time_is_accepted(
    tmp_path: Path, synapse: Synapse
) -> None:
    async with matrix_world(tmp_path, synapse) as world:
        await world.server.kill()
        anna = await synapse.person("anna")
        room = await anna.create_room(invite=[world.klaw])
        await anna.say(room, "Hello?")
        await world.server.start()
        await world.says(anna, room, "code is")


async def test_kills_double_and_lose_nothing(tmp_path: Path, synapse: Synapse) -> None:
    """The environment's KLAW_TEST_KILLS says how many, KLAW_TEST_PEOPLE how many talk meanwhile."""
    kills, many = int(os.environ.get("KLAW_TEST_KILLS", "3")), int(os.environ.get("KLAW_TEST_PEOPLE", "2"))
    chance = random.Random(7)
    async with matrix_world(tmp_path, synapse) as world:
        talks = [await world.paired(f"p{number}", f"user{number}") for number in range(many)]
        greeted = [len(await person.texts(room, world.klaw)) for person, room in talks]

        def answer(request: Recorded) -> Reply:
            about = request.last_user.split()[-1]
            steps = Text("An answer "), Pause(chance.random()), Text(f"to {about}.")
            return attrs.evolve(text_reply(), steps=steps)

        world.llm.respond = answer
        asked: list[list[str]] = [[] for _ in talks]
        over = trio.Event()

        async def talk(number: int) -> None:
            person, room = talks[number]
            while not over.is_set():
                asked[number].append(f"question q{len(asked[number])}")
                await person.say(room, asked[number][-1])
                await trio.sleep(chance.random() * many)

        async with trio.open_nursery() as nursery:
            for number in range(many):
                nursery.start_soon(talk, number)
            for _ in range(kills):
                await trio.sleep(0.3 + 2 * chance.random())
                await world.server.kill()
                await world.server.start()
            over.set()
        for number, (person, room) in enumerate(talks):
            await person.say(room, "question qlast")
            await world.says(person, room, "to qlast.")
            page = await world.ask("chats_messages", chat="Matrix", user=f"user{number}", limit=200)
            questions = [each["content"] for each in page["messages"] if each["role"] == "user"]
            assert questions == [*asked[number], "question qlast"]
            answers = [each["content"] for each in page["messages"] if each["role"] == "assistant"]
            told = await person.texts(room, world.klaw)
            assert told[greeted[number] :] == answers
