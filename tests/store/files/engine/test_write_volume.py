"""What storing costs a card: bytes that go into the WAL, which are the same on every machine."""

from pathlib import Path

from klaw.store.kinds import messages
from tests.support.stores import new, running_store

SAID = 40
TEXT = "I promised Olga to repair the bicycle before we travel to Kazan, number {n}; Нина thinks it will rain."


def wal_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("klaw.db-wal"))


async def test_a_message_writes_less_than_48_kb(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new(TEXT.format(n=n)) for n in range(2_000)])
    async with running_store(tmp_path) as store:  # opened with an empty WAL
        for n in range(SAID):
            await store.writer.run(messages.append, [new(TEXT.format(n=n))])
        assert 0 < wal_bytes(tmp_path) / SAID < 48_000
