"""Which tools are offered to whom, and always in the same words."""

import json

import attrs
import pytest

from klaw.domain.names import LOCAL_USER, chat_id
from klaw.llm.providers.adapt import tools_tokens
from klaw.toolbox.spec import Permission, Toolbox, ToolContext, ToolSpec, tool

CONTEXT = ToolContext(user=LOCAL_USER, chat=chat_id(LOCAL_USER, "main"))


def spec(name: str, permission: Permission = Permission.READ) -> ToolSpec:
    @tool(permission=permission, name=name)
    async def nothing(_context: ToolContext, a: int = 0) -> str:
        """Do nothing."""
        return str(a)

    return nothing


def names(toolbox: Toolbox, context: ToolContext = CONTEXT) -> list[str]:
    return [each.name for each in toolbox.describe(context)]


def test_the_order_does_not_depend_on_the_registration() -> None:
    one, other = Toolbox(), Toolbox()
    one.register(spec("b"), spec("a"), spec("c"))
    for each in ("c", "a", "b"):
        other.register(spec(each))
    assert names(one) == ["a", "b", "c"]
    assert json.dumps([attrs.asdict(d) for d in one.describe(CONTEXT)]) == json.dumps(
        [attrs.asdict(d) for d in other.describe(CONTEXT)]
    )


def test_a_name_is_taken_once_and_then_nothing_is_added() -> None:
    toolbox = Toolbox()
    toolbox.register(spec("a"))
    with pytest.raises(ValueError, match="a tool a already"):
        toolbox.register(spec("b"), spec("a"))
    assert names(toolbox) == ["a"]
    toolbox.remove("a", "never there")
    assert names(toolbox) == []


def test_the_configuration_and_the_context_decide() -> None:
    toolbox = Toolbox(disabled=["off", "git__*"])
    only_in_runs = attrs.evolve(spec("in_run"), when=lambda context: context.run is not None)
    toolbox.register(spec("off"), spec("git__push"), spec("r"), spec("w", Permission.WRITE), only_in_runs)
    assert names(toolbox) == ["r", "w"]
    assert names(toolbox, context=attrs.evolve(CONTEXT, run="r1")) == ["in_run", "r", "w"]
    assert toolbox.find("off", CONTEXT) is None
    assert [each.name for each in toolbox.all()] == ["git__push", "in_run", "off", "r", "w"]


def test_the_tool_list_counts_as_tokens() -> None:
    toolbox = Toolbox()
    assert tools_tokens(toolbox.describe(CONTEXT)) == 0
    toolbox.register(spec("a"))
    assert tools_tokens(toolbox.describe(CONTEXT)) > 20
