"""One run: its context, the conversation with the model and its tools, and its end. A child task of the scheduler."""

from functools import partial

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class, where
from klaw.agent.agent import Agent
from klaw.agent.claims import Claims
from klaw.agent.workspace import Fixed
from klaw.context.inputs import Budget
from klaw.context.request import request_tokens
from klaw.context.standing import standing
from klaw.domain import tokens
from klaw.domain.message import Kind, Role
from klaw.domain.task import Run, RunKind, RunStatus
from klaw.domain.text import clean
from klaw.errors import ActorStopped, ConfigError, ContextTooLong, KlawError, ProviderError, StorageFull
from klaw.llm.client import Meter
from klaw.llm.provider import Route
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Completion, Request, ToolDescription, Usage
from klaw.store.sql import due_runs, facts, runs, tasks
from klaw.subagents import history
from klaw.subagents.briefing import instructions, situation
from klaw.subagents.context import Inputs, assemble
from klaw.subagents.due import Rules, is_retried
from klaw.subagents.ending import Verdict, judge, notice
from klaw.subagents.limits import Limit, Refusal, day_of, refusal, tells_user
from klaw.subagents.live import OUTSIDE, LiveRun
from klaw.subagents.spending import Allowance, LimitReached
from klaw.toolbox.calls import PreparedCall
from klaw.toolbox.executor import CallResult
from klaw.toolbox.loop import Ending, Outcome, Prompt, converse
from klaw.toolbox.registry import tools_tokens
from klaw.toolbox.spec import ToolContext
from klaw.toolbox.trail import Trail

log = structlog.get_logger("klaw.run")


async def carry_out(live: LiveRun, agent: Agent, allowance: Allowance, *, timeout_s: float) -> None:
    """Carry a begun run out, and store its end.

    Expected failures end it with a status that says so.

    Args:
        live: the run; afterwards it holds the last state.
        agent: see ``Agent``.
        allowance: what it may spend.
        timeout_s: deadline of the whole run, without the storing of its end.

    Raises:
        ActorStopped: the store is gone; the run is found as interrupted at the next start.
        Exception: its end may be stored or not; see ``recovery.settle``.

    Cancellation: nothing is stored; the run is found as interrupted at the next start. ``live.cancel`` ends it instead.
    """
    course = _Course(live=live, agent=agent, allowance=allowance, meter=agent.llm.meter())
    verdict, text = await course.run(timeout_s)
    live.describe(usage=course.meter.record())
    # No checkpoint in between: a cancellation either counts here, or is told that it came too late.
    live.ending = True
    if live.cancelled_because is not None:
        verdict, text = Verdict(status=RunStatus.CANCELLED, note=live.cancelled_because), ""
    tells = await _tells(agent, live.run, verdict)
    if tells and verdict.error is not None and (live.run.notify or live.run.inject_into) is not None:
        live.describe(told=True)
    await live.end(verdict, text, partial(notice, tells=tells))
    log.info("run_ended", status=live.run.status.value, code=live.run.error)


