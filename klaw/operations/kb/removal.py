"""Removing sources and bases with all that was made of them, and the proof."""

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs

from klaw.domain.knowledge import SourceId
from klaw.domain.names import UserId, name_of
from klaw.domain.text import plural
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts
from klaw.operations.kb.noun import NOUN, OfBase, meant
from klaw.operations.kb.sources import OfSource
from klaw.operations.lines import Lines

if TYPE_CHECKING:
    from klaw.knowledge.parts import Knowledge
    from klaw.memory.forget.forget import CleanedLogs, Forgetter
    from klaw.operations.answers.knowledge import RemovedOfBase
    from klaw.store.kinds.knowledge.removal import Going


@attrs.frozen(kw_only=True)
class KbDelete(OfBase):
    dry_run: bool = op.argument("only list what would go, and which answers cite it", default=True)


@attrs.frozen(kw_only=True)
class KbRemove(OfSource):
    dry_run: bool = op.argument("only list what would go, and which answers cite it", default=True)


_CONFIRM = "This cannot be undone. Remove it?"
_LONG_S = 3600.0
"""Some minutes for a base of 10,000 pages."""

# -- how it is shown --------------------------------------------------------------------------------------------------


def _lines(answer: dict[str, Any]) -> Lines:
    gone = "removed" if answer["removed"] else "would be removed"
    parts = [plural(answer["sources"], "source"), plural(answer["documents"], "document")]
    lines = [f"{gone}: {answer['name']}, with {', '.join(parts)}, {plural(answer['passages'], 'passage')}"]
    if answer["cited"]:
        places = [f"{each['chat']}#{each['seq']}{'' if each['cited'] else ' (not cited)'}" for each in answer["cited"]]
        lines.append(f"answers that were given something of it, and stay: {', '.join(places)}")
        lines.append("what they quote, and the names of documents, goes with them: klaw forget CHAT#NUMBER")
    if answer["cited_by_others"]:
        lines.append(f"answers of others that were given something of it: {answer['cited_by_others']}")
    if not answer["removed"]:
        return lines
    if answer["everywhere"]:
        looked_for = plural(answer["looked_for"], "text")
        lines.append(f"looked for {looked_for} of it; lines of logs cleaned: {answer['lines']}")
        held = [
            f"  {each['path']} ({each['kind']}, {each['count']}): {each['remedy']}" for each in answer["still_held"]
        ]
        lines += ["STILL held by:", *held] if held else ["a search of all files finds them nowhere"]
        aside = [f"  {each['path']}: {each['remedy']}" for each in answer["aside"]]
        lines += ["kept aside, and not searched: it may be there in another form", *aside] if aside else []
    return lines


# -- the operations ---------------------------------------------------------------------------------------------------


@NOUN.operation("kb_delete", KbDelete, cli="delete", show=_lines, changes=True, deadline_s=_LONG_S, confirm=_CONFIRM)
async def delete(asked: KbDelete, caller: Caller, parts: Parts) -> "RemovedOfBase":
    """Delete a base with all that was made of its sources, and show what still holds it. Folders and pages stay."""
    from klaw.store.kinds.knowledge.removal import look

    readers = parts.knowledge.core.readers
    base = (await meant(readers, caller.user, asked.base)).base.id
    going = await readers.run(partial(look, base=base), caller.user)
    return await _remove(going, asked.dry_run, caller.user, caller, parts.knowledge, parts.memory.forgetter)


@NOUN.operation(
    "kb_remove", KbRemove, cli="remove", show=_lines, changes=True, deadline_s=_LONG_S, confirm=_CONFIRM,
    route="DELETE sources/{source}",
)  # fmt: skip
async def remove(asked: KbRemove, caller: Caller, parts: Parts) -> "RemovedOfBase":
    """Remove a source from its base with all that was made of it, and show what still holds it."""
    from klaw.store.kinds.knowledge.removal import look

    readers = parts.knowledge.core.readers
    going = await readers.run(partial(look, source=SourceId(asked.source)), caller.user)
    return await _remove(going, asked.dry_run, caller.user, caller, parts.knowledge, parts.memory.forgetter)


async def _remove(
    going: "Going", dry_run: bool, user: UserId, caller: "Caller", knowledge: "Knowledge", forgetter: "Forgetter"
) -> "RemovedOfBase":
    from klaw.knowledge import removal

    answer: RemovedOfBase = {
        "base": going.base.id,
        "name": going.base.name if going.whole else going.sources[0].name,
        "removed": not dry_run,
        "sources": len(going.sources),
        "documents": going.documents,
        "passages": going.passages,
        "cited": [{"chat": name_of(each.chat), "seq": each.seq, "cited": each.cited} for each in going.cited],
        "cited_by_others": going.others if caller.operator else None,  # it says what others ask
        "everywhere": caller.operator,
    }
    if dry_run:
        return answer
    core, graphs = knowledge.core, knowledge.graphs
    done = await removal.remove(going, user, core, graphs, forgetter, everywhere=caller.operator)
    knowledge.indexer.nudge()
    lines = done.lines if caller.operator else None
    return cast("RemovedOfBase", {**answer, "looked_for": len(going.pieces), **_proof(done), "lines": lines})


def _proof(done: "CleanedLogs") -> Any:
    return {
        "lines": done.lines,
        "vacuumed": done.vacuumed,
        "still_held": [{**attrs.asdict(each), "remedy": each.remedy} for each in done.held],
        "aside": [{"path": each.path, "remedy": each.remedy} for each in done.aside],
    }
