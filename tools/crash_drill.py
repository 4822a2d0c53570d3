"""Crash drill: kill a loaded server again and again, and prove that nothing is lost, doubled or out of order.

    python tools/crash_drill.py [--rounds 50] [--clients 20] [--seed N] [--home DIR | --card] [--json]

Each round starts the server, lets the clients talk, and ends with SIGKILL at a random moment: under load, while answers
are streamed, and sometimes in the middle of the start. After some kills the drill also takes away what a power cut may
take: the tails of the logs that only the commit log made durable, or the whole database. Every client has a chat of its
own; two more share the first chat, one writes to it and one only watches. Clients stay through the restarts, and now
and then leave and come back as a new program would that remembers only its positions and what was not acknowledged.

With ``--card`` (as root, by ``unshare --mount``) the home is on a file system of its own, and most rounds end with a
real power cut: the device keeps what it was given, all else is gone, the file system's journal too.

After each kill: every acknowledged message is in the logs (commit log included) exactly once. In the end, after a
restart: every question is answered, once; logs, database, history and what every client saw are the same; so is what a
fresh start makes of the logs alone; and the server's log has no errors. The LLM is a stub in the drill's own process.
Exit code 0: all of that holds; 1: it does not.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.actor.backoff import Backoff
from klaw.actor.mailbox import Reply
from klaw.client.client import Client, messages_of
from klaw.client.connection import connect
from klaw.domain.message import MOST_ON_PAGE
from klaw.errors import RequestRefused
from klaw.wire.frames import MessageFrame
from tests.support import llm_server
from tests.support.llm_server import LlmServer, Pause, Recorded, Text, serve_llm
from tests.support.server import Server, served, write_home
from tools import drill_checks as checks
from tools.card import Card, card
from tools.drill_checks import Acked

LOAD_S = 2.5
"""Longest time under load before a kill, from when there is some."""
LOAD_ACKS = 8
"""There is some: on a slow machine a server does not get so far within any number of seconds."""
START_S = 0.8
"""A kill in the middle of the start comes within this time."""
SETTLE_S = 600.0
"""In the end all questions must be answered within this time."""
WORDS = ("river", "notebook", "thanks", "Привет", "ёлка", "завтра", "кофе", "bridge", "window", "подъезд", "🙂", "0451")
BACKOFF = Backoff(0.05, 0.4)
COUNTED = ("kills", "in_start", "power_cuts", "tails_lost", "db_lost")


@attrs.define
class Person:
    """One client of the drill and what it has seen. ``talk`` runs until ``quiet`` is set and all was seen."""

    name: str
    chat: str
    url: str
    chance: random.Random
    writes: bool
    problems: list[str]
    _head: Reply[dict[str, int]]
    acked: list[Acked] = attrs.Factory(list)
    seen: list[tuple[int, str, str]] = attrs.Factory(list)
    returns: int = 0
    """How often it left and came back."""
    written: trio.Event = attrs.Factory(trio.Event)
    """It will write no more, and all that it wrote is acknowledged."""
    _unacked: tuple[str, str] | None = None
    _sent: int = 0
    _news: trio.Event = attrs.Factory(trio.Event)

    async def talk(self, quiet: trio.Event) -> None:
        while True:
            position = self.seen[-1][0] if self.seen else 0
            stays_s = self.chance.uniform(1, 8)
            async with (
                connect(
                    self.url, chats={self.chat: position}, name=self.name, first_s=SETTLE_S, backoff=BACKOFF
                ) as client,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._look, client)
                with trio.move_on_after(stays_s):
                    await self._write(client, quiet)
                if quiet.is_set():
                    await self._write(client, quiet)
                    self.written.set()
                    await self._see_to_the_end()
                    nursery.cancel_scope.cancel(reason="all is said and answered")
                    return
                nursery.cancel_scope.cancel(reason="leaves for a moment")
            self.returns += 1

    async def _write(self, client: Client, quiet: trio.Event) -> None:
        """Send one message after the other; one whose fate is unknown is sent again with the same id."""
        if not self.writes:
            await quiet.wait()
            return
        while self._unacked is not None or not quiet.is_set() or not self.acked:
            if self._unacked is None:
                self._sent += 1
                words = " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 30)))
                self._unacked = (f"{self.name}-{self._sent}", f"{self.name} {self._sent}: {words}")
            message_id, text = self._unacked
            seq = await client.send(self.chat, text, message_id)
            self.acked.append(Acked(message_id, self.chat, seq, text))
            self._unacked = None
            await trio.sleep(self.chance.expovariate(20))

    async def _look(self, client: Client) -> None:
        while True:
            event = await client.next_event()
            if isinstance(event, MessageFrame) and event.chat == self.chat:
                last = self.seen[-1][0] if self.seen else 0
                if event.seq != last + 1:
                    self.problems.append(f"{self.name}: after {last} of {self.chat} it saw {event.seq}")
                self.seen.append((event.seq, event.id, event.content))
            self._news.set()
            self._news = trio.Event()

    async def _see_to_the_end(self) -> None:
        """Return when the last message of the chat was seen."""
        head = await self._head.wait()
        while not self.seen or self.seen[-1][0] < head[self.chat]:
            await self._news.wait()


@attrs.define
class Drill:
    """One run of the drill."""

    server: Server
    llm: LlmServer
    chance: random.Random
    people: list[Person]
    problems: list[str]
    head: Reply[dict[str, int]]
    """The last seq of each chat, once there will be no further message."""
    say_progress: bool
    card: Card | None = None
    """That the home is on."""
    counts: dict[str, int] = attrs.Factory(lambda: dict.fromkeys(COUNTED, 0))

    @property
    def chats(self) -> list[str]:
        return sorted({person.chat for person in self.people})

    def say(self, text: str) -> None:
        if self.say_progress:
            print(text, flush=True)

    async def run(self, rounds: int) -> None:
        quiet = trio.Event()
        async with trio.open_nursery() as nursery:
            for person in self.people:
                nursery.start_soon(person.talk, quiet)
            for number in range(1, rounds + 1):
                await self._round(number, rounds)
            await self.server.start()
            quiet.set()
            nursery.cancel_scope.deadline = trio.current_time() + SETTLE_S
            for person in self.people:
                await person.written.wait()
            self.head.set(await self._answered())
        if nursery.cancel_scope.cancelled_caught:
            self.problems.append(f"not everything was answered within {SETTLE_S:.0f} s after the last restart")
        await self._check_all()

    async def _answered(self) -> dict[str, int]:
        """Return when every chat's last message is an answer to all before it: the seq of that message by chat."""
        heads: dict[str, int] = {}
        async with connect(self.server.url, first_s=SETTLE_S) as client:
            for chat in self.chats:
                last = max(each.seq for person in self.people if person.chat == chat for each in person.acked)
                receipt: dict[str, Any] = {}
                while receipt.get("status") != "done" or receipt["last_seq"] < last:
                    await trio.sleep(0.05)
                    with suppress(RequestRefused):  # no turn of the chat has ended yet
                        receipt = await client.call("receipt", chat=chat)
            listed = await client.call("chats_list", limit=100)
            heads |= {chat["name"]: chat["last_seq"] for chat in listed["chats"]}
        return heads

    async def _round(self, number: int, rounds: int) -> None:
        began = trio.current_time()
        before = self._acked()
        moment = await self._live()
        lived = trio.current_time() - began
        self.counts["kills"] += 1
        # What was acknowledged before the kill is on the disk after it: the clients learn nothing while it is down.
        acked = [each for person in self.people for each in person.acked]
        disk = await trio.to_thread.run_sync(checks.read_logs, self.server.data)
        found = checks.check_acked(disk, acked) + checks.check_order(disk)
        self.problems += [f"round {number}: {problem}" for problem in found]
        damage = self._damage()
        self.llm.requests.clear()
        verdict = "ok" if not found else f"{len(found)} PROBLEMS"
        self.say(
            f"round {number:3}/{rounds}  killed after {lived:4.2f} s {moment:12}  acked {len(acked) - before:5}"
            f"  stored {len(disk.messages):6}  {verdict}{damage}"
        )

    async def _live(self) -> str:
        """Start the server and kill it. Returns at which moment, in words."""
        await self.server.spawn()
        in_start = self.chance.random() < 0.25
        if not in_start:
            await self.server.ready()
            await self._loaded()
        await trio.sleep(self.chance.uniform(0, START_S if in_start else LOAD_S))
        self.counts["in_start"] += in_start
        told = "in its start" if in_start else "under load"
        if self.card is None or self.chance.random() < 0.25:
            await self.server.kill()
            return told
        await self._cut_power(self.card)
        return f"{told}, no power"

    async def _cut_power(self, card: Card) -> None:
        assert self.server.process is not None
        os.kill(self.server.process.pid, signal.SIGSTOP)  # so that it does not see its disk fail
        await trio.to_thread.run_sync(card.cut_power)
        await self.server.kill()
        await trio.to_thread.run_sync(card.restore)
        self.counts["power_cuts"] += 1

    async def _loaded(self) -> None:
        """Return when the people are at work again, or the server has died."""
        before = self._acked()
        while self._acked() < before + LOAD_ACKS and self.server.running:  # noqa: ASYNC110 - acks set no event
            await trio.sleep(0.01)

    def _damage(self) -> str:
        """Sometimes imitate what a power cut takes besides the process."""
        kind = self.chance.choices(("", "tails", "database", "both"), (6, 2, 1, 1))[0]
        told = ""
        if kind in ("tails", "both"):
            lost = checks.lose_unsynced_tails(self.server.data, self.chance)
            self.counts["tails_lost"] += 1
            told += f"; the logs lost {lost} unsynced bytes"
        if kind in ("database", "both"):
            checks.delete_database(self.server.database)
            self.counts["db_lost"] += 1
            told += "; the database was deleted"
        return told

    def _acked(self) -> int:
        return sum(len(person.acked) for person in self.people)

    # -- the end ---------------------------------------------------------------------------------------------------

    async def _check_all(self) -> None:
        self.say("all clients are content; comparing history, logs, database and what the clients saw …")
        history = await self._history()
        code = await self.server.terminate()
        if code != 0:
            self.problems.append(f"the server ended with {code} after SIGTERM")
        disk = checks.read_logs(self.server.data)
        stored = checks.by_chat(disk)
        found = checks.check_acked(disk, [each for person in self.people for each in person.acked])
        found += checks.check_order(disk) + checks.check_answers(disk)
        found += checks.check_database(self.server.database, disk)
        for person in self.people:
            found += checks.check_seen(f"client {person.name}", person.seen, stored[person.chat])
        for chat in self.chats:
            found += checks.check_seen(f"history of {chat}", history[chat], stored[chat])
        checks.delete_database(self.server.database)
        await self.server.start()
        again = await self._history()
        if again != history:
            found.append("after the database was deleted, the history made from the logs is another")
        await self.server.terminate()
        disk = checks.read_logs(self.server.data)
        found += checks.check_database(self.server.database, disk)
        found += self._check_more(disk)
        found += checks.check_log(self.server.events())
        self.problems += found
        self.counts |= {
            "clients": len(self.people),
            "returns": sum(person.returns for person in self.people),
            "acknowledged": self._acked(),
            "messages": len(disk.messages),
            "answers": sum(turn.status == "done" for turn in disk.turns),
            "torn_lines": disk.torn,
        }

    def _check_more(self, disk: checks.Disk) -> list[str]:
        """What another drill checks besides; the server does not run."""
        del disk
        return []

    async def _history(self) -> dict[str, list[tuple[int, str, str]]]:
        """All messages of all chats, page by page over the protocol."""
        found: dict[str, list[tuple[int, str, str]]] = {}
        async with connect(self.server.url, first_s=SETTLE_S) as client:
            for chat in self.chats:
                rows = found[chat] = []
                more = True
                while more:
                    after = rows[-1][0] if rows else 0
                    page = messages_of(await client.call("chats_messages", chat=chat, after=after, limit=MOST_ON_PAGE))
                    rows += [(message.seq, message.id, message.content) for message in page.messages]
                    more = page.more
        return found


