"""What a message and a turn cost the disk, and which tables the bytes are for.

    python tools/bench_writes.py [--messages 20000] [--operations 100] [--json]

Fills a store in this process through its writer, with a vector for each message, and then stores as one quiet user
does, each in a commit of its own: a message; a message and then its vector; a turn of a question, its vector, an answer
with a receipt of 3 kB, and its vector. ``written`` is what the kernel counts for this process (pages of files made
dirty, checkpoints included), ``wal`` the part of it that goes into the WAL, by what its pages belong to.
"""

import argparse
import json
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import attrs
import numpy as np
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import iso
from klaw.config.paths import Paths
from klaw.domain.message import Message, MessageKind, NewMessage, Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.store.engine.connect import prepare_reader
from klaw.store.kinds import messages as stored_messages
from klaw.store.kinds.messages import AppendedMessage
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.stores import running_store
from tests.support.turns import record
from tools.bench_turn import CHAT, messages_of

MODEL, DIMENSION = "bench", 384
TEXT = (
    "I promised Olga to repair the bicycle before we travel to Kazan, number {n}; Нина thinks that the weather in the "
    "hills will be fine."
)
WAL_HEADER, FRAME_HEADER = 32, 24


def written() -> int:
    """Bytes of files that this process has made dirty."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


def wal_bytes(database: Path) -> Counter[str]:
    """Bytes of the WAL by the table or index that its pages belong to."""
    wal = Path(f"{database}-wal").read_bytes()
    size, salt = struct.unpack_from(">I", wal, 8)[0], wal[16:24]
    frames = range(WAL_HEADER, len(wal) - size - FRAME_HEADER + 1, size + FRAME_HEADER)
    pages = [struct.unpack_from(">I", wal, at)[0] for at in frames if wal[at + 8 : at + 16] == salt]
    connection = apsw.Connection(str(database))
    prepare_reader(connection)
    owner = {page: name for name, page in connection.execute("SELECT name, pageno FROM dbstat")}
    connection.close()
    return Counter(
        {name: n * (size + FRAME_HEADER) for name, n in Counter(owner.get(p, "free") for p in pages).items()}
    )


class Talk:
    """Stores as one quiet user does."""

    def __init__(self, store: Store) -> None:
        self._writer = store.writer
        self._noise = np.random.default_rng(7)
        self._number = 0

    async def message(self) -> Message:
        return await self._said(Role.USER)

    async def message_and_vector(self) -> Message:
        return await self._with_vector(await self._said(Role.USER))

    async def turn(self) -> None:
        question = await self.message_and_vector()
        turn = attrs.evolve(record(question), receipt={"recall": "x" * 3000})
        await self._with_vector(await self._said(Role.ASSISTANT, turn))

    async def vectors(self, stored: Sequence[AppendedMessage]) -> None:
        made = self._noise.normal(0, 1, (len(stored), DIMENSION))
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        rowids = [each.message.rowid for each in stored]
        await self._writer.run(
            stored_vectors.store,
            MODEL,
            [(rowid, vector.astype("<f4").tobytes()) for rowid, vector in zip(rowids, made, strict=True)],
        )

    async def _said(self, role: Role, turn: Any = None) -> Message:
        self._number += 1
        content = TEXT.format(n=self._number)
        new = NewMessage(
            id=f"said{self._number}",
            chat=chat_id(LOCAL_USER, CHAT),
            user=LOCAL_USER,
            channel="bench",
            role=role,
            type=MessageKind.TEXT,
            content=content,
            tokens=40,
            created_at=iso(time.time()),
        )
        return (await self._writer.run(stored_messages.append, [new], turn))[0].message

    async def _with_vector(self, message: Message) -> Message:
        await self.vectors([AppendedMessage(message, repeated=False)])
        return message


async def measure(database: Path, operation: Callable[[], Awaitable[object]], count: int) -> dict[str, Any]:
    connection = apsw.Connection(str(database))
    connection.set_busy_timeout(10_000)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    begin = written()
    for _ in range(count):
        await operation()
    total = written() - begin
    parts = wal_bytes(database)
    connection.close()
    return {
        "written_kb": round(total / count / 1000, 1),
        "wal_kb": {name: round(size / count / 1000, 1) for name, size in parts.most_common()},
    }


async def run(home: Path, messages: int, operations: int) -> dict[str, Any]:
    paths = Paths.resolve(home)
    made = messages_of(LOCAL_USER, messages, time.time() - messages, random.Random(7))
    async with running_store(paths.data_dir) as store:
        talk = Talk(store)
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        for start in range(0, messages, 500):
            stored = await store.writer.run(stored_messages.append, made[start : start + 500])
            await store.writer.run(stored_messages.append, [], record(stored[-1].message))
            await talk.vectors(stored)
        while await store.writer.run(stored_vectors.encode):
            pass
        kinds = {"message": talk.message, "message and vector": talk.message_and_vector, "turn": talk.turn}
        return {name: await measure(paths.database, operation, operations) for name, operation in kinds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000, help="in the store before measuring")
    parser.add_argument("--operations", type=int, default=100, help="of each kind, at most 100: the WAL must hold them")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = trio.run(run, Path(scratch), arguments.messages, arguments.operations)
    if arguments.json:
        print(json.dumps(result))
        return
    for name, found in result.items():
        print(f"{name}: {found['written_kb']} kB written, {sum(found['wal_kb'].values()):.1f} kB of it WAL")
        for part, size in list(found["wal_kb"].items())[:12]:
            print(f"    {part:<40} {size}")


if __name__ == "__main__":
    main()
