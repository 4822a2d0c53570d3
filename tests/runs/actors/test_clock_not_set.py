"""A board without a clock of its own: tasks wait until its time is set, and go on by themselves."""

from pathlib import Path

import pytest
from trio.testing import MockClock

import klaw.runs.scheduler as scheduler_module
from klaw.actor.clock import iso
from klaw.domain.names import LOCAL_USER
from klaw.domain.task import RunStatus
from klaw.runs.due import BEHIND_S, PATIENCE_S, Clocks
from tests.runs.actors.test_scheduler_failures import START, add
from tests.support.llm_server import text_reply
from tests.support.runs.timing import Timed, open_chat, timed

DAY = 86_400.0
HOUR = 3600.0


@pytest.fixture(autouse=True)
def not_synchronized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether systemd has set this machine's own clock does not count here."""
    monkeypatch.setattr(scheduler_module, "SYNCHRONIZED", tmp_path / "synchronized")


async def used_before(home: Path, mock_clock: MockClock) -> None:
    """Klaw ran until START, with a task every hour."""
    async with timed(home, mock_clock, start=START) as there:
        there.here.llm.respond = lambda _request: text_reply("Готово.")
        await open_chat(there.here)
        await add(there.here, "hourly", every="1h")
        await there.until(START + 2 * HOUR + 1)
        assert len(await there.runs()) == 2


def doubt(there: Timed) -> str | None:
    return there.here.app.core.health.problems().get("clock")


@pytest.mark.parametrize("start", [1000.0, START - 40 * DAY], ids=["1970", "where it was stopped"])
async def test_tasks_wait_for_the_clock_and_catch_up_with_one_run(
    tmp_path: Path, mock_clock: MockClock, start: float
) -> None:
    await used_before(tmp_path / "home", mock_clock)
    async with timed(tmp_path / "home", mock_clock, start=start) as there:
        there.here.llm.respond = lambda _request: text_reply("Ok.")
        await there.until(start + 5 * HOUR)
        assert len(await there.runs()) == 2
        assert "scheduled tasks wait until it is set" in (doubt(there) or "")
        assert iso(start)[:10] in (doubt(there) or "")
        there.clock.set_by(START + 3 * DAY - there.now())
        await there.passes(61)
        await there.rest()
        assert doubt(there) is None
        late = (await there.runs())[2:]
        assert [(run.status, run.delivered) for run in late] == [(RunStatus.DONE, 1)]
        assert "earlier fire times skipped: " in (late[0].note or "")
        await there.until(there.now() + 2 * HOUR)
        assert len(await there.runs()) == 5


async def test_what_a_person_asks_for_starts_all_the_same(tmp_path: Path, mock_clock: MockClock) -> None:
    await used_before(tmp_path / "home", mock_clock)
    async with timed(tmp_path / "home", mock_clock, start=1000.0) as there:
        there.here.llm.respond = lambda _request: text_reply("Ok.")
        await there.here.app.tasks.scheduling.run_now(LOCAL_USER, "hourly")
        await there.rest()
        assert len(await there.runs()) == 3


async def test_a_clock_that_the_network_set_is_believed(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was ahead when messages were stored, and is right now."""
    await used_before(tmp_path / "home", mock_clock)
    async with timed(tmp_path / "home", mock_clock, start=START - 40 * DAY) as there:
        await there.stalls()
        assert doubt(there) is not None
        monkeypatch.setattr(scheduler_module, "SYNCHRONIZED", Path(__file__))
        await there.passes(61)
        await there.rest()
        assert doubt(there) is None


@pytest.mark.parametrize(
    ("wall", "waited_s", "believed"),
    [
        (START, 0, True),
        (START - BEHIND_S + 1, 0, True),
        (START - BEHIND_S - 1, 0, False),
        (START - 300 * DAY, PATIENCE_S - 1, False),
        (START - 300 * DAY, PATIENCE_S, True),
        (1000.0, PATIENCE_S, False),
    ],
)
def test_when_a_clock_is_believed(wall: float, waited_s: float, believed: bool) -> None:
    clocks = Clocks(wall=wall, monotonic=7.0, last_seen=START)
    clocks.jumped_s(wall=wall, monotonic=7.0 + waited_s)
    assert (clocks.doubt(synchronized=lambda: False) is None) is believed


def test_a_clock_that_was_right_may_be_set_back_but_not_to_before_klaw() -> None:
    clocks = Clocks(wall=START, monotonic=0.0, last_seen=START)
    assert clocks.doubt(synchronized=lambda: False) is None
    clocks.jumped_s(wall=START - 90 * DAY, monotonic=1.0)
    assert clocks.doubt(synchronized=lambda: False) is None
    clocks.jumped_s(wall=0.0, monotonic=2.0)
    assert clocks.doubt(synchronized=lambda: True) is not None
