"""What a turn costs a memory card: all that reaches the device, the file system's own journal included.

    sudo python tools/bench_card.py --models DIR [--turns 20] [--gap 25] [--mount OPTIONS] [--logs-only] [--json]

Makes an ext4 file system in a file, mounts it (as root), starts a real server with its home there and a scripted model,
and talks as one person does: a question of 113 bytes, an answer of 780, a pause. Then it counts the sectors that were
written, up to the last ``sync``. Kernel and SQLite write a page once for what happens within some seconds, so the pause
matters: with ``--gap 0`` a turn costs less than half. ``--logs-only`` has the database in memory, to tell what the
durable logs cost by themselves.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.client.ask import ask
from klaw.client.connection import connect
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tools.card import Card, card

QUESTION = "I promised Olga to repair the bicycle before we travel to Kazan, number {n}; Нина thinks it will be fine."
ANSWER = "I think that is a good plan, and we should tell Olga about it. " * 12
SETTLE_S = 10.0
"""Before and after, so that what a start does, and vectors that wait, are not counted or are."""


def keep_in_memory(home: Path, memory: Path) -> None:
    """Have the database of a new home elsewhere; SQLite follows the link with all its files."""
    (memory / "klaw.db").touch(0o600)
    (home / "data").mkdir(mode=0o700)
    (home / "data" / "klaw.db").symlink_to(memory / "klaw.db")


async def talk(card: Card, models: Path, turns: int, gap_s: float, memory: Path | None) -> dict[str, Any]:
    home = card.folder / "home"
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply(ANSWER)
        write_home(home, llm=llm.url, models=models, embedding={"gatherSeconds": 60})
        if memory is not None:
            keep_in_memory(home, memory)
        async with served(home) as server, connect(server.url) as client:
            await ask(client, "main", QUESTION.format(n=0), lambda _event: None)
            await trio.sleep(SETTLE_S)
            before, said = card.written(), 0
            for number in range(1, turns + 1):
                question = QUESTION.format(n=number)
                await ask(client, "main", question, lambda _event: None)
                said += len(question.encode()) + len(ANSWER.encode())
                await trio.sleep(gap_s)
            await trio.sleep(SETTLE_S)
            written = card.written() - before
    return {
        "turns": turns,
        "gap_s": gap_s,
        "written_kb_per_turn": round(written / turns / 1000, 1),
        "times_the_text": round(written / said, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="folder of the pulled models")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--gap", type=float, default=25.0, help="seconds between an answer and the next question")
    parser.add_argument("--mount", default="noatime", help="options of the file system")
    parser.add_argument("--logs-only", action="store_true", help="with the database in memory")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    models = arguments.models.absolute()
    with (
        tempfile.TemporaryDirectory() as scratch,
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        card(Path(scratch), arguments.mount) as mounted,
    ):
        database = Path(memory) if arguments.logs_only else None
        result = trio.run(talk, mounted, models, arguments.turns, arguments.gap, database)
    print(json.dumps(result) if arguments.json else "\n".join(f"{key}: {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
