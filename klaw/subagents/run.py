"""One run: its context, the conversation with the model and its tools, and its end. A child task of the scheduler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class, where
from klaw.actor.threads import Threads
from klaw.chats.correction import TokenCorrection
from klaw.chats.workspace import Workspace
from klaw.config.schema import EngineConfig
from klaw.context.inputs import Budget
from klaw.context.request import request_tokens
from klaw.domain import tokens
from klaw.domain.message import Kind, Role
from klaw.domain.task import Run, RunKind, RunStatus, TaskName
from klaw.errors import ActorStopped, ConfigError, KlawError, NoSuchChat, ProviderError, StorageFull
from klaw.llm.router import Route, Router
from klaw.llm.slots import Priority, Slots
from klaw.llm.types import ChatMessage, Completion, Request, ToolDescription, Usage
from klaw.prompts import prompt
from klaw.store.readers import Readers
from klaw.store.writer import Writer
from klaw.subagents.context import assemble
from klaw.subagents.ending import Verdict, judge
from klaw.subagents.history import load_history
from klaw.subagents.live import LiveRun
from klaw.toolbox.calls import PreparedCall
from klaw.toolbox.executor import CallResult, Executor
from klaw.toolbox.loop import Outcome, Prompt, converse
from klaw.toolbox.registry import tools_tokens
from klaw.toolbox.spec import ToolContext

log = structlog.get_logger("klaw.run")


@attrs.frozen(kw_only=True)
class RunServices:
    """What runs share."""

    config: EngineConfig
    writer: Writer
    readers: Readers
    router: Router
    slots: Slots
    workspace: Workspace
    conversations: Path
    files: Threads
    executor: Executor
    correction: TokenCorrection
    clock: Clock
    new_id: Callable[[], str]


async def carry_out(live: LiveRun, services: RunServices, *, timeout_s: float, max_tokens: int | None) -> Run:
    """Carry a begun run out to its end and store that. Expected failures end it with a status that says so.

    Args:
        live: the run.
        services: see ``RunServices``.
        timeout_s: deadline of the whole run.
        max_tokens: prompts and answers of the run together; None for no limit.

    Returns:
        The run's last state.

    Raises:
        ActorStopped: the store is gone; the run is found as interrupted at the next start.

    Cancellation: nothing is stored; the run is found as interrupted at the next start. ``live.cancel`` ends it instead.
    """
    verdict, text = await _attempt(live, services, timeout_s, max_tokens)
    ended = await live.end(verdict, text, _notice(live.run, verdict))
    log.info("run_ended", run=ended.id, task=ended.task, status=ended.status.value, code=ended.error)
    return ended


async def _attempt(
    live: LiveRun, services: RunServices, timeout_s: float, max_tokens: int | None
) -> tuple[Verdict, str]:
    try:
        with trio.move_on_after(timeout_s) as deadline, live.scope:
            outcome = await _converse(live, services, max_tokens)
            live.describe(rounds=outcome.rounds, calls=list(outcome.calls), llm_calls=outcome.llm_calls)
            return judge(live.run, outcome.text, outcome.ending, max_tokens=max_tokens), outcome.text
    except ActorStopped:
        raise
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the record says so and the others go on
        code, note = describe_failure(error)
        log.warning("run_failed", run=live.run.id, code=code, error=error_class(error), where=where(error))
        return Verdict(status=RunStatus.FAILED, error=code, note=note), ""
    if live.cancelled_because is not None:
        return Verdict(status=RunStatus.CANCELLED, note=live.cancelled_because), ""
    if deadline.cancelled_caught:
        note = f"it did not end within {timeout_s:g} s"
        return Verdict(status=RunStatus.TIMED_OUT, error="timeout", note=note), ""
    raise AssertionError("a run ended without an outcome")


async def _converse(live: LiveRun, services: RunServices, max_tokens: int | None) -> Outcome:
    config, run = services.config, live.run
    route = services.router.route(run.model)
    allowed = attrs.evolve  # placeholder
    context = ToolContext(
        user=run.user,
        chat=None,
        run=run.id,
        task=run.task,
        deliver_to=live.target,
        depth=run.depth,
        model=route.name,
    )
    tools = services.executor.toolbox.describe(context) if route.tools else ()
    fixed = await services.files.run(services.workspace.read, run.user)
    earlier = await services.files.run(
        load_history, services.conversations, run.user, run.task, config.context.subagent_history
    )
    reply_tokens = min(route.max_output_tokens, config.context.reply_reserve_tokens)
    budget = Budget(
        context_tokens=route.context_tokens,
        reply_reserve_tokens=config.context.reply_reserve_tokens,
        correction=services.correction.of(route.name),
    )
    del allowed
    assembled = assemble()
    await live.transcribe(Role.USER, Kind.TEXT, run.message, {})
    ...
