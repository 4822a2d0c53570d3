"""Searching bases as a chat does that is bound to them."""

from typing import TYPE_CHECKING, Any

import attrs

from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts
from klaw.operations.kb.noun import NOUN, meant
from klaw.operations.lines import Again, Line, ShownLines

if TYPE_CHECKING:
    from klaw.operations.answers.knowledge import PassagesFound

_WHY = {
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


def _lines(answer: dict[str, Any]) -> ShownLines:
    lines: list[Line] = []
    for each in answer["passages"]:
        page = f"page {each['first_page']}" if each["first_page"] is not None else ""
        kept = "" if each["kept"] else each["decision"]
        head = [f"{each['score']:.2f}", each["name"], page, each["heading"], kept]
        lines += ["  ".join(filter(None, head)), *(f"    {line}" for line in each["text"].split("\n"))]
        lines += [f"    the same: {other['name']}" for other in each["also"]]
        lines += [f"    klaw kb open {each['document']} --start {each['start']} --end {each['end']}", ""]
    notes: list[str | Again] = [_WHY.get(answer["nothing"], answer["nothing"])] if answer["nothing"] else []
    if answer["nothing"] and answer["candidates"] and not answer["passages"]:
        notes.append(Again("what was found and left out: ", {"all": True}))
    notes += [f"without {code}" for code in answer["degraded"]]
    return ShownLines(lines, notes=notes, found=not answer["nothing"])


@NOUN.operation(
    "kb_search", KbSearch, cli="search", show=_lines, offline=True, route="GET {base}/search", mcp="search_knowledge"
)
async def search(asked: KbSearch, caller: Caller, parts: DatabaseParts) -> "PassagesFound":
    """Find the passages of a base that a chat is given for a question.

    base is a name or id that knowledge_bases tells. Nothing relevant is a result too; nothing says why. open_document
    shows what stands around a passage: document, start and end.
    """
    from klaw.knowledge.search import KnowledgeSearch
    from klaw.operations.answers.knowledge import PassageAnswer

    base = (await meant(parts.readers, caller.user, asked.base)).base
    passages = KnowledgeSearch(parts.readers, parts.embedder, parts.config.auto_rag, parts.clock)
    found = await passages.search(asked.query, [base.id], caller.user, max_tokens=parts.config.kb.max_tokens)
    shown = found.candidates if asked.all else found.kept
    return {
        "base": base.id,
        "passages": [
            PassageAnswer(
                **attrs.asdict(each.passage.place),
                title=each.passage.title,
                also=[other.place for other in each.also],
                text=each.passage.text,
                score=round(each.score, 4),
                kept=each.passed,
                decision=each.decision,
            )
            for each in shown
        ],
        "candidates": len(found.candidates),
        "nothing": found.why_nothing,
        "degraded": found.degraded,
    }