def answers(chance: random.Random) -> Callable[[Recorded], llm_server.Reply]:
    """The stub's answers: some at once, some slow enough to be cut in the middle."""

    def respond(request: Recorded) -> llm_server.Reply:
        pause = Pause(chance.choice((0, 0, 0.01, 0.05)))
        words = f"answer to {request.last_user}".split(" ")[:12]
        return llm_server.Reply(steps=[step for word in words for step in (Text(word + " "), pause)])

    return respond


@asynccontextmanager
async def prepared(
    home: Path, clients: int, seed: int, *, say_progress: bool, card: Card | None = None
) -> AsyncIterator[Drill]:
    chance = random.Random(seed)
    async with serve_llm() as llm:
        llm.respond = answers(random.Random(seed + 1))
        write_home(home, llm=llm.url, processing={"maxConcurrentLlm": 8}, logging={"level": "warning"})
        if card is not None:
            await trio.to_thread.run_sync(os.sync)  # the configuration is there for good
        async with served(home, start=False) as server:
            problems: list[str] = []
            names = [(f"c{n}", f"chat {n}", True) for n in range(1, clients + 1)]
            names += [("guest", "chat 1", True), ("watcher", "chat 1", False)]
            head: Reply[dict[str, int]] = Reply()
            people = [
                Person(name, chat, server.url, random.Random(f"{seed} {name}"), writes, problems, head)
                for name, chat, writes in names
            ]
            yield Drill(server, llm, chance, people, problems, head, say_progress, card)


