"""Removing sources and bases with all that was made of them, and the proof; comparing bases with their files."""

from functools import partial
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import attrs

from klaw.domain.knowledge import BaseId, BaseRole, SourceId
from klaw.domain.names import name_of
from klaw.domain.text import plural
from klaw.errors import NotAllowed
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, Parts
from klaw.operations.kb.bases import NOUN, BaseName, OfBase, meant, meant_base
from klaw.operations.kb.sources import OfSource
from klaw.operations.lines import Lines, ShownLines

if TYPE_CHECKING:
    from klaw.knowledge.check import Flaw
    from klaw.operations.answers import StillHeld

_CONFIRM = "This cannot be undone. Remove it?"
_LONG_S = 3600.0
"""Some minutes for a base of 10,000 pages."""
MOST_DOCUMENTS = 1_000_000


@attrs.frozen(kw_only=True)
class KbDelete(OfBase):
    dry_run: bool = op.argument("only list what would go, and which answers cite it", default=True)


@attrs.frozen(kw_only=True)
class KbRemove(OfSource):
    dry_run: bool = op.argument("only list what would go, and which answers cite it", default=True)


class CitedIn(TypedDict):
    chat: str
    seq: int
    cited: bool


class RemovedOfBase(TypedDict):
    base: str
    name: str
    removed: bool
    sources: int
    documents: int
    passages: int
    cited: list[CitedIn]
    cited_by_others: int | None
    everywhere: bool
    looked_for: NotRequired[int]
    lines: NotRequired[int | None]
    vacuumed: NotRequired[bool]
    still_held: NotRequired["list[StillHeld]"]
    aside: NotRequired["list[StillHeld]"]


def _removed(answer: dict[str, Any]) -> Lines:
    gone = "removed" if answer["removed"] else "would be removed"
    parts = [plural(answer[f"{noun}s"], noun) for noun in ("source", "document", "passage")]
    lines = [f"{gone}: {answer['name']}, with {', '.join(parts)}"]
    if answer["cited"]:
        places = [f"{each['chat']}#{each['seq']}{'' if each['cited'] else ' (not cited)'}" for each in answer["cited"]]
        lines.append(f"answers that were given something of it, and stay: {', '.join(places)}")
        lines.append("what they quote, and the names of documents, goes with them: klaw forget CHAT#NUMBER")
    if answer["cited_by_others"]:
        lines.append(f"answers of others that were given something of it: {answer['cited_by_others']}")
    if not (answer["removed"] and answer["everywhere"]):
        return lines
    looked_for = plural(answer["looked_for"], "text")
    lines.append(f"looked for {looked_for} of it; lines of logs cleaned: {answer['lines']}")
    held = [f"  {each['path']} ({each['kind']}, {each['count']}): {each['remedy']}" for each in answer["still_held"]]
    lines += ["STILL held by:", *held] if held else ["a search of all files finds them nowhere"]
    aside = [f"  {each['path']}: {each['remedy']}" for each in answer["aside"]]
    return [*lines, *(["kept aside, and not searched: it may be there in another form", *aside] if aside else [])]


@NOUN.operation("kb_delete", KbDelete, cli="delete", show=_removed, changes=True, deadline_s=_LONG_S, confirm=_CONFIRM)
async def delete(asked: KbDelete, caller: Caller, parts: Parts) -> RemovedOfBase:
    """Delete a base with all that was made of its sources, and show what still holds it. Folders and pages stay."""
    base = (await meant_base(asked, caller, parts)).id
    return await _remove(caller, parts, asked.dry_run, base=base)


@NOUN.operation(
    "kb_remove", KbRemove, cli="remove", show=_removed, changes=True, deadline_s=_LONG_S, confirm=_CONFIRM,
    route="DELETE sources/{source}",
)  # fmt: skip
async def remove(asked: KbRemove, caller: Caller, parts: Parts) -> RemovedOfBase:
    """Remove a source from its base with all that was made of it, and show what still holds it."""
    return await _remove(caller, parts, asked.dry_run, source=SourceId(asked.source))


