"""Comparing bases with their files and indexes."""

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from klaw.domain.knowledge import BaseRole, SourceId
from klaw.domain.text import plural
from klaw.errors import NotAllowed
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts
from klaw.operations.kb.noun import NOUN, meant
from klaw.operations.lines import ShownLines

if TYPE_CHECKING:
    from klaw.operations.answers.knowledge import CheckedBase, CheckedBases

MOST_DOCUMENTS = 1_000_000


@attrs.frozen(kw_only=True)
class KbCheck(op.OfUser):
    base: op.Name | None = op.argument("which base (default: all of yours)", positional=True, id_of="kb")
    full: bool = op.argument("read every file, instead of comparing sizes", default=False)
    repair: bool = op.argument("read again what differs, and remove what belongs to nothing", default=False)


def _lines(answer: dict[str, Any]) -> ShownLines:
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


@NOUN.operation("kb_check", KbCheck, cli="check", show=_lines, changes=True, deadline_s=3600.0, route="POST check")
async def check(asked: KbCheck, caller: Caller, parts: Parts) -> "CheckedBases":
    """Compare bases with their files and indexes, and say what is not as it should be.

    Only its owner may have a base repaired.
    """
    from klaw.knowledge import check as checking
    from klaw.knowledge import removal
    from klaw.store import originals
    from klaw.store.kinds.knowledge import bases, documents, sources

    core, readers, data_dir = parts.knowledge.core, parts.knowledge.core.readers, parts.knowledge.core.paths.data_dir
    mine = (
        await readers.run(bases.of_user, caller.user)
        if asked.base is None
        else [await meant(readers, caller.user, asked.base)]
    )
    repairable = {each.base.id for each in mine if each.role is BaseRole.OWNER or caller.operator}
    if asked.repair and asked.base is not None and not repairable:
        raise NotAllowed("you may read this base, and not repair it: ask its owner to")
    told: list[CheckedBase] = []
    again: set[SourceId] = set()
    wrong = 0
    for base in (each.base for each in mine):
        lost = (
            await readers.run(documents.not_indexed, caller.user, base.id),
            await readers.run(documents.incomplete, caller.user, base.id),
        )
        flaws = checking.of_rows(*lost)
        count = 0
        for source in await readers.run(sources.of_base, caller.user, base.id):
            listed = partial(documents.of_base, source=source.id, limit=MOST_DOCUMENTS)
            found = await readers.run(listed, caller.user, base.id)
            count += len(found)
            flaws += await core.files.run(partial(checking.files, full=asked.full), data_dir, source, found)
        if base.id in repairable:
            again |= {each.source for each in flaws if each.remedy == checking.READ_AGAIN and each.source is not None}
        waiting = await readers.run(documents.count_unembedded, caller.user, base.id)
        wrong += len(flaws)
        told.append({"id": base.id, "name": base.name, "documents": count, "waiting": waiting, "flaws": flaws})
    orphans: list[checking.Flaw] = []
    if caller.operator:
        known = {each.id for each in await readers.run(sources.every)}
        kept = await core.files.run(originals.every, data_dir)
        orphans = list(checking.of_nothing(await readers.run(documents.count_orphans), len(kept.keys() - known)))
    if asked.repair:
        for source_id in again:
            parts.knowledge.indexer.read_again(source_id)
        if caller.operator:
            await removal.sweep(readers, core.writer)
    return {
        "bases": told,
        "orphans": orphans,
        "flaws": wrong + len(orphans),
        "repairing": len(again) if asked.repair else 0,
    }
