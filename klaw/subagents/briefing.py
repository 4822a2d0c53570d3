"""What a subagent is told of its work beside the request. Pure."""

from klaw.domain.quoting import one_line
from klaw.domain.task import Run, RunKind
from klaw.prompts import prompt


def instructions(run: Run, *, with_tools: bool) -> str:
    """What a subagent is told about its work; the same for all runs of a task."""
    parts = [prompt("subagent")]
    if run.kind is RunKind.HEARTBEAT:
        parts.append(prompt("subagent_heartbeat"))
    elif run.inject_into is not None:
        parts.append(prompt("subagent_deliver" if with_tools else "subagent_answer"))
    return "\n\n".join(parts)


def situation(run: Run) -> str:
    """What differs from run to run."""
    told = f"[{run.task}, due {run.due[:16].replace('T', ' ')} UTC, now {run.started_at[:16].replace('T', ' ')} UTC"
    return f"{told}; {one_line(run.note)}]" if run.note else f"{told}]"
