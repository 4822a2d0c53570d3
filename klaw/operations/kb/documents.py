"""Documents of bases: listing them, searching their passages, and opening one where something of it was cited."""

from functools import partial
from typing import Annotated, Any, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.domain.knowledge import Document, DocumentId, Passage, Place, SourceId
from klaw.domain.search import fields_of
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts
from klaw.operations.kb.bases import NOUN, BaseName, meant_base
from klaw.operations.kb.sources import problem_lines
from klaw.operations.lines import Again, Line, Lines, ShownLines, Table

MOST_OPENED = 50

Character = Annotated[int, Bounds(0)]


@attrs.frozen(kw_only=True)
class KbDocuments(op.PagedArguments):
    base: op.Name = op.required("the base's name or id", id_of="kb")
    source: op.Name | None = op.argument("only those of this source", metavar="ID", id_of="kb_source")
    problems: bool = op.argument("only those of which not all could be read", default=False)


class DocumentPage(TypedDict):
    base: str
    name: str
    count: int
    documents: list[Document]
    next: int | None


def _table(answer: dict[str, Any]) -> Lines:
    if not answer["documents"]:
        return ["no more documents" if answer["count"] else "no documents"]
    rows = [
        [each["id"], each["state"], str(each["pages"] or "-"), str(each["passages"]), each["name"]]
        for each in answer["documents"]
    ]
    table = Table([["document", "state", "pages", "passages", "name"], *rows], right=frozenset({2, 3}))
    return [table, *problem_lines(answer["documents"]), *op.more(answer)]


@NOUN.operation("kb_documents", KbDocuments, cli="documents", show=_table, offline=True, route="GET {base}/documents")
async def list_documents(asked: KbDocuments, caller: Caller, parts: DatabaseParts) -> DocumentPage:
    """List the documents of a base, and what of them could not be read, by file and page."""
    base, source = await meant_base(asked, caller, parts), SourceId(asked.source) if asked.source is not None else None
    counted = await parts.readers.run(stored.documents.count, caller.user, base.id)
    total = sum(
        each.with_problems if asked.problems else each.documents for each in counted if source in (None, each.source)
    )
    chosen = partial(stored.documents.of_base, source=source, problems=asked.problems)
    found = await parts.readers.run(chosen, caller.user, base.id, limit=asked.limit, offset=asked.offset)
    return {"base": base.id, "name": base.name, "count": total, "documents": found, "next": asked.following(total)}


# -- opening one ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class KbOpen(op.OfUser):
    document: op.Name = op.required("the document's id, as `klaw kb documents` tells it", id_of="kb_document")
    start: Character | None = op.argument("from this character on", metavar="N")
    end: Character | None = op.argument("to this character", metavar="N")
    page: op.Whole | None = op.argument("instead: this page", metavar="N")
    around: Annotated[int, Bounds(0, 20)] = op.argument(
        "passages before and after (default: 1)", default=1, metavar="N"
    )


class OpenedDocument(TypedDict):
    document: Document
    base: BaseName
    passages: list[Passage]
    previous: int | None
    next: int | None


def _opened(answer: dict[str, Any]) -> Lines:
    document = answer["document"]
    title = f" “{document['title']}”" if document["title"] else ""
    lines: list[Line] = [f"{document['name']}{title}, of {answer['base']['name']}"]
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


@NOUN.operation(
    "kb_open", KbOpen, cli="open", show=_opened, offline=True, route="GET documents/{document}", mcp="open_document"
)
async def open_document(asked: KbOpen, caller: Caller, parts: DatabaseParts) -> OpenedDocument:
    """Show the text of a document: around a range of characters, as citations have it, or of a page.

    Without a range from the beginning. next and previous are the start for what follows and what stands before.
    """
    documents, user = stored.documents, caller.user
    document = await parts.readers.run(documents.get, user, DocumentId(asked.document))
    base = (await parts.readers.run(stored.bases.get, user, document.base)).base
    first, last = 0, MOST_OPENED - 1
    if asked.page is not None or asked.start or asked.end:
        start = asked.start or 0
        between = (start, max(asked.end or start, start + 1)) if asked.page is None else None
        found = await parts.readers.run(
            documents.passages, user, document.id, between=between, page=asked.page, limit=MOST_OPENED
        )
        if not found:
            raise op.OperationError(
                "unknown_page", "the document has no such place: it may be another one now", field="document"
            )
        first, last = max(0, found[0].ordinal - asked.around), found[-1].ordinal + asked.around
    limit = min(last - first, MOST_OPENED + 40) + 3  # with one before and one behind
    shown = await parts.readers.run(documents.passages, user, document.id, first=max(0, first - 1), limit=limit)
    before = [each.start for each in shown if each.ordinal < first]
    after = [each.start for each in shown if each.ordinal > last]
    return {
        "document": document,
        "base": {"id": base.id, "name": base.name},
        "passages": [Passage(**fields_of(each, Passage)) for each in shown if first <= each.ordinal <= last],
        "previous": before[-1] if before else None,
        "next": after[0] if after else None,
    }


