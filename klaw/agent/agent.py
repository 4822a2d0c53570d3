"""What turns of chats and runs of tasks work with."""

import attrs

from klaw.agent.workspace import Workspace
from klaw.context.compose import Composer
from klaw.core import Core
from klaw.llm.parts import Llm
from klaw.memory.parts import Memory
from klaw.toolbox.parts import Tools


@attrs.frozen(kw_only=True)
class Agent:
    """See the module."""

    core: Core
    llm: Llm
    memory: Memory
    tools: Tools
    """Those of all models that can use them."""
    workspace: Workspace
    composer: Composer


def build(core: Core, llm: Llm, memory: Memory, tools: Tools, composer: Composer) -> Agent:
    """Make it."""
    workspace = Workspace(core.paths.workspace, core.paths.data_dir, tools.skills)
    return Agent(core=core, llm=llm, memory=memory, tools=tools, workspace=workspace, composer=composer)
