"""The one rule on what may reach later prompts: once a turn, or a run, has let in anything from outside (the web, an
MCP server, a program), what a page said may be what the model writes. So a call that writes what later prompts are made
of (``ToolSpec.lasting``) is put to the user first, and refused where nobody can be asked.
"""

import json

import attrs

from klaw.toolbox.spec import Arguments, Permission, Question, ToolContext, ToolFailure, ToolSpec

WHY = "after reading from outside; it would stand in later conversations"


async def asked(spec: ToolSpec, context: ToolContext, arguments: Arguments) -> ToolSpec | None:
    """The tool with the question that the user has to answer before this call; None when there is none to ask."""
    if spec.permission is Permission.APPROVAL:
        return spec
    if context.trail.outside and await spec.lasting(context, arguments):
        return attrs.evolve(spec, question=_question(spec))
    return None


def _question(spec: ToolSpec) -> Question:
    async def question(_context: ToolContext, arguments: Arguments) -> str | ToolFailure | None:
        return f"[{WHY}] {spec.name} {json.dumps(dict(arguments), ensure_ascii=False, default=_plain)}"

    return question


def _plain(value: object) -> object:
    return attrs.asdict(value) if attrs.has(type(value)) else str(value)  # type: ignore[arg-type]