async def drill(options: argparse.Namespace, home: Path, card: Card | None = None) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"crash drill: {options.rounds} rounds, {options.clients} clients, seed {seed}", file=sys.stderr, flush=True)
    began = time.monotonic()
    async with prepared(home, options.clients, seed, say_progress=not options.json, card=card) as run:
        await run.run(options.rounds)
    seconds = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps({"seed": seed, "seconds": seconds, **run.counts, "problems": run.problems}, indent=1))
    else:
        print(f"\n{seconds} s, seed {seed}: " + ", ".join(f"{n} {what}" for what, n in run.counts.items()))
        for problem in run.problems:
            print(f"PROBLEM  {problem}")
        print("FAILED" if run.problems else "Nothing was lost, doubled or out of order.")
    return 1 if run.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a loaded server again and again, and look for losses.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--clients", type=int, default=20, help="besides these, two share the first one's chat")
    parser.add_argument("--seed", type=int, help="of the moments and damages (the system's timing adds its own)")
    parser.add_argument("--home", type=Path, help="an empty folder, which is kept (default: a temporary one)")
    parser.add_argument("--card", action="store_true", help="on a file system of its own, with power cuts; needs root")
    parser.add_argument("--json", action="store_true", help="print one JSON object in the end, and no progress")
    options = parser.parse_args()
    log.configure("error", "json")
    if options.home is not None:
        if options.home.exists() and any(options.home.iterdir()):
            parser.error(f"{options.home} is not empty: the drill would damage what is in it")
        return trio.run(drill, options, options.home.absolute())
    with tempfile.TemporaryDirectory(prefix="klaw-drill-") as scratch:
        if not options.card:
            return trio.run(drill, options, Path(scratch))
        with card(Path(scratch)) as mounted:
            home = mounted.folder / "home"
            home.mkdir()
            (home / "server.log").symlink_to(Path(scratch, "server.log"))  # the drill reads it, whatever happens
            return trio.run(drill, options, home, mounted)


if __name__ == "__main__":
    sys.exit(main())