# -- searching a base as a chat does that is bound to it ---------------------------------------------------------------


WHY_NOTHING = {
    "no_content": "the question has no word that could be searched for",
    "search_failed": "the search failed (klaw status says why)",
    "no_passages": "no passage has a word of it or is near to it",
    "too_far": "no passage is near enough to the question",
    "over_budget": "no passage fits into kb.maxTokens",
}


@attrs.frozen(kw_only=True)
class KbSearch(op.OfUser):
    base: op.Name = op.required("the base's name or id", id_of="kb")
    query: op.Query = op.required("a question, or words", words=True)
    all: bool = op.argument("also passages that a chat would not be given", default=False)


@attrs.frozen(kw_only=True)
class PassageAnswer(Place):
    title: str
    also: list[Place]
    text: str
    score: float
    kept: bool
    decision: str


class PassagesFound(TypedDict):
    base: str
    passages: list[PassageAnswer]
    candidates: int
    nothing: str | None
    weak: bool
    """None of them fits the question well."""
    degraded: tuple[str, ...]


def _passages(answer: dict[str, Any]) -> ShownLines:
    lines: list[Line] = []
    for each in answer["passages"]:
        page = f"page {each['first_page']}" if each["first_page"] is not None else ""
        kept = "" if each["kept"] else each["decision"]
        head = [f"{each['score']:.2f}", each["name"], page, each["heading"], kept]
        lines += ["  ".join(filter(None, head)), *(f"    {line}" for line in each["text"].split("\n"))]
        lines += [f"    the same: {other['name']}" for other in each["also"]]
        lines += [f"    klaw kb open {each['document']} --start {each['start']} --end {each['end']}", ""]
    why = answer["nothing"]
    notes: list[str | Again] = [WHY_NOTHING.get(why, why)] if why else []
    notes += ["none of them fits the question well: the answer may be in none of them"] if answer["weak"] else []
    if why and answer["candidates"] and not answer["passages"]:
        notes.append(Again("what was found and left out: ", {"all": True}))
    notes += [f"without {code}" for code in answer["degraded"]]
    return ShownLines(lines, notes=notes, found=not why)


@NOUN.operation(
    "kb_search", KbSearch, cli="search", show=_passages, offline=True, route="GET {base}/search", mcp="search_knowledge"
)
async def search(asked: KbSearch, caller: Caller, parts: DatabaseParts) -> PassagesFound:
    """Find the passages of a base that a chat is given for a question.

    base is a name or id that knowledge_bases tells. Nothing relevant is a result too; nothing says why. open_document
    shows what stands around a passage: document, start and end.
    """
    from klaw.knowledge.search import KnowledgeSearch

    base = (await meant_base(asked, caller, parts)).id
    passages = KnowledgeSearch(parts.readers, parts.embedder, parts.config.auto_rag, parts.clock)
    found = await passages.search(asked.query, [base], caller.user, max_tokens=parts.config.kb.max_tokens)
    shown = [
        PassageAnswer(
            **attrs.asdict(each.passage.place),
            title=each.passage.title,
            also=[other.place for other in each.also],
            text=each.passage.text,
            score=round(each.score, 4),
            kept=each.passed,
            decision=each.decision,
        )
        for each in (found.candidates if asked.all else found.kept)
    ]
    return {
        "base": base,
        "passages": shown,
        "candidates": len(found.candidates),
        "nothing": found.why_nothing,
        "weak": found.weak,
        "degraded": found.degraded,
    }
