"""The parts of tasks and runs: the scheduler, and what can be asked of it."""

from collections.abc import Sequence
from functools import partial

import attrs

from klaw.actor.supervisor import ActorSpec
from klaw.agent.agent import Agent
from klaw.core import Core
from klaw.runs import scheduler
from klaw.runs.localzone import default_zone
from klaw.runs.scheduler import Scheduler
from klaw.runs.service import Scheduling
from klaw.runs.tools import scheduling_tools
from klaw.toolbox.spec import ToolSpec


@attrs.frozen(kw_only=True)
class Tasks:
    """See ``build``."""

    core: Core
    scheduler: Scheduler
    scheduling: Scheduling
    """What users can ask of tasks and runs."""
    tools: Sequence[ToolSpec]

    async def start(self, agent: Agent) -> None:
        """Start the scheduler; its runs are made with the agent."""
        mailbox = self.scheduler.mailbox
        run = partial(scheduler.run, scheduler=self.scheduler, agent=agent)
        grace_s = self.core.config.shutdown.grace_s
        await self.core.supervisor.start(ActorSpec(name=mailbox.name, mailbox=mailbox, run=run, stop_budget_s=grace_s))


def build(core: Core) -> Tasks:
    """Make the parts; nothing runs yet."""
    config, planner = core.config, Scheduler()
    zone = default_zone(config.subagents.zone)
    scheduling = Scheduling(planner, core.readers, core.writer, config, core.clock, default_zone=zone)
    core.health.add(planner.problems)
    return Tasks(
        core=core,
        scheduler=planner,
        scheduling=scheduling,
        tools=scheduling_tools(scheduling, planner),
    )
