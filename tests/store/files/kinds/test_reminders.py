"""Reminders and time zones in the store: said once, and still there after a reindex."""

from pathlib import Path

from klaw.actor.clock import iso
from klaw.domain.names import UserId, chat_id
from klaw.domain.task import RunStatus, delivery_message
from klaw.store.kinds import messages, run_edits, tasks
from tests.support.reindexing import differing
from tests.support.reindexing import run as reindexed
from tests.support.runs.tasks import run_of, task
from tests.support.stores import START, new, running_store

LOCAL, ANNA = UserId("local"), UserId("anna")
MAIN = chat_id(LOCAL, "main")


async def test_a_reminder_is_said_once_and_all_survives_a_reindex(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello")])
        await store.writer.run(tasks.put, task("reminder-1", reminder=True), "new")
        await store.writer.run(tasks.set_zone, LOCAL, "Europe/Berlin", iso(START))
        await store.writer.run(tasks.set_zone, LOCAL, "Asia/Tokyo", iso(START + 1))
        over = run_of("reminder-1", status=RunStatus.DONE, ended_at=iso(START), delivered=1, result="⏰ розы", model="")
        said = delivery_message(over, 1, MAIN, over.result, iso(START))
        assert not (await store.writer.run(run_edits.begin, over, delivery=said)).repeated
        assert (await store.writer.run(run_edits.begin, over, delivery=said)).repeated
    assert differing(reindexed(tmp_path)) == set()
    async with running_store(tmp_path) as store:
        assert await store.readers.run(tasks.zone, LOCAL) == "Asia/Tokyo"
        assert await store.readers.run(tasks.zone, ANNA) is None
        assert (await store.readers.run(tasks.existing, LOCAL, over.task)).reminder is True
        found = await store.readers.run(messages.after, MAIN, 0, 10)
        assert [each.content for each in found] == ["hello", "⏰ розы"]
