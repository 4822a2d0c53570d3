"""Run drill: kill a server again and again in the middle of the runs of its tasks and subagents, and prove that no
result is lost, delivered twice, or recorded otherwise than it was.

    python tools/run_drill.py [--rounds 20] [--seed N] [--point NAME] [--home DIR] [--json]

People order work in their chats: a subagent at once, or a task for a moment soon. The LLM, a stub in the drill's own
process, makes tool calls of their orders; the subagents answer, slowly, with a final text, with ``schedule_deliver``,
with silence, or through the notice of their end. Each round ends with SIGKILL, in three of five at a named point of
storing what a run says (``tools/drill_server.py``), else at a random moment; then the drill may take away what a power
cut takes (see ``tools/crash_drill.py``, whose people, damages and checks it shares). Interval tasks miss their times
meanwhile.

In the end, beside the checks of the crash drill: every order whose tool call was answered has a run; every run is over;
no text of a result stands in a chat twice; of each fire time one attempt at most has delivered; each record counts the
messages that stand in chats; and what was asked for once was delivered, or its record and its chat say that Klaw was
stopped twice while it ran. All clients saw every message once. Exit code 0: all of that holds; 1: it does not.
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.actor.mailbox import Reply
from klaw.client.client import Client
from klaw.domain.message import Message
from klaw.domain.task import Run, RunKind, RunStatus
from klaw.store import rows
from klaw.store.store import read_offline
from tests.support import llm_server
from tests.support.llm_server import Pause, Recorded, Text, Tool, serve_llm, text_reply, tool_reply
from tests.support.server import DidNotStart, served, write_home
from tools import drill_checks as checks
from tools.crash_drill import Drill, Person
from tools.drill_checks import Acked
from tools.drill_server import POINTS

LOAD_S = 3.0
"""A server that does not come by its named point is killed after so long under load."""
MODES = ("plain", "tool", "silent", "notice")
ORDER = re.compile(r"ORDER (spawn|at|every) (\w+) ([a-z0-9-]+)")
WORK = re.compile(r"WORK (\w+) ([a-z0-9-]+)")
ENDED = (RunStatus.DONE, RunStatus.SILENT)

_UNFINISHED = """
SELECT (SELECT count(*) FROM runs WHERE status = 'running') + (
    SELECT count(*) FROM tasks t WHERE fires = 'at' AND NOT EXISTS (
        SELECT 1 FROM runs r WHERE r.task = t.name AND r.user_id = t.user_id
    )
) + (
    SELECT count(*) FROM tasks t JOIN runs r ON r.task = t.name AND r.user_id = t.user_id
    WHERE t.fires = 'at' AND r.status = 'interrupted' AND r.attempt = 1 AND r.delivered = 0 AND NOT EXISTS (
        SELECT 1 FROM runs s WHERE s.task = r.task AND s.user_id = r.user_id AND s.attempt = 2
    )
)
"""


@attrs.define
class Orderer(Person):
    """Orders work in its chat until all is quiet."""

    other: "Orderer | None" = None
    """Whose chat some of the results go to."""

    async def _write(self, client: Client, quiet: trio.Event) -> None:
        while self.other is not None and not self.other.acked:  # noqa: ASYNC110  a chat is created by its first message
            await trio.sleep(0.05)
        while self._unacked is not None or not quiet.is_set() or not self.acked:
            if self._unacked is None:
                self._sent += 1
                self._unacked = (f"{self.name}-{self._sent}", self._order())
            message_id, text = self._unacked
            seq = await client.send(self.chat, text, message_id)
            self.acked.append(Acked(message_id, self.chat, seq, text))
            self._unacked = None
            await trio.sleep(self.chance.expovariate(3))

    def _order(self) -> str:
        if self._sent == 1:
            return f"ORDER every plain tick-{self.name}"
        kind = self.chance.choice(("spawn", "spawn", "at"))
        mode = self.chance.choice(MODES if kind == "spawn" else MODES[:3])
        return f"ORDER {kind} {mode} job-{self.name}-{self._sent} / сделай это"


@attrs.define
class RunDrill(Drill):
    """One run of the drill."""

    points: tuple[str, ...] = (*POINTS, *[""] * 4)
    """Where to kill, with the odds; empty for a random moment."""

    async def _live(self) -> str:
        point = self.chance.choice(self.points)
        self.server.environ |= {"KLAW_DRILL_POINT": point, "KLAW_DRILL_SKIP": str(self.chance.randint(0, 3))}
        await self.server.spawn()
        moment = "at random"
        try:
            await self.server.ready()
        except DidNotStart:
            assert point  # it recovered, came by its point, and died before it listened
        await self._loaded()
        with trio.move_on_after(LOAD_S + self.chance.uniform(0, 1)):
            await self.server.wait()
            moment = f"at '{point}'"
        self.counts[moment] = self.counts.get(moment, 0) + 1
        await self.server.kill()
        self.server.environ["KLAW_DRILL_POINT"] = ""
        return f"{moment:12}"

    async def _answered(self) -> dict[str, int]:
        """Return when all orders are given, and all that was ordered is over."""
        await super()._answered()
        while await trio.to_thread.run_sync(self._unfinished):  # noqa: ASYNC110 - another process's database
            await trio.sleep(0.2)
        return await super()._answered()

    def _unfinished(self) -> bool:
        """Whether runs go on or one-shots are still to come."""

        def read(connection: object) -> int:
            return int(connection.execute(_UNFINISHED).get)  # type: ignore[attr-defined]

        return bool(read_offline(self.server.database, read))

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check_more(self, disk: checks.Disk) -> list[str]:
        stored = read_offline(self.server.database, _all_runs)
        in_logs = checks.read_runs(self.server.data)
        wrong = [f"the database has another state of run {run.id}" for run in stored if in_logs.get(run.id) != run]
        wrong += [f"run {run} is in no database" for run in in_logs.keys() - {run.id for run in stored}]
        wrong += check_honest(stored, disk) + check_once(stored, disk) + check_none_lost(stored, disk)
        self.counts["runs"] = len(stored)
        self.counts |= {f"runs_{status}": n for status, n in Counter(run.status.value for run in stored).items()}
        self.counts["second_attempts"] = sum(run.attempt > 1 for run in stored)
        self.counts["delivered"] = sum(run.delivered for run in stored)
        return wrong


def _all_runs(connection: apsw.Connection) -> list[Run]:
    return rows.Rows(Run, "runs").all(connection, "ORDER BY started_at")


def _of_runs(disk: checks.Disk) -> list[Message]:
    return [message for message in disk.messages if message.type == "scheduled"]


def check_honest(stored: list[Run], disk: checks.Disk) -> list[str]:
    """Every run is over, and its record counts exactly the messages of it that stand in chats."""
    known = {run.id: run for run in stored}
    in_chats = Counter(m.metadata["run"] for m in _of_runs(disk) if not m.id.endswith("/notice"))
    wrong = [f"run {run.id} of {run.task} is {run.status}" for run in stored if not run.status.over]
    wrong += [
        f"run {run.id} of {run.task} says it delivered {run.delivered}; {in_chats[run.id]} messages are there"
        for run in stored
        if run.delivered != in_chats[run.id]
    ]
    wrong += [
        f"a message of the unknown run {m.metadata['run']}" for m in _of_runs(disk) if m.metadata["run"] not in known
    ]
    return wrong


def check_once(stored: list[Run], disk: checks.Disk) -> list[str]:
    """No result stands in a chat twice, and of each fire time one attempt at most has delivered something."""
    results = Counter(
        line for message in _of_runs(disk) for line in message.content.splitlines() if line.startswith("RESULT job-")
    )
    wrong = [f"'{text}' stands in chats {count} times" for text, count in results.items() if count > 1]
    delivering = Counter((run.task, run.kind, run.due) for run in stored if run.delivered)
    wrong += [f"{count} attempts of {key} delivered" for key, count in delivering.items() if count > 1]
    begun = Counter((run.task, run.kind, run.due, run.attempt) for run in stored)
    wrong += [f"{key} began {count} times" for key, count in begun.items() if count > 1]
    return wrong


def check_none_lost(stored: list[Run], disk: checks.Disk) -> list[str]:
    """What was ordered has a run; it ended well, or delivered before it was stopped, or was stopped twice and its chat
    was told."""
    notices = {message.metadata["run"]: message.content for message in _of_runs(disk) if message.id.endswith("/notice")}
    wrong = []
    last = {run.task: run for run in sorted(stored, key=lambda run: (run.started_at, run.attempt))}
    for name, kind in _ordered(disk):
        if name not in last and not name.startswith("tick-"):
            wrong.append(f"{name} was ordered ({kind}), and has no run")
    for task, run in last.items():
        if task.startswith("tick-"):
            continue  # the next fire time comes anyway
        mode = WORK.search(run.message)
        assert mode is not None
        if run.status in ENDED:
            silent = mode.group(1) == "silent"
            told = notices.get(run.id, "")
            if silent != (run.status is RunStatus.SILENT):
                wrong.append(f"{task} ({mode.group(1)}) is {run.status}")
            elif not silent and not run.delivered and f"RESULT {task}" not in told:
                wrong.append(f"{task} is done, and its result is in no chat")
            if run.kind is RunKind.SPAWNED and not told:
                wrong.append(f"{task} has ended, and the chat that spawned it was not told")
        elif run.status is not RunStatus.INTERRUPTED:
            wrong.append(f"{task} is {run.status}: {run.error}")
        elif not run.delivered and (run.attempt != 2 or run.id not in notices):
            wrong.append(f"{task} was stopped {run.attempt} times, and nobody was told")
    return wrong


def _ordered(disk: checks.Disk) -> list[tuple[str, str]]:
    """What the model was told that it is started or scheduled."""
    found = []
    for message in disk.messages:
        if message.type != "tool_result" or message.metadata.get("error"):
            continue
        try:
            told = json.loads(message.content)
        except ValueError:
            continue
        if isinstance(told, dict) and "name" in told:
            found.append((told["name"], "spawn" if "run" in told else "task"))
    return found


# -- the stub ----------------------------------------------------------------------------------------------------------


def answers(chance: random.Random) -> Callable[[Recorded], llm_server.Reply]:
    """What the model says to orders in chats, and to the requests of runs."""

    def pause() -> Pause:
        return Pause(chance.choice((0, 0, 0.02, 0.2)))

    def respond(request: Recorded) -> llm_server.Reply:
        since = [message for message in request.messages if message["role"] != "system"]
        place = max(number for number, message in enumerate(since) if message["role"] == "user")
        results = sum(message["role"] == "tool" for message in since[place:])
        asked = str(since[place]["content"])
        if work := WORK.search(asked):
            return _work(work.group(1), work.group(2), results)
        if (order := ORDER.search(asked)) and not results:  # a turn that goes on after a kill sees that it has ordered
            return _order(*order.groups())
        return text_reply("Ordered. ", "Заказано.")

    def _order(kind: str, mode: str, name: str) -> llm_server.Reply:
        arguments: dict[str, str] = {"name": name, "message": f"WORK {mode} {name}"}
        if kind == "spawn":
            if mode != "notice":
                arguments["inject_into"] = "chat 1"
            return tool_reply(Tool(f"call-{name}", "subagent_spawn", json.dumps(arguments)))
        if kind == "every":
            arguments["every"] = "60s"
        else:
            arguments["at"] = (datetime.now(UTC) + timedelta(seconds=chance.randint(2, 4))).isoformat(
                timespec="seconds"
            )
        return tool_reply(Tool(f"call-{name}", "schedule_add", json.dumps(arguments)))

    def _work(mode: str, name: str, results: int) -> llm_server.Reply:
        match mode:
            case "silent":
                return llm_server.Reply(steps=(pause(), Text('{"silent": true, "reason": "nothing new"}')))
            case "tool" if results < 2:
                part = json.dumps({"text": f"RESULT {name} part {results + 1}"})
                call = Tool(f"deliver-{results}", "schedule_deliver", part)
                return llm_server.Reply(steps=(pause(), call, pause()), finish_reason="tool_calls")
            case "tool":
                return llm_server.Reply(steps=(pause(), Text("Both parts are sent.")))
            case _:
                words = f"RESULT {name} готово".split(" ")
                return llm_server.Reply(steps=[step for word in words for step in (Text(word + " "), pause())])

    return respond


@asynccontextmanager
async def prepared(home: Path, seed: int, *, say_progress: bool) -> AsyncIterator[RunDrill]:
    chance = random.Random(seed)
    async with serve_llm() as llm:
        llm.respond = answers(random.Random(seed + 1))
        stub = {"baseUrl": llm.url, "maxRetries": 0, "timeoutSeconds": 20, "models": {"echo": {"tools": True}}}
        write_home(
            home,
            llm=llm.url,
            providers={"stub": stub},
            processing={"maxConcurrentLlm": 8},
            subagents={"maxConcurrent": 4, "maxSpawned": 100},
            logging={"level": "warning"},
        )
        async with served(home, start=False) as server:
            server.program = (sys.executable, "-m", "tools.drill_server")
            problems: list[str] = []
            head: Reply[dict[str, int]] = Reply()
            people: list[Person] = [
                make(name, chat, server.url, random.Random(f"{seed} {name}"), make is Orderer, problems, head)
                for make, name, chat in (
                    (Orderer, "a", "chat 1"),
                    (Orderer, "b", "chat 2"),
                    (Person, "watcher", "chat 1"),
                    (Person, "watcher2", "chat 2"),
                )
            ]
            first, second = (each for each in people if isinstance(each, Orderer))
            second.other = first
            yield RunDrill(server, llm, chance, people, problems, head, say_progress)


async def drill(options: argparse.Namespace, home: Path) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"run drill: {options.rounds} rounds, seed {seed}", file=sys.stderr, flush=True)
    began = time.monotonic()
    async with prepared(home, seed, say_progress=not options.json) as run:
        run.points = (options.point,) if options.point else run.points
        await run.run(options.rounds)
    seconds = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps({"seed": seed, "seconds": seconds, **run.counts, "problems": run.problems}, indent=1))
    else:
        print(f"\n{seconds} s, seed {seed}: " + ", ".join(f"{n} {what}" for what, n in run.counts.items()))
        for problem in run.problems:
            print(f"PROBLEM  {problem}")
        print("FAILED" if run.problems else "No result was lost, delivered twice, or recorded otherwise than it was.")
    return 1 if run.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a server in the middle of runs, and look for lost results.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, help="of the moments and damages (the system's timing adds its own)")
    parser.add_argument("--point", choices=POINTS, help="kill at this point only")
    parser.add_argument("--home", type=Path, help="an empty folder, which is kept (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in the end, and no progress")
    options = parser.parse_args()
    log.configure("error", "json")
    if options.home is not None:
        if options.home.exists() and any(options.home.iterdir()):
            parser.error(f"{options.home} is not empty: the drill would damage what is in it")
        return trio.run(drill, options, options.home.absolute())
    with tempfile.TemporaryDirectory(prefix="klaw-drill-") as home:
        return trio.run(drill, options, Path(home))


if __name__ == "__main__":
    sys.exit(main())