@attrs.define(kw_only=True)
class _Course:
    """Implements ``toolbox.loop.Hooks`` for one run."""

    live: LiveRun
    agent: Agent
    allowance: Allowance
    meter: Meter

    async def run(self, timeout_s: float) -> tuple[Verdict, str]:
        """How the run ends, and its final text."""
        live = self.live
        try:
            with trio.move_on_after(timeout_s), live.scope:
                return await self._work()
        except ActorStopped:
            raise
        except LimitReached as error:
            return Verdict(status=RunStatus.FAILED, error=error.refused.limit, note=error.refused.note), ""
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the record says so and other runs go on
            code, note = describe_failure(error)
            log.warning("run_failed", code=code, error=error_class(error), where=where(error))
            if isinstance(error, ProviderError):
                live.describe(retryable=error.retryable)
            return Verdict(status=RunStatus.FAILED, error=code, note=note), ""
        note = f"it did not end within {timeout_s:g} s"
        return Verdict(status=RunStatus.TIMED_OUT, error="timeout", note=note), ""

    async def _work(self) -> tuple[Verdict, str]:
        live, agent = self.live, self.agent
        run = live.run
        await live.begin()
        await live.transcribe(Role.USER, Kind.TEXT, run.message, {})
        route = agent.llm.router.route(run.model, task="subagent")
        about = ToolContext(
            user=run.user,
            chat=None,
            run=run.id,
            task=run.task,
            deliver_to=live.target,
            depth=run.depth,
            model=route.name,
            trail=Trail(outside=run.details.get(OUTSIDE) is True),
        )
        rounds = agent.core.config.processing.max_tool_call_rounds
        tools = agent.tools.executor.toolbox.describe(about) if route.tools and rounds else ()
        limit = self.allowance.left(run)
        claims = Claims(about.trail)
        outcome = await converse(
            await self._prompt(route, tools),
            tools,
            lambda messages, offered: self._ask(route, messages, offered),
            executor=agent.tools.executor,
            context=about,
            hooks=self,
            new_id=agent.core.new_id,
            max_rounds=rounds,
            max_tokens=limit,
            reply_tokens=self._reply_tokens(route),
            shorter=lambda refused, error: self._shorter(route, tools, refused, error),
            correct=claims.object_to,
        )
        outcome = claims.settle(outcome)
        live.describe(**_account(outcome), **({"save_claim": claims.account} if claims.account else {}))
        text = clean(outcome.text).strip()
        reached = self._reached(self._reply_tokens(route)) if outcome.ending is Ending.BUDGET else None
        return judge(live.run, text, reached), text

    def _reached(self, needed: int) -> Refusal:
        """The limit that ended the conversation."""
        run, limits = self.live.run, self.allowance.limits
        note = f"the limit of one run is {limits.run} tokens"
        return refusal(limits, self.allowance.ledger.used(run), needed) or Refusal(limit=Limit.RUN, note=note)

    async def _prompt(self, route: Route, tools: tuple[ToolDescription, ...]) -> Prompt:
        agent, run = self.agent, self.live.run
        fixed: Fixed = await agent.workspace.fetch(run.user)
        core = standing(fixed.core_memory, await agent.core.readers.run(facts.standing, run.user))
        budget = self._budget(route)
        load = partial(
            history.load,
            agent.core.paths.conversations,
            run.user,
            run.task,
            runs=agent.core.config.context.subagent_history,
            max_tokens=budget.usable,
        )
        context = assemble(
            Inputs(
                system_prompt=fixed.system_prompt,
                instructions=instructions(run, with_tools=bool(tools)),
                core_memory=core.text,
                history=await agent.core.files.run(load, abandon=True),
                situation=situation(run),
                request=run.message,
                tools_tokens=tools_tokens(tools),
                with_tools=bool(tools),
                budget=budget,
            )
        )
        self.live.describe(earlier_runs=[past.id for past in context.history], **core.describe())
        return Prompt(messages=context.messages, max_tokens=budget.usable - tools_tokens(tools))

    async def _shorter(
        self,
        route: Route,
        tools: tuple[ToolDescription, ...],
        refused: tuple[ChatMessage, ...],
        error: ContextTooLong,
    ) -> Prompt:
        if error.context_tokens is not None and error.context_tokens < route.context_tokens:
            # A fallback with a shorter context.
            return await self._prompt(attrs.evolve(route, context_tokens=error.context_tokens), tools)
        estimated = request_tokens(refused) + tools_tokens(tools)
        usable = self._budget(route).usable
        self.agent.llm.correction.overflowed(route.name, refused=estimated, usable=usable)
        return await self._prompt(route, tools)

    def _budget(self, route: Route) -> Budget:
        return Budget(
            context_tokens=route.context_tokens,
            reply_reserve_tokens=self.agent.core.config.context.reply_reserve_tokens,
            correction=self.agent.llm.correction.of(route.name),
        )

    def _reply_tokens(self, route: Route) -> int:
        return min(route.max_output_tokens, self.agent.core.config.context.reply_reserve_tokens)

    async def _ask(
        self, route: Route, messages: tuple[ChatMessage, ...], tools: tuple[ToolDescription, ...]
    ) -> Completion:
        """One LLM call, after those that somebody waits for."""
        agent, live = self.agent, self.live
        estimated = request_tokens(messages) + tools_tokens(tools)
        reply = self._reply_tokens(route)
        request = Request(
            model=route.model,
            messages=messages,
            tools=tools,
            temperature=agent.core.config.llm.temperature,
            max_tokens=reply,
            stable_messages=len(messages) if tools else 0,
        )
        async with agent.llm.slots.slot(Priority.BACKGROUND):
            with self.allowance.ledger.call(live.run, self.allowance.limits, estimated, reply) as call:
                request = attrs.evolve(request, max_tokens=call.answer_tokens)
                completion = await self.meter.stream(route, request, lambda _delta: None)
                usage = completion.usage or Usage(
                    prompt_tokens=estimated, completion_tokens=tokens.estimate(completion.text)
                )
                call.count(usage)
                live.spend(usage)
        if completion.usage is not None:
            agent.llm.correction.learn(
                completion.model or route.name, estimated=estimated, reported=completion.usage.prompt_tokens
            )
        return completion

    # -- the hooks of the loop -------------------------------------------------------------------------------------

    async def called(self, text: str, calls: tuple[PreparedCall, ...]) -> None:
        """See ``Hooks.called``."""
        told = [
            {"id": prepared.call.id, "name": prepared.call.name, "arguments": prepared.call.arguments}
            for prepared in calls
        ]
        await self.live.transcribe(Role.ASSISTANT, Kind.TOOL_CALL, clean(text), {"calls": told})
        # What was spent counts against the day's limits also after a crash.
        await self.live.save()

    def started(self, call: PreparedCall) -> None:
        """See ``Hooks.started``."""

    async def ended(self, result: CallResult) -> None:
        """See ``Hooks.ended``."""
        about = {"call": result.call.id, "name": result.call.name, "error": result.failed}
        if result.origin != "tool":
            about["origin"] = result.origin
        await self.live.transcribe(Role.TOOL, Kind.TOOL_RESULT, result.text, about)


