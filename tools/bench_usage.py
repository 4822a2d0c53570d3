"""How long questions about usage take in a database of many turns, and what the table costs.

    python tools/bench_usage.py [--turns N]

Builds a database in a temporary folder and removes it.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import apsw

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import iso
from klaw.domain.message import MessageKind, NewMessage, Role, TurnRecord, TurnStatus
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.domain.usage import UsageSum, record
from klaw.store import migrations
from klaw.store.engine.connect import prepare_writer
from klaw.store.kinds import messages, turns, usage
from klaw.store.kinds.usage import By, UsageFilters

CHATS, USERS, MODELS, DAYS = 50, 4, 5, 90
START, DAY_S = 1_760_000_000.0, 86_400
RECEIPT = {"budget": {"correction": 1.1}, "filling": "x" * 3000}
ROUNDS = 5


def day(number: int) -> str:
    return iso(START + number * DAY_S)


def make_chat(connection: apsw.Connection, number: int) -> ChatId:
    user = UserId(f"u{number % USERS}")
    chat = chat_id(user, f"c{number}")
    fields: dict[str, Any] = {"channel": "bench", "role": Role.USER, "type": MessageKind.TEXT, "content": "hello"}
    new = NewMessage(id=f"m{number}", chat=chat, user=user, tokens=2, created_at=day(0), metadata={}, **fields)
    messages.insert(connection, new)
    return chat


def turn(number: int, chat: ChatId) -> TurnRecord:
    model = f"cloud/m{number % MODELS}"
    at = day(number % DAYS)
    return TurnRecord(
        id=f"t{number:09}",
        chat=chat,
        user=UserId(chat.partition(":")[0]),
        segment=0,
        status=TurnStatus.DONE,
        model=model,
        first_seq=1,
        last_seq=1,
        started_at=at,
        ended_at=at,
        error=None,
        receipt=RECEIPT,
        usage=record({model: UsageSum(calls=1, prompt_tokens=1000, completion_tokens=100, cost_nano=12_345)}),
        timings={},
    )


def fill(connection: apsw.Connection, chats: list[ChatId], numbers: range) -> float:
    """Store turns; microseconds for each."""
    begin = time.perf_counter()
    with connection:
        for number in numbers:
            turns.insert(connection, turn(number, chats[number % CHATS]))
    return (time.perf_counter() - begin) / len(numbers) * 1e6


def best_ms(ask: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - begin)
    return min(taken) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=100_000)
    count = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(str(Path(folder) / "klaw.db"))
        prepare_writer(connection)
        prepare_writer(connection)
        migrations.migrate(connection)
        chats = [make_chat(connection, number) for number in range(CHATS)]
        with_table = fill(connection, chats, range(count))
        questions: dict[str, Callable[[], object]] = {
            "today": lambda: usage.total(connection, UsageFilters(since=day(DAYS - 1)[:10])),
            "/usage": lambda: usage.of_chat(connection, chats[0], day(DAYS - 1)[:10]),
            "corrections": lambda: usage.corrections(connection, 200),
            "one sum over turns.usage": lambda: (
                connection.execute("SELECT sum(usage ->> '$.cost_nano') FROM turns").get
            ),
        }
        for by in get_args(By):
            lately = UsageFilters(since=day(DAYS - 30)[:10])
            questions[f"30 days by {by}"] = lambda by=by, some=lately: usage.both(connection, some, by)  # type: ignore[misc]
            questions[f"all by {by}"] = lambda by=by: usage.both(connection, UsageFilters(), by)  # type: ignore[misc]
        for name, ask in questions.items():
            print(f"{name:<26} {best_ms(ask):8.1f} ms")
        size = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'charges'").get
        connection.execute("DROP TRIGGER turns_charged")
        without = fill(connection, chats, range(count, count + count // 5))
        print(f"storing a turn: {with_table:.0f} us, without the table {without:.0f} us")
        print(f"the table: {size / 1e6:.1f} MB")
        connection.close()


if __name__ == "__main__":
    main()
