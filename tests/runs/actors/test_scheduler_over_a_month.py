"""Ten tasks over a month with two changes of clocks: every fire time right, none twice, by the real scheduler and the
real store. What is right is counted by brute force, minute by minute (``tests.support.runs.cron_by_minutes``)."""

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest
from trio.testing import MockClock

from klaw.actor.clock import from_iso, iso
from klaw.domain.message import MessageKind
from klaw.domain.names import LOCAL_USER
from klaw.domain.task import RunStatus
from klaw.store.kinds import messages
from tests.support.llm_server import text_reply
from tests.support.runs.cron_by_minutes import fire_times
from tests.support.runs.timing import open_chat, timed

CRONS = {
    "morning": ("0 9 * * 1-5", "Europe/Berlin"),
    "night-berlin": ("30 2 * * *", "Europe/Berlin"),
    "night-sydney": ("30 2 * * *", "Australia/Sydney"),
    "halves": ("*/30 1-3 * * 0,3", "Europe/Berlin"),
    "lord-howe": ("0 */12 * * *", "Australia/Lord_Howe"),
    "sundays": ("15 2 * * 0", "America/New_York"),
    "hourly": ("5 * 8,25,29 * *", "America/New_York"),
    "last": ("45 23 31 * *", "UTC"),
}


def _seconds(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("start", "end", "changes"),
    [
        # Sydney and Lord Howe skip a part of the night of October 4; Berlin has one hour of October 25 twice.
        ("2026-10-01T00:00+00:00", "2026-11-01T00:00+00:00", "2026-10-25T02:30+01:00"),
        # New York skips an hour on March 8, Berlin on March 29.
        ("2026-03-02T00:00+00:00", "2026-04-02T00:00+00:00", "2026-03-29T03:00+02:00"),
    ],
)
async def test_ten_tasks_over_a_month(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, start: str, end: str, changes: str
) -> None:
    began, ends = _seconds(start), _seconds(end)
    monkeypatch.setattr("klaw.runs.due.MAX_SLEEP_S", 86_400.0)
    async with timed(tmp_path, mock_clock, start=began) as there:
        here = there.here
        here.llm.respond = lambda _request: text_reply("Done. Готово.")
        await open_chat(here)
        add = here.app.tasks.scheduling.add
        wanted = Counter()
        for name, (cron, zone) in CRONS.items():
            raw = {"name": name, "message": f"{name}: подведи итоги", "cron": cron, "zone": zone, "injectInto": "main"}
            await add(LOCAL_USER, raw)
            wanted.update((name, moment) for moment in fire_times(cron, zone, began, ends))
        await add(LOCAL_USER, {"name": "often", "message": "Look", "every": "23h", "injectInto": "main"})
        wanted.update(("often", moment) for moment in range(began + 23 * 3600, ends + 1, 23 * 3600))
        await add(LOCAL_USER, {"name": "once", "message": "Ring", "at": changes, "injectInto": "main"})
        wanted["once", _seconds(changes)] = 1

        await there.until(ends)

        runs = await there.runs()
        assert {run.status for run in runs} == {RunStatus.DONE}
        assert Counter((run.task, int(from_iso(run.due))) for run in runs) == wanted
        # On time, so nothing is said of it, and the next one never began before the time came.
        assert {run.note for run in runs} == {None}
        assert all(0 <= from_iso(run.started_at) - from_iso(run.due) < 1 for run in runs)
        said = await here.app.core.readers.run(messages.after, here.chat, 0, len(runs) + 10)
        delivered = Counter(message.metadata["run"] for message in said if message.type is MessageKind.SCHEDULED)
        assert delivered == Counter(run.id for run in runs)
        assert len(here.llm.requests) == len(runs) + 1
        assert iso(there.now()) >= iso(ends)