def describe_failure(error: Exception) -> tuple[str, str]:
    """Error code and note of a run's record. Never quotes the provider or unknown errors."""
    match error:
        case ProviderError():
            return error.code, str(error)
        case StorageFull():
            return "storage_full", "the disk is full or read-only"
        case ConfigError():
            return "config", str(error)
        case KlawError():
            return "failed", f"it could not be carried out ({error_class(error)})"
        case _:
            return "internal", f"an internal error occurred ({error_class(error)}); the log has its place"


async def _tells(agent: Agent, run: Run, verdict: Verdict) -> bool:
    """Whether the user is told of a failure: not while another attempt follows, and once a day for each task (of what
    a person asked for by hand always) and for each limit."""
    if verdict.error is None or run.kind is RunKind.SPAWNED:
        return True
    today = day_of(run.started_at)
    if verdict.error in set(Limit):
        earlier = await agent.core.readers.run(due_runs.limited, run.user, today, verdict.error)
        return tells_user(Refusal(limit=Limit(verdict.error), note=""), run, earlier)
    if run.kind is RunKind.MANUAL:
        return True
    if await agent.core.readers.run(due_runs.told, run.user, run.task, today):
        return False
    return not await _is_retried(agent, run, verdict)


async def _is_retried(agent: Agent, run: Run, verdict: Verdict) -> bool:
    """Whether another attempt follows a run that ends so; a task that was removed meanwhile has none."""
    task = await agent.core.readers.run(tasks.get, run.user, run.task)
    if task is None:
        return False
    now = agent.core.clock.now()
    earlier = await agent.core.readers.run(runs.attempts, run.user, run.task, run.kind, run.due)
    ended = attrs.evolve(run, status=verdict.status, error=verdict.error, ended_at=iso(now))
    attempts = [*(other for other in earlier if other.id != run.id), ended]
    rules = Rules(
        max_concurrent=agent.core.config.subagents.max_concurrent, retries=agent.core.config.subagents.retries
    )
    return is_retried(task, attempts, rules, now=now)


def _account(outcome: Outcome) -> dict[str, object]:
    return {
        "rounds": outcome.rounds,
        "calls": list(outcome.calls),
        "llm_calls": outcome.llm_calls,
        "ending": outcome.ending.value,
        "finish_reason": outcome.finish_reason,
    }
