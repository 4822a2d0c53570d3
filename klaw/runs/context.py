"""The context of a subagent's run: system prompt, core memory, the task's last runs, then the request. Pure.

No Auto-RAG and no sliding window: the history is a fixed number of runs, and what does not fit is left out run by run,
oldest first.
"""

import json
from collections.abc import Sequence

import attrs

from klaw.context.assemble import FIXED_SHARE, PENDING_SHARE, headed, layer
from klaw.context.inputs import Budget
from klaw.context.repair import repair
from klaw.context.request import shorten
from klaw.domain import tokens
from klaw.domain.days import local_clock
from klaw.domain.task import Run, RunKind
from klaw.domain.text import CORE_MEMORY_HEADER, one_line
from klaw.llm.providers.adapt import request_tokens
from klaw.llm.types import ChatMessage
from klaw.prompts import prompt
from klaw.runs.transcripts import PastRun

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
    """Make the messages of a run's first request.

    ``history``: the last complete runs, oldest first; without tools their calls are left out. What differs from run to
    run (``situation``) stands last, before the request, so that prompt caches keep the rest.
    """
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
        if message.ends_a_run:
            said.append(attrs.evolve(message.said, content=message.said.content.strip() or EMPTY_ANSWER))
        elif message.said.role == "user" or (with_tools and message.said.role != "system"):
            said.append(message.said)
    return repair(said)


def instructions(run: Run, *, with_tools: bool) -> str:
    """The instructions of a subagent; the same for all runs of a task."""
    parts = [prompt("subagent")]
    if run.kind is RunKind.HEARTBEAT:
        parts.append(prompt("subagent_heartbeat"))
    elif run.inject_into is not None:
        parts.append(prompt("subagent_deliver" if with_tools else "subagent_answer"))
    return "\n\n".join(parts)


def situation(run: Run) -> str:
    told = f"[{run.task}, due {local_clock(run.due)}, now {local_clock(run.started_at)}"
    return f"{told}; {one_line(run.note)}]" if run.note else f"{told}]"
