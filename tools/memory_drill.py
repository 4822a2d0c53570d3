"""Memory drill: kill a process in the middle of every change of memory, again and again, and prove that nothing of it
is half done, lost or, when it was forgotten, still anywhere.

    python tools/memory_drill.py [--kills 20] [--seed N] [--only OPERATION …] [--point NAME] [--home DIR] [--json]

Each round a process (``tools/memory_child.py``) opens the store of one data folder, which grows over the rounds, and
changes memory: archives, splits, merges, rebuilds topics and takes that back, draws facts and people from a topic and
from a day, merges people, lets a fact take another's place, notes spending, forgets messages and people. It kills
itself at a named point, from before the journal's append to between the steps of forgetting, or at a random moment.
Then, in 40 % of the rounds, the drill takes away what a power cut may take: unsynced ends of logs, or the database.

After each restart: what was acknowledged is there; what was under way is all there or not at all; no row and no vector
names what is not there; the checks of ``klaw doctor`` are content; and what was forgotten is in no file of the folder,
byte by byte. In the end a reindex gives the same database. Exit code 0: all of that holds; 1: it does not.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from tests.support.reindexing import differing, digests_of
from tests.support.reindexing import run as reindex
from tests.support.stores import running_store
from tools.drill_checks import delete_database, lose_unsynced_tails
from tools.memory_checks import Ledger, check_database
from tools.memory_child import points_of
from tools.memory_work import OPERATIONS

REPOSITORY = Path(__file__).parents[1]
LIFE_S = 600.0
"""A process that takes longer hangs."""
DEEPEST = {"sql": 40, "fsync": 14, "rewrite": 6, "cleaned": 6, "draft": 4, "replaced": 4}
"""How often a process may come by a point before it dies there: 0 to so many times."""


async def _restart(data: Path) -> None:
    async with running_store(data):
        pass


@attrs.define
class MemoryDrill:
    """One drill.

    Args:
        data: the data folder.
        seed: of moments and damages.
        chance: made of it.
        say_progress: print a line for each round.
    """

    data: Path
    seed: int
    chance: random.Random
    say_progress: bool
    points: tuple[str, ...] = ()
    ledger: Ledger = attrs.Factory(Ledger)
    kills: Counter[str] = attrs.Factory(Counter)
    counts: Counter[str] = attrs.Factory(Counter)
    problems: list[str] = attrs.Factory(list)

    def run(self, operations: list[str], kills: int) -> None:
        """Kill so often in each operation, and look at everything in the end. Ends early when something is wrong."""
        rounds = 0
        while not self.problems and any(self.kills[each] < kills for each in operations):
            for operation in operations:
                if self.kills[operation] < kills and not self.problems:
                    rounds += 1
                    self._round(rounds, operation)
        if not self.problems:
            before = digests_of(self.data / "klaw.db")
            self.problems += [f"a reindex makes {each} otherwise" for each in differing(reindex(self.data))]
            if digests_of(self.data / "klaw.db") != before:
                self.problems.append("a reindex gives other digests")

    def _round(self, number: int, operation: str) -> None:
        points = self.points or points_of(operation)
        first = 5 * [*OPERATIONS].index(operation)  # so that short drills come by different points
        point = points[(first + self.kills[operation] + self.counts["alive"]) % len(points)]
        skip = self.chance.randrange(DEEPEST.get(point, 1) + 1) if point in DEEPEST else self.chance.randrange(3)
        wanted = {"op": operation, "point": point, "skip": skip, "seed": self.seed, "number": number}
        killed = self._live(wanted)
        damage = self._damage() if killed else ""
        before = len(self.problems)
        trio.run(_restart, self.data)
        self.problems += check_database(self.data) + self.ledger.check(self.data)
        self.problems[before:] = [f"{operation} {point} {skip}: {each}" for each in self.problems[before:]]
        self.ledger.settle()
        if self.say_progress:
            state = "killed" if killed else "lived "
            print(f"round {number:4}  {operation:14} {point:12} {skip:3}  {state} {damage}", flush=True)

    def _live(self, wanted: dict[str, object]) -> bool:
        command = [sys.executable, "-m", "tools.memory_child", str(self.data), json.dumps(wanted)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=LIFE_S, check=False)
        for raw in done.stdout.split(b"\n")[:-1]:
            self.ledger.take(json.loads(raw))
        if done.returncode == -signal.SIGKILL:
            self.kills[str(wanted["op"])] += 1
            self.counts["kills"] += 1
            return True
        self.counts["alive"] += 1
        if done.returncode != 0:
            self.problems.append(f"the process ended with {done.returncode}: {done.stderr.decode()[-1500:]}")
        return False

    def _damage(self) -> str:
        """In 40 % of the rounds, what a power cut may take."""
        luck = self.chance.random()
        if luck < 0.25:
            lost = lose_unsynced_tails(self.data, self.chance)
            self.counts["tails_lost"] += bool(lost)
            return f"lost {lost} bytes"
        if luck < 0.4:
            delete_database(self.data / "klaw.db")
            self.counts["db_lost"] += 1
            return "lost the database"
        return ""


def drill(options: argparse.Namespace, home: Path) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"memory drill: {options.kills} kills of each operation, seed {seed}", file=sys.stderr, flush=True)
    began = time.monotonic()
    run = MemoryDrill(home, seed, random.Random(seed), not options.json)
    run.points = (options.point,) if options.point else ()
    run.run(options.only or [*OPERATIONS], options.kills)
    figures = {"seed": seed, "seconds": round(time.monotonic() - began, 1), **run.counts, "by": dict(run.kills)}
    done = Counter(line["about"] for line in run.ledger.done)
    figures |= {"acknowledged": sum(done.values()), "messages": sum(map(len, run.ledger.said.values()))}
    if options.json:
        print(json.dumps({**figures, "problems": run.problems}, indent=1))
    else:
        print("\n" + ", ".join(f"{what} {n}" for what, n in figures.items()))
        for problem in run.problems:
            print(f"PROBLEM  {problem}")
        print("FAILED" if run.problems else "Nothing was half done, lost, or still there after it was forgotten.")
    return 1 if run.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a process in the middle of changes of memory.")
    parser.add_argument("--kills", type=int, default=20, help="of each operation")
    parser.add_argument("--seed", type=int, help="of the moments and damages (the system's timing adds its own)")
    parser.add_argument("--only", nargs="+", choices=[*OPERATIONS], help="these operations only")
    parser.add_argument("--point", choices=points_of("forget"), help="kill at this point only")
    parser.add_argument("--home", type=Path, help="an empty folder, which is kept (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in the end, and no progress")
    options = parser.parse_args()
    log.configure("error", "json")
    if options.home is not None:
        if options.home.exists() and any(options.home.iterdir()):
            parser.error(f"{options.home} is not empty: the drill would damage what is in it")
        options.home.mkdir(parents=True, exist_ok=True)
        return drill(options, options.home.absolute())
    with tempfile.TemporaryDirectory(prefix="klaw-drill-") as home:
        return drill(options, Path(home))


if __name__ == "__main__":
    sys.exit(main())
