"""The skill tools. The list of skills is part of the description of ``skill_load``: name and purpose are always seen,
the instructions are loaded when they are needed."""

import attrs

from klaw.actor.threads import Threads
from klaw.llm.types import ToolDescription
from klaw.toolbox.files.names import FileRefused
from klaw.toolbox.skills.catalogue import Catalogue, Skills
from klaw.toolbox.spec import Permission, ToolContext, ToolFailure, ToolSpec, tool


@attrs.frozen(kw_only=True)
class _WithSkills(ToolSpec):
    """A tool whose description ends with the list of skills as of the last look at the disk."""

    catalogue: Catalogue = attrs.field(repr=False)

    @property
    def told(self) -> ToolDescription:
        description = f"{self.description} Skills:\n{self.catalogue.summary()}"
        return ToolDescription(name=self.name, description=description, parameters=self.parameters)


def skill_tools(catalogue: Catalogue, threads: Threads) -> tuple[ToolSpec, ...]:
    """The tools on one catalogue. They are offered only where there are skills; whoever begins a turn refreshes the
    catalogue before, in a thread (``chats.workspace`` does)."""

    def any_skills(_context: ToolContext) -> bool:
        return bool(catalogue.known.offered)

    @tool(permission=Permission.READ, when=any_skills)
    async def skill_list(context: ToolContext) -> str:  # noqa: ARG001 - skills are the same for everybody
        """List all skills with their full descriptions."""
        return _listed(await threads.run(catalogue.refresh, abandon=True))

    @tool(permission=Permission.READ, when=any_skills)
    async def skill_load(
        context: ToolContext,  # noqa: ARG001
        name: str,
        file: str | None = None,
    ) -> str | ToolFailure:
        """Load the instructions of a skill (or a file of its folder) before doing what the skill is for."""
        return await threads.run(_load, catalogue, name, file, abandon=True)

    loading = _WithSkills(
        **{field.name: getattr(skill_load, field.name) for field in attrs.fields(ToolSpec)}, catalogue=catalogue
    )
    return skill_list, loading


def _load(catalogue: Catalogue, name: str, file: str | None) -> str | ToolFailure:
    try:
        return catalogue.load(name, file)
    except FileRefused as refused:
        return ToolFailure(f"{refused}.")


def _listed(skills: Skills) -> str:
    lines = [f"{skill.name}: {skill.description}" for skill in skills.offered]
    lines += [f"[{problem.folder} cannot be used: {problem.why}]" for problem in skills.problems]
    return "\n".join(lines) or "(no skills)"
