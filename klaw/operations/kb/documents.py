"""Documents of bases: listing them, and opening one where something of it was cited."""

from typing import TYPE_CHECKING, Annotated, Any

import attrs

from klaw.convert import Bounds
from klaw.domain.knowledge import DocumentId, Passage, SourceId
from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts
from klaw.operations.kb.bases import problem_lines
from klaw.operations.kb.noun import NOUN, meant
from klaw.operations.lines import Again, Line, Lines, Table

if TYPE_CHECKING:
    from klaw.operations.answers.knowledge import DocumentPage, OpenedDocument

MOST_OPENED = 50
"""Passages that are shown at once."""

Place = Annotated[int, Bounds(0)]


@attrs.frozen(kw_only=True)
class KbDocuments(op.PagedArguments):
    base: op.Name = op.required("the base's name or id", id_of="kb")
    source: op.Name | None = op.argument("only those of this source", metavar="ID", id_of="kb_source")
    problems: bool = op.argument("only those of which not all could be read", default=False)


@attrs.frozen(kw_only=True)
class KbOpen(op.OfUser):
    document: op.Name = op.required("the document's id, as `klaw kb documents` tells it", id_of="kb_document")
    start: Place | None = op.argument("from this character on", metavar="N")
    end: Place | None = op.argument("to this character", metavar="N")
    page: op.Whole | None = op.argument("instead: this page", metavar="N")
    around: Annotated[int, Bounds(0, 20)] = op.argument(
        "passages before and after (default: 1)", default=1, metavar="N"
    )


# -- how they are shown -----------------------------------------------------------------------------------------------


def _table(answer: dict[str, Any]) -> Lines:
    if not answer["documents"]:
        return ["no more documents" if answer["count"] else "no documents"]
    rows = [
        [each["id"], each["state"], str(each["pages"] or "-"), str(each["passages"]), each["name"]]
        for each in answer["documents"]
    ]
    table = Table([["document", "state", "pages", "passages", "name"], *rows], right=frozenset({2, 3}))
    return [table, *problem_lines(answer["documents"]), *op.more(answer)]


def _opened(answer: dict[str, Any]) -> Lines:
    document = answer["document"]
    lines: list[Line] = []
    title = f" “{document['title']}”" if document["title"] else ""
    lines.append(f"{document['name']}{title}, of {answer['base']['name']}")
    page = heading = None
    for each in answer["passages"]:
        if each["first_page"] != page or each["heading"] != heading:
            page, heading = each["first_page"], each["heading"]
            where = [*([f"page {page}"] if page is not None else []), *([heading] if heading else [])]
            lines += ["", f"-- {', '.join(where)} --"] if where else [""]
        lines += each["text"].split("\n")
    for word in ("next", "previous"):
        if answer[word] is not None:
            lines.append(Again(f"{word}: ", {"start": answer[word], "end": None, "page": None}))
    return lines


# -- the operations ---------------------------------------------------------------------------------------------------


@NOUN.operation("kb_documents", KbDocuments, cli="documents", show=_table, offline=True, route="GET {base}/documents")
async def list_documents(asked: KbDocuments, caller: Caller, parts: DatabaseParts) -> "DocumentPage":
    """List the documents of a base, and what of them could not be read, by file and page."""
    from klaw.store.kinds.knowledge import documents

    base = (await meant(parts.readers, caller.user, asked.base)).base
    source = SourceId(asked.source) if asked.source is not None else None
    counted = await parts.readers.run(documents.count, caller.user, base.id)
    total = sum(
        each.with_problems if asked.problems else each.documents for each in counted if source in (None, each.source)
    )
    found = await parts.readers.run(
        documents.of_base,
        caller.user,
        base.id,
        source=source,
        problems=asked.problems,
        limit=asked.limit,
        offset=asked.offset,
    )
    return {"base": base.id, "name": base.name, "count": total, "documents": found, "next": asked.following(total)}


@NOUN.operation(
    "kb_open", KbOpen, cli="open", show=_opened, offline=True, route="GET documents/{document}", mcp="open_document"
)
async def open_document(asked: KbOpen, caller: Caller, parts: DatabaseParts) -> "OpenedDocument":
    """Show the text of a document: around a range of characters, as citations have it, or of a page.

    Without a range from the beginning. next and previous are the start for what follows and what stands before.
    """
    from klaw.store.kinds.knowledge import bases, documents

    document = await parts.readers.run(documents.get, caller.user, DocumentId(asked.document))
    base = (await parts.readers.run(bases.get, caller.user, document.base)).base
    first, last = 0, MOST_OPENED - 1
    if asked.page is not None or asked.start or asked.end:
        if asked.page is not None:
            found = await parts.readers.run(
                documents.passages_of_page, caller.user, document.id, asked.page, MOST_OPENED
            )
        else:
            start = asked.start or 0
            end = max(asked.end or start, start + 1)
            found = await parts.readers.run(
                documents.passages_between, caller.user, document.id, start, end, MOST_OPENED
            )
        if not found:
            raise op.OperationError(
                "unknown_page", "the document has no such place: it may be another one now", field="document"
            )
        first, last = max(0, found[0].ordinal - asked.around), found[-1].ordinal + asked.around
    shown = await parts.readers.run(
        documents.passages,
        caller.user,
        document.id,
        first=max(0, first - 1),
        limit=min(last - first, MOST_OPENED + 40) + 3,
    )
    inside = [each for each in shown if first <= each.ordinal <= last]
    before = [each.start for each in shown if each.ordinal < first]
    after = [each.start for each in shown if each.ordinal > last]
    fields = attrs.fields_dict(Passage)
    return {
        "document": document,
        "base": {"id": base.id, "name": base.name},
        "passages": [Passage(**{name: getattr(each, name) for name in fields}) for each in inside],
        "previous": before[-1] if before else None,
        "next": after[0] if after else None,
    }