async def _remove(
    caller: Caller, parts: Parts, dry_run: bool, *, base: BaseId | None = None, source: SourceId | None = None
) -> RemovedOfBase:
    from klaw.knowledge import removal

    going = await parts.readers.run(partial(stored.removal.look, base=base, source=source), caller.user)
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
    core, graphs, forgetter = parts.knowledge.core, parts.knowledge.graphs, parts.memory.forgetter
    done = await removal.remove(going, caller.user, core, graphs, forgetter, everywhere=caller.operator)
    parts.knowledge.indexer.nudge()
    proof = {
        "looked_for": len(going.pieces),
        "lines": done.lines if caller.operator else None,
        "vacuumed": done.vacuumed,
        "still_held": [{**attrs.asdict(each), "remedy": each.remedy} for each in done.held],
        "aside": [{"path": each.path, "remedy": each.remedy} for each in done.aside],
    }
    return cast("RemovedOfBase", {**answer, **proof})


# -- comparing bases with their files and indexes ----------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class KbCheck(op.OfUser):
    base: op.Name | None = op.argument("which base (default: all of yours)", positional=True, id_of="kb")
    full: bool = op.argument("read every file, instead of comparing sizes", default=False)
    repair: bool = op.argument("read again what differs, and remove what belongs to nothing", default=False)


class CheckedBase(BaseName):
    documents: int
    waiting: int
    flaws: "list[Flaw]"


class CheckedBases(TypedDict):
    bases: list[CheckedBase]
    orphans: "list[Flaw]"
    flaws: int
    repairing: int


def _checked(answer: dict[str, Any]) -> ShownLines:
    lines = []
    for each in answer["bases"]:
        flaws, waiting = each["flaws"], each["waiting"]
        told = plural(len(flaws), "flaw") if flaws else "in order"
        later = f", {plural(waiting, 'passage')} without a vector yet" if waiting else ""
        lines.append(f"{each['name']}: {plural(each['documents'], 'document')}, {told}{later}")
        lines += [f"  {flaw['text']} ({flaw['remedy']})" for flaw in flaws]
    lines += [f"{flaw['text']} ({flaw['remedy']})" for flaw in answer["orphans"]]
    if answer["repairing"]:
        lines.append(f"{plural(answer['repairing'], 'source')} being read again: klaw kb show tells how far that is")
    return ShownLines(lines or ["no knowledge bases"], found=not answer["flaws"])


@NOUN.operation("kb_check", KbCheck, cli="check", show=_checked, changes=True, deadline_s=3600.0, route="POST check")
async def check(asked: KbCheck, caller: Caller, parts: Parts) -> CheckedBases:
    """Compare bases with their files and indexes, and say what is not as it should be.

    Only its owner may have a base repaired.
    """
    from klaw.knowledge import check as checking
    from klaw.memory.forget.take_out import sweep_documents

    user, readers, files, data_dir = caller.user, parts.readers, parts.core.files, parts.paths.data_dir
    documents, sources = stored.documents, stored.sources
    mine = (
        await readers.run(stored.bases.of_user, user) if asked.base is None else [await meant(asked.base, user, parts)]
    )
    repairable = {each.base.id for each in mine if each.role is BaseRole.OWNER or caller.operator}
    if asked.repair and asked.base is not None and not repairable:
        raise NotAllowed("you may read this base, and not repair it: ask its owner to")
    told: list[CheckedBase] = []
    again: set[SourceId] = set()
    for base in (each.base for each in mine):
        lost = await readers.run(documents.not_indexed, user, base.id)
        flaws, count = checking.of_rows(lost, await readers.run(documents.incomplete, user, base.id)), 0
        for source in await readers.run(sources.of_base, user, base.id):
            listed = partial(documents.of_base, source=source.id, limit=MOST_DOCUMENTS)
            found = await readers.run(listed, user, base.id)
            count += len(found)
            flaws += await files.run(partial(checking.files, full=asked.full), data_dir, source, found)
        if base.id in repairable:
            again |= {each.source for each in flaws if each.remedy == checking.READ_AGAIN and each.source is not None}
        waiting = await readers.run(documents.count_unembedded, user, base.id)
        told.append({"id": base.id, "name": base.name, "documents": count, "waiting": waiting, "flaws": flaws})
    orphans: list[Flaw] = []
    if caller.operator:
        known = {each.id for each in await readers.run(sources.every)}
        kept = await files.run(stored.originals.every, data_dir)
        orphans = list(checking.of_nothing(await readers.run(documents.count_orphans), len(kept.keys() - known)))
    if asked.repair:
        for source_id in again:
            parts.knowledge.indexer.read_again(source_id)
        if caller.operator:
            await sweep_documents(readers, parts.writer)
    return {
        "bases": told,
        "orphans": orphans,
        "flaws": sum(len(each["flaws"]) for each in told) + len(orphans),
        "repairing": len(again) if asked.repair else 0,
    }
