"""Channel drill: kill a server again and again while people talk with it in a messenger, and prove that every message
is stored and answered once, and in order.

    python tools/channel_drill.py [--messenger telegram|matrix] [--kills 100] [--people 10] [--seed N] [--json]

Each person writes their next message when the last one is answered; the LLM, a stub in the drill's own process, answers
slowly with the message it was asked. The server is killed (SIGKILL) at a random moment and started again. In the end:
each message stands in its chat once and in order, each is answered once there, and people saw each answer, in order.
An answer that a person saw twice is counted; a service without keys for repetitions may have one for each kill.
Telegram is the strict emulator of the tests, Matrix a real Synapse (``make test-matrix`` makes it). Exit code 0: all of
that holds; 1: it does not.
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from tests.support.llm_server import Pause, Recorded, Reply, Text, serve_llm, text_reply
from tests.support.server import Server, served, write_home
from tests.support.services import synapse
from tests.support.services.telegram import Person, serve_telegram
from tests.support.waiting import until

LOAD_S = (0.2, 2.5)
"""How long the server works before it is killed."""
LOOK_S = 0.1
SAID = re.compile(r"(\w+) says (\d+)")


class Talker(Protocol):
    """A person in a messenger."""

    name: str

    async def pair(self, code: str) -> None: ...
    async def says(self, text: str) -> None: ...

    async def seen(self) -> Sequence[str]:
        """What the bot has said to them, as it reads now, in order."""
        ...


@attrs.define(kw_only=True)
class Messenger:
    type: str
    token: str
    address: dict[str, str]
    people: Sequence[Talker]


@attrs.define
class _InTelegram:
    person: Person

    @property
    def name(self) -> str:
        return self.person.name

    async def pair(self, code: str) -> None:
        await self.person.starts(code)

    async def says(self, text: str) -> None:
        await self.person.says(text)

    async def seen(self) -> Sequence[str]:
        return [each.text for each in self.person.chat.of_bot]


@asynccontextmanager
async def telegram(count: int) -> AsyncIterator[Messenger]:
    async with serve_telegram() as service:
        people = [_InTelegram(service.person(f"P{number}")) for number in range(count)]
        yield Messenger(type="telegram", token=service.token, address={"api_url": service.url}, people=people)


@attrs.define
class _InMatrix:
    person: synapse.Person
    klaw: synapse.Person
    name: str
    room: str = ""

    async def pair(self, code: str) -> None:
        self.room = await self.person.create_room(invite=[self.klaw])
        await until(self._is_joined, every_s=LOOK_S)
        await self.says(code)

    async def _is_joined(self) -> bool:
        members = await self.person.ask("GET", f"rooms/{self.room}/joined_members")
        return self.klaw.id in members["joined"]

    async def says(self, text: str) -> None:
        await self.person.say(self.room, text)

    async def seen(self) -> Sequence[str]:
        return await self.person.texts(self.room, self.klaw)


@asynccontextmanager
async def matrix(count: int) -> AsyncIterator[Messenger]:
    environment = synapse.environment()
    if environment is None:
        raise SystemExit(synapse.MISSING)
    with tempfile.TemporaryDirectory(prefix="klaw-synapse-") as folder:
        homeserver = synapse.Synapse(environment, Path(folder))
        try:
            await homeserver.start()
            klaw = await homeserver.person("klaw")
            people = [_InMatrix(await homeserver.person("p"), klaw, f"P{number}") for number in range(count)]
            yield Messenger(type="matrix", token=klaw.token, address={"homeserver": homeserver.url}, people=people)
        finally:
            homeserver.stop()


def messenger(kind: str, count: int) -> AbstractAsyncContextManager[Messenger]:
    return matrix(count) if kind == "matrix" else telegram(count)


def answer(request: Recorded) -> Reply:
    """Word by word what was asked, in about half a second."""
    found = SAID.findall(request.last_user)
    name, number = found[-1] if found else ("?", "0")
    return attrs.evolve(text_reply(), steps=(Text(f"{name} heard"), Pause(0.4), Text(f" {number}")))


@attrs.define(kw_only=True)
class Drill:
    server: Server
    messenger: Messenger
    kills: int
    random: random.Random
    over: bool = False
    said: Counter[str] = attrs.field(factory=Counter)

    async def ask(self, operation: str, **args: Any) -> dict[str, Any]:
        paths = Paths.resolve(self.server.home, {})
        return await trio.to_thread.run_sync(lambda: call(paths, operation, timeout_s=120, **args))

    async def pair(self) -> None:
        given = {"type": self.messenger.type, "token": self.messenger.token, **self.messenger.address}
        await self.ask("channels_add", **given, user="local")
        for person in self.messenger.people:
            invited = await self.ask("channels_invite", name=self.messenger.type, user=person.name.lower())
            await person.pair(invited["code"])
            await self.sees(person, re.compile("You are connected"))

    async def run(self) -> None:
        await self.pair()
        async with trio.open_nursery() as nursery:
            for person in self.messenger.people:
                nursery.start_soon(self._talk, person)
            for _ in range(self.kills):
                await trio.sleep(self.random.uniform(*LOAD_S))
                await self.server.kill()
                await self.server.start()
            self.over = True

    async def _talk(self, person: Talker) -> None:
        while not self.over:
            number = self.said[person.name] + 1
            await person.says(f"{person.name} says {number}")
            self.said[person.name] = number
            await self.sees(person, re.compile(f"{person.name} heard {number}$"))

    async def sees(self, person: Talker, words: re.Pattern[str]) -> None:
        async def look() -> bool:
            return any(map(words.search, await person.seen()))

        await until(look, every_s=LOOK_S)

    async def judge(self) -> dict[str, Any]:
        wrong: list[str] = []
        doubled = 0
        for person in self.messenger.people:
            wanted, user = list(range(1, self.said[person.name] + 1)), person.name.lower()
            chat = (await self.ask("channels_list", user=user))["conversations"][0]["chat"]
            rows, after = [], 0
            while page := (await self.ask("chats_messages", chat=chat, user=user, after=after, limit=200))["messages"]:
                rows += page
                after = page[-1]["seq"]
            for role, what in (("user", "says"), ("assistant", "heard")):
                texts = [each["content"] for each in rows if each["role"] == role]
                stored = [int(found[1]) for each in texts if (found := re.search(rf"{what} (\d+)$", each))]
                if stored != wanted:
                    wrong.append(f"{person.name}: {role} has {stored}, wanted 1 to {len(wanted)}")
            seen = [int(found[1]) for each in await person.seen() if (found := re.search(r"heard (\d+)$", each))]
            doubled += len(seen) - len(wanted)
            if sorted(set(seen)) != wanted or seen != sorted(seen):
                wrong.append(f"{person.name}: saw {seen}")
        if doubled > (self.kills if self.messenger.type == "telegram" else 0):
            wrong.append(f"{doubled} answers were seen twice")
        return {"kills": self.kills, "messages": sum(self.said.values()), "doubled": doubled, "wrong": wrong}


async def run(arguments: argparse.Namespace, home: Path) -> dict[str, Any]:
    began = time.monotonic()
    async with serve_llm() as llm, messenger(arguments.messenger, arguments.people) as there:
        llm.respond = answer
        async with served(write_home(home, llm=llm.url, processing={"maxConcurrentLlm": 10})) as server:
            drill = Drill(server=server, messenger=there, kills=arguments.kills, random=random.Random(arguments.seed))
            await drill.run()
            found = await drill.judge()
    return {"messenger": arguments.messenger, **found, "seconds": round(time.monotonic() - began)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--messenger", choices=("telegram", "matrix"), default="telegram")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klaw-drill-") as folder:
        found = trio.run(run, arguments, Path(folder))
    if arguments.json:
        print(json.dumps(found))
    else:
        print(
            f"{found['messenger']}: {found['kills']} kills, {found['messages']} messages in {found['seconds']} s,"
            f" {found['doubled']} answers seen twice"
        )
        print("\n".join(found["wrong"]) or "each message was stored and answered once, and in order")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
