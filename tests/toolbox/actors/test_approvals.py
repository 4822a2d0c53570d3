"""Questions to users: who is asked, how they end, and what the model is told. Mock clock, no network."""

from typing import Annotated, Any

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from klaw.actor.clock import SystemClock, new_id
from klaw.domain.events import ApprovalAsked, ApprovalEnded, Outcome
from klaw.domain.names import UserId, chat_id
from klaw.errors import ToolRefused
from klaw.toolbox.approvals import MAX_OPEN_PER_CHAT, MAX_WHAT_CHARS, Approvals
from klaw.toolbox.spec import Permission, ToolContext, tool

ANNA, BOB = UserId("anna"), UserId("bob")
CHAT = chat_id(ANNA, "main")
CONTEXT = ToolContext(user=ANNA, chat=CHAT, turn="t1")


@attrs.define
class World:
    events: list[Any] = attrs.Factory(list)
    watching: int = 1
    approvals: Approvals = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.approvals = Approvals(
            events=self, clock=SystemClock(), new_id=new_id, wait_s=120, watchers=lambda _: self.watching
        )

    def emit(self, event: Any) -> None:
        self.events.append(event)

    async def decide(self, allow: bool | None, context: ToolContext = CONTEXT, text: str = "rm x") -> str | None:
        """What the executor is told when the user answers so; None does not answer."""
        result: list[str | None] = []

        async def ask() -> None:
            result.append(await self.approvals.approve(context, danger, {"text": text}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            if allow is not None:
                (approval,) = self.approvals.open(context.chat or context.deliver_to or CHAT)
                assert self.approvals.answer(approval, allow=allow) is not None
        return result[0]


@tool(permission=Permission.APPROVAL)
async def danger(_context: ToolContext, text: Annotated[str, "what"]) -> str:
    """Do something."""
    return text


async def test_allowed_and_denied(autojump_clock: MockClock) -> None:
    world = World()

    assert await world.decide(True, text="Удалить \u202e'x'") is None
    refused = await world.decide(False)

    assert refused is not None
    assert "the user said no" in refused
    assert [type(event) for event in world.events] == [ApprovalAsked, ApprovalEnded] * 2
    asked = world.events[0].approval
    assert (asked.chat, asked.tool, asked.turn) == (CHAT, "danger", "t1")
    assert asked.what == 'danger {"text": "Удалить \\u202e\'x\'"}'
    assert [event.outcome for event in world.events[1::2]] == [Outcome.ALLOWED, Outcome.DENIED]
    assert world.approvals.open(CHAT) == ()


async def test_no_answer_is_no(autojump_clock: MockClock) -> None:
    world = World()

    there = await world.decide(None)
    world.watching = 0
    away = await world.decide(None)

    assert there is not None
    assert "did not answer in 120 s" in there
    assert away is not None
    assert "is not connected, so nobody answered in 120 s" in away
    assert trio.current_time() >= 240
    assert [event.outcome for event in world.events[1::2]] == [Outcome.EXPIRED, Outcome.EXPIRED]


async def test_first_answer_wins(autojump_clock: MockClock) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.approvals.approve, CONTEXT, danger, {"text": "x"})
        await wait_all_tasks_blocked()
        (approval,) = world.approvals.open(CHAT)

        assert world.approvals.find(BOB, approval.id) is None
        assert world.approvals.find(ANNA, approval.id) == approval
        assert world.approvals.answer(approval, allow=False) is Outcome.DENIED
        assert world.approvals.answer(approval, allow=True) is None
        assert world.approvals.find(ANNA, approval.id) is None


async def test_run_of_a_subagent_asks_where_its_result_goes(autojump_clock: MockClock) -> None:
    world = World()
    other = chat_id(ANNA, "дом")
    run = ToolContext(user=ANNA, chat=None, run="r1", deliver_to=other)

    assert await world.decide(True, run) is None
    assert world.events[0].chat == other

    alone = await world.approvals.approve(attrs.evolve(run, deliver_to=None), danger, {"text": "x"})
    foreign = await world.approvals.approve(attrs.evolve(run, deliver_to=chat_id(BOB, "main")), danger, {"text": "x"})
    for refused in (alone, foreign):
        assert refused is not None
        assert "no chat to ask them in" in refused
    assert len(world.events) == 2


async def test_own_question_of_a_tool(autojump_clock: MockClock) -> None:
    world = World()

    async def question(_context: ToolContext, arguments: Any) -> str | None:
        if arguments["text"] == "bad":
            raise ToolRefused("It cannot be")
        return None if arguments["text"] == "free" else f"[where] {arguments['text']}"

    spec = attrs.evolve(danger, question=question)

    assert await world.approvals.approve(CONTEXT, spec, {"text": "free"}) is None
    assert await world.approvals.approve(CONTEXT, spec, {"text": "bad"}) == "It cannot be."
    long = await world.approvals.approve(CONTEXT, spec, {"text": "x" * MAX_WHAT_CHARS})
    assert long is not None
    assert "too long to be shown" in long
    assert world.events == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.approvals.approve, CONTEXT, spec, {"text": "x"})
        await wait_all_tasks_blocked()
        assert world.approvals.open(CHAT)[0].what == "[where] x"
        nursery.cancel_scope.cancel()


async def test_cancelled_turn_withdraws_its_question(autojump_clock: MockClock) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.approvals.approve, CONTEXT, danger, {"text": "x"})
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel(reason="/stop")

    assert world.approvals.open(CHAT) == ()
    assert world.events[-1].outcome is Outcome.WITHDRAWN


async def test_number_of_questions_is_bounded(autojump_clock: MockClock) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        for _ in range(MAX_OPEN_PER_CHAT):
            nursery.start_soon(world.approvals.approve, CONTEXT, danger, {"text": "x"})
        await wait_all_tasks_blocked()

        refused = await world.approvals.approve(CONTEXT, danger, {"text": "x"})

        assert refused is not None
        assert "too many questions" in refused
        nursery.cancel_scope.cancel()


async def test_shutdown_withdraws_and_asks_no_more(autojump_clock: MockClock) -> None:
    world = World()
    results: list[str | None] = []

    async def ask() -> None:
        results.append(await world.approvals.approve(CONTEXT, danger, {"text": "x"}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        world.approvals.close()
    await ask()

    assert results[0] == "danger was not run: the server is stopping."
    assert results[1] is not None
    assert "server is stopping" in results[1]
    assert trio.current_time() < 100
