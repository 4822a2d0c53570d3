"""The trail of a turn that goes on after an interruption, and what the guard makes of it."""

import attrs

from klaw.agent.claims import HINT, Claims, resumed_trail
from klaw.domain.message import Message, MessageKind, Role
from klaw.toolbox.spec import Permission, Toolbox, ToolContext, Trail, tool
from tests.support.stores import stored


@tool(permission=Permission.WRITE)
async def keep(_context: ToolContext) -> str:
    """Keep."""
    return ""


@tool(permission=Permission.READ)
async def look(_context: ToolContext) -> str:
    """Look."""
    return ""


@tool(permission=Permission.APPROVAL)
async def reach(_context: ToolContext) -> str:
    """Reach."""
    return ""


def result(name: str, *, error: bool = False) -> Message:
    message = stored(1, "text", role=Role.TOOL, kind=MessageKind.TOOL_RESULT)
    return attrs.evolve(message, metadata={"name": name, "error": error})


def trail(*messages: Message) -> tuple[bool, bool]:
    toolbox = Toolbox()
    toolbox.register(keep, look, reach)
    made = resumed_trail(messages, toolbox)
    return made.outside, made.wrote


def test_stored_results_count_as_if_they_had_just_come() -> None:
    assert trail() == (False, False)
    assert trail(stored(1, kind=MessageKind.TOOL_CALL, role=Role.ASSISTANT)) == (False, False)
    assert trail(result("look")) == (False, False)
    assert trail(result("keep")) == (False, True)
    assert trail(result("keep", error=True)) == (False, False)
    assert trail(result("reach", error=True)) == (True, False)
    assert trail(result("reach")) == (True, True)
    assert trail(result("gone__tool", error=True)) == (True, False)  # of a server that is not there any more


def test_the_guard_is_silent_where_something_was_written() -> None:
    wrote, nothing = Claims(Trail(wrote=True)), Claims(Trail())
    assert wrote.object_to("I've saved it.") is None
    assert wrote.settle("I've saved it.") == "I've saved it."
    assert wrote.account is None
    assert nothing.object_to("Shall I save it?") is None
    assert nothing.object_to("I've saved it.") == HINT
    assert nothing.settle("Not saved.") == "Not saved."
    assert nothing.account == "corrected"
    assert nothing.settle("Запомнил!") == "Запомнил!\n\n(Ничего не было сохранено.)"
    assert nothing.account == "noted"
