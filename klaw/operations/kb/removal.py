"""Removing sources and bases."""

from typing import TYPE_CHECKING, Any

import attrs

from klaw.domain.knowledge import Source, SourceId
from klaw.domain.names import UserId
from klaw.domain.text import plural
from klaw.operations import operation as op
from klaw.operations.kb.bases import described
from klaw.operations.kb.noun import NOUN, OfBase, meant
from klaw.operations.kb.sources import OfSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaw.actor.clock import Clock
    from klaw.store.engine.database import Readers
    from klaw.store.engine.writer import Writer
    from klaw.store.originals import Originals


@attrs.frozen(kw_only=True)
class KbDelete(OfBase):
    dry_run: bool = op.argument("only list what would go", default=True)


@attrs.frozen(kw_only=True)
class KbRemove(OfSource):
    dry_run: bool = op.argument("only list what would go", default=True)


# -- how it is shown --------------------------------------------------------------------------------------------------


def _lines(answer: dict[str, Any]) -> op.Lines:
    gone = "removed" if answer["removed"] else "would be removed"
    parts = [plural(answer[name], name[:-1]) for name in ("sources", "documents", "passages")]
    return [f"{gone}: {answer['name']}, with {', '.join(parts)}"]


# -- the operations ---------------------------------------------------------------------------------------------------


@NOUN.operation(
    "kb_delete",
    KbDelete,
    cli="delete",
    show=_lines,
    changes=True,
    deadline_s=3600.0,
    confirm="This cannot be undone. Delete it?",
)
async def delete(
    asked: KbDelete, user: UserId, readers: "Readers", writer: "Writer", clock: "Clock", originals: "Originals"
) -> dict[str, Any]:
    """Delete a base with all that was made of its sources. Folders, web pages and endpoints stay as they are."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases, sources

    base = await readers.run(bases.owned, user, (await meant(readers, user, asked.base)).base.id)
    going = await readers.run(sources.of_base, user, base.id)
    known = await described(readers, user, base.id)
    answer = {"base": base.id, "name": base.name, "removed": not asked.dry_run, **_counts(known, going)}
    if not asked.dry_run:
        await writer.run(bases.remove, user, base.id, iso(clock.now()))
        await _clear(going, readers, writer, originals)
    return answer


@NOUN.operation(
    "kb_remove",
    KbRemove,
    cli="remove",
    show=_lines,
    changes=True,
    deadline_s=3600.0,
    confirm="This cannot be undone. Remove it?",
    route="DELETE sources/{source}",
)
async def remove(
    asked: KbRemove, user: UserId, readers: "Readers", writer: "Writer", clock: "Clock", originals: "Originals"
) -> dict[str, Any]:
    """Remove a source from its base, with all that was made of it."""
    from klaw.actor.clock import iso
    from klaw.store.kinds.knowledge import bases, documents, sources

    source = await readers.run(sources.get, user, SourceId(asked.source))
    await readers.run(bases.editable, user, source.base)
    found = await readers.run(documents.count, user, source.base)
    counted = {"documents": 0, "passages": 0}
    for each in found:
        if each.source == source.id:
            counted = {"documents": each.documents, "passages": each.passages}
    answer = {"source": source.id, "name": source.name, "removed": not asked.dry_run, **_counts(counted, [source])}
    if not asked.dry_run:
        await writer.run(sources.remove, user, source.id, iso(clock.now()))
        await _clear([source], readers, writer, originals)
    return answer


def _counts(known: dict[str, Any], going: "Sequence[Source]") -> dict[str, int]:
    return {"sources": len(going), "documents": known["documents"], "passages": known["passages"]}


async def _clear(going: "Sequence[Source]", readers: "Readers", writer: "Writer", originals: "Originals") -> None:
    """Nobody sees it any more; what a kill leaves of it, the indexer removes."""
    from klaw.knowledge import removal

    await removal.sweep(readers, writer)
    for each in going:
        await originals.remove(each.id)
