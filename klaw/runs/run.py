"""One run: its context, the conversation with the model and its tools, and its end. A child task of the scheduler.

The context is system prompt, core memory, the task's last runs (the oldest are left out first), then the request."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class, where
from klaw.agent.agent import Agent
from klaw.agent.claims import with_end
from klaw.agent.conversation import Conversation, Ending, ModelCall, describe_failure
from klaw.agent.linked_answer import link_sources
from klaw.context.assemble import FIXED_SHARE, PENDING_SHARE, headed, layer
from klaw.context.inputs import Budget
from klaw.context.pinned_facts import standing
from klaw.context.repair import repair
from klaw.context.request import shorten
from klaw.domain import tokens
from klaw.domain.days import local_clock
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import zone as zone_of
from klaw.domain.task import Run, RunKind, RunStatus
from klaw.domain.text import CORE_MEMORY_HEADER, clean, one_line
from klaw.errors import ActorStopped, LimitReached
from klaw.llm.client import Meter
from klaw.llm.errors import ProviderError
from klaw.llm.providers.adapt import request_tokens
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Delta, ToolCall, Usage
from klaw.prompts import prompt
from klaw.runs import transcripts
from klaw.runs.due import is_retried
from klaw.runs.limits import Ledger, RunLimit, day_of, refusal, was_told
from klaw.runs.run_state import OUTSIDE, LiveRun, Verdict, judge
from klaw.runs.transcripts import PastRun
from klaw.store.kinds import facts, runs, tasks
from klaw.toolbox.spec import ToolContext, Trail

log = structlog.get_logger("klaw.run")


async def carry_out(live: LiveRun, agent: Agent, ledger: Ledger) -> None:
    """Carry a begun run out, and store its end. Expected failures end the run with a status that says so. After any
    other exception its end may be stored or not; see ``recovery.settle``. Raises ActorStopped: the store is gone; then,
    as after cancellation, the run is found as interrupted at the next start."""
    course = _Course(live=live, agent=agent, ledger=ledger, meter=agent.llm.meter())
    verdict, text = await course.run()
    live.describe(usage=course.meter.record())
    # No checkpoint in between: a cancellation either counts here, or is refused as too late.
    live.ending = True
    if live.cancelled_because is not None:
        verdict, text = Verdict(status=RunStatus.CANCELLED, note=live.cancelled_because), ""
    tells = await _tells(agent, live.run, verdict)
    if tells and verdict.error is not None and (live.run.notify or live.run.inject_into) is not None:
        live.describe(told=True)
    await live.end(verdict, text, tells=tells)
    log.info("run_ended", status=live.run.status.value, code=live.run.error)


@attrs.define(kw_only=True)
class _Course:
    live: LiveRun
    agent: Agent
    ledger: Ledger
    meter: Meter
    _with_tools: bool = False

    async def run(self) -> tuple[Verdict, str]:
        live = self.live
        try:
            with trio.move_on_after(live.timeout_s), live.scope:
                return await self._work()
        except ActorStopped:
            raise
        except LimitReached as error:
            return Verdict(status=RunStatus.FAILED, error=error.limit, note=str(error)), ""
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the record says so and other runs go on
            code, note = describe_failure(error)
            log.warning("run_failed", code=code, error=error_class(error), where=where(error))
            if isinstance(error, ProviderError):
                live.describe(retryable=error.retryable)
            return Verdict(status=RunStatus.FAILED, error=code, note=note), ""
        note = f"it did not end within {live.timeout_s:g} s"
        return Verdict(status=RunStatus.TIMED_OUT, error="timeout", note=note), ""

    async def _work(self) -> tuple[Verdict, str]:
        live, agent = self.live, self.agent
        run = live.run
        await live.begin()
        await live.transcribe(Role.USER, MessageKind.TEXT, run.message, {})
        route = await agent.llm.route(run.model, task="subagent")
        about = ToolContext(
            user=run.user,
            chat=None,
            run=run.id,
            task=run.task,
            deliver_to=live.target,
            depth=run.depth,
            model=route.name,
            sees=route.images,
            trail=Trail(outside=run.details.get(OUTSIDE) is True),
        )
        left = self.ledger.left(run, live.limits)
        conversation = Conversation(agent=agent, host=self, route=route, meter=self.meter, about=about, max_tokens=left)
        self._with_tools = bool(conversation.tools)
        await conversation.run()
        live.describe(
            ending=conversation.ending,
            rounds=conversation.rounds,
            calls=conversation.calls,
            llm_calls=conversation.llm_calls,
            finish_reason=conversation.finish_reason,
        )
        if conversation.claims.account is not None:
            live.describe(save_claim=conversation.claims.account)
        text = link_sources(clean(conversation.text).strip(), about.trail.sources).whole
        text = with_end(text, conversation.finish_reason) if text else text
        reached = self._reached(conversation.reply_tokens) if conversation.ending is Ending.BUDGET else None
        return judge(live.run, text, reached), text

    def _reached(self, needed: int) -> LimitReached:
        note = f"the limit of one run is {self.live.limits.get(RunLimit.RUN)} tokens"
        used = self.ledger.used(self.live.run)
        return refusal(self.live.limits, used, needed) or LimitReached(RunLimit.RUN.value, note)

    # -- the host of the conversation ------------------------------------------------------------------------------

    async def context(self, budget: Budget, tools_tokens: int) -> tuple[ChatMessage, ...]:
        agent, run = self.agent, self.live.run
        fixed = await agent.workspace.fetch(run.user)
        core = standing(fixed.core_memory, await agent.core.readers.run(facts.standing, run.user))
        load = partial(
            transcripts.load,
            agent.core.paths.conversations,
            run.user,
            run.task,
            runs=agent.core.config.context.subagent_history,
            max_tokens=budget.usable,
        )
        context = assemble(
            system_prompt=fixed.system_prompt,
            instructions=instructions(run, with_tools=self._with_tools),
            core_memory=core.text,
            history=await agent.core.files.run(load, abandon=True),
            situation=situation(run, await agent.core.readers.run(tasks.zone, run.user)),
            request=run.message,
            tools_tokens=tools_tokens,
            with_tools=self._with_tools,
            budget=budget,
        )
        self.live.describe(earlier_runs=[past.id for past in context.history], **core.describe())
        return context.messages

    @asynccontextmanager
    async def call(self, estimated: int, most: int) -> AsyncIterator[ModelCall]:
        """Ask after the calls that somebody waits for, and within the limits."""
        live = self.live
        async with self.agent.llm.slots.slot(Priority.BACKGROUND):
            with self.ledger.call(live.run, live.limits, estimated, most) as call:

                def count(usage: Usage) -> None:
                    call.count(usage)
                    live.spend(usage)

                yield ModelCall(answer_tokens=call.answer_tokens, count=count)

    def heard(self, delta: Delta) -> None:
        """Nobody watches a run."""

    def tool_used(self, call: ToolCall, state: str, what: str) -> None:
        """Nobody watches a run."""

    async def keep(self, role: Role, kind: MessageKind, text: str, metadata: dict[str, Any]) -> None:
        await self.live.transcribe(role, kind, text, metadata)
        if kind is MessageKind.TOOL_CALL:
            await self.live.save()  # what was spent counts against the day's limits also after a crash


async def _tells(agent: Agent, run: Run, verdict: Verdict) -> bool:
    """Whether the user is told of a failure: after the last attempt, once a day for each task and limit, and always of
    a run that a person started."""
    if verdict.error is None or run.kind is RunKind.SPAWNED:
        return True
    if verdict.error in set(RunLimit):
        return not await was_told(agent.core.readers, run, verdict.error)
    if run.kind is RunKind.MANUAL:
        return True
    if await agent.core.readers.run(runs.told, run.user, run.task, day_of(run.started_at)):
        return False
    return not await _is_retried(agent, run, verdict)


async def _is_retried(agent: Agent, run: Run, verdict: Verdict) -> bool:
    task = await agent.core.readers.run(tasks.get, run.user, run.task)
    if task is None:
        return False
    now = agent.core.clock.now()
    earlier = await agent.core.readers.run(runs.attempts, run.user, run.task, run.kind, run.due)
    ended = attrs.evolve(run, status=verdict.status, error=verdict.error, ended_at=iso(now))
    attempts = [*(other for other in earlier if other.id != run.id), ended]
    return is_retried(task, attempts, agent.core.config.subagents, now=now)


# -- the context ------------------------------------------------------------------------------------------------------

EMPTY_ANSWER = json.dumps({"silent": True})
"""Shown for an empty answer of an earlier run: providers refuse empty messages, and this is the form that is wanted."""


@attrs.frozen(kw_only=True)
class RunContext:
    messages: tuple[ChatMessage, ...]
    history: tuple[PastRun, ...]
    """The earlier runs that are in it; those before did not fit."""


def assemble(
    *,
    system_prompt: str,
    instructions: str,
    core_memory: str,
    history: Sequence[PastRun],
    situation: str,
    request: str,
    tools_tokens: int,
    with_tools: bool,
    budget: Budget,
) -> RunContext:
    """The messages of a run's first request. ``history``: the last complete runs, oldest first; without tools their
    calls are left out. What differs from run to run (``situation``) stands last, for prompt caches."""
    usable = budget.usable
    texts = {
        "system_prompt": system_prompt,
        "instructions": instructions,
        "core_memory": headed(CORE_MEMORY_HEADER, core_memory),
    }
    fixed = [layer(name, text, int(usable * FIXED_SHARE)) for name, text in texts.items() if text]
    asked = shorten("\n\n".join(filter(None, (situation, request))), int(usable * PENDING_SHARE))
    left = usable - sum(layer.tokens for layer in fixed) - tokens.estimate(asked) - tokens.PER_MESSAGE - tools_tokens
    kept: list[PastRun] = []
    past: list[ChatMessage] = []
    for run in reversed(history):
        messages = run_messages(run, with_tools=with_tools)
        left -= request_tokens(messages)
        if left < 0:
            break
        kept.insert(0, run)
        past = [*messages, *past]
    system = "\n\n".join(layer.text for layer in fixed)
    first = [ChatMessage(role="system", content=system)] if system else []
    return RunContext(messages=(*first, *past, ChatMessage(role="user", content=asked)), history=tuple(kept))


def run_messages(run: PastRun, *, with_tools: bool) -> tuple[ChatMessage, ...]:
    said = []
    for message in run.messages:
        if transcripts.ends_a_run(message):
            said.append(attrs.evolve(message, content=message.content.strip() or EMPTY_ANSWER))
        elif message.role == "user" or (with_tools and message.role != "system"):
            said.append(message)
    return repair(said)


def instructions(run: Run, *, with_tools: bool) -> str:
    parts = [prompt("subagent")]
    if run.kind is RunKind.HEARTBEAT:
        parts.append(prompt("subagent_heartbeat"))
    elif run.inject_into is not None:
        parts.append(prompt("subagent_deliver" if with_tools else "subagent_answer"))
    return "\n\n".join(parts)


def situation(run: Run, zone: str | None = None) -> str:
    here = zone_of(zone) if zone else None
    told = f"[{run.task}, due {local_clock(run.due, here)}, now {local_clock(run.started_at, here)}"
    return f"{told}; {one_line(run.note)}]" if run.note else f"{told}]"
