"""When a problem is over, the notice says what works again; one that only became another one is no recovery."""

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Vitals
from klaw.domain.events import Event, HealthChanged
from klaw.health import WATCH_S, recovered, watch


class Parts:
    """Health and event sink in one."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        self.told: list[HealthChanged] = []

    def problems(self) -> Mapping[str, str]:
        return self.now

    def emit(self, event: Event) -> None:
        assert isinstance(event, HealthChanged)
        self.told.append(event)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("llm:zai", "the LLM provider zai is not known to fail any more"),
        ("mcp:notes", "the MCP server notes works again"),
        ("actor:a chat", "a chat works again"),
        ("budget_used_up", "there is room in the daily LLM budget again"),
        ("something_else", "this is over: it broke"),
    ],
)
def test_a_recovery_names_what_works(code: str, text: str) -> None:
    assert recovered(code, "it broke", {"uncovered": "x"}) == HealthChanged(
        code=code, text=text, details={"state": "recovered"}
    )


async def test_what_becomes_worse_is_never_said_to_work(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    parts = Parts()
    async with trio.open_nursery() as nursery:
        await nursery.start(
            lambda task_status: watch(Vitals(SystemClock()), task_status, problems=parts.problems, events=parts)
        )
        for now in ({"budget_low": "85 % is used"}, {"budget_used_up": "used up", "llm:zai": "zai is down"}, {}):
            parts.now = dict(now)
            await trio.sleep(2 * WATCH_S)
        nursery.cancel_scope.cancel(reason="the test is over")
    seen = [(each.code, each.text, dict(each.details)) for each in parts.told]
    assert seen == [
        ("budget_low", "85 % is used", {"state": "degraded"}),
        ("budget_low", "used up", {"state": "recovered", "now": "budget_used_up"}),
        ("budget_used_up", "used up", {"state": "degraded"}),
        ("llm:zai", "zai is down", {"state": "degraded"}),
        ("budget_used_up", "there is room in the daily LLM budget again", {"state": "recovered"}),
        ("llm:zai", "the LLM provider zai is not known to fail any more", {"state": "recovered"}),
    ]
