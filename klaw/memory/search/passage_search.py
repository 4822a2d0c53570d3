"""Searching what is kept beside the messages: a user's facts, pieces of memory files, notes on tool calls, passages of
files; by vector and by words, fused. Every fact is some vector's neighbour: so they have to show that they concern the
query."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from klaw.actor.threads import Threads
from klaw.domain.fact import Fact
from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.domain.search import (
    AnyResult,
    DocumentResult,
    FactResult,
    FileResult,
    Kind,
    NoteResult,
    RankDetails,
    Ranks,
    SearchResult,
    fields_of,
)
from klaw.memory.recall.excerpt import forms_there, snippet
from klaw.memory.recall.gate import calibrated, enough_overlap
from klaw.memory.recall.ranker import fuse
from klaw.store.engine.database import Readers
from klaw.store.engine.tokenizer import stem
from klaw.store.kinds import facts, memory_files
from klaw.store.kinds.knowledge import message_files
from klaw.store.kinds.knowledge.message_files import SentPassage
from klaw.store.kinds.knowledge.passages import PassageScope
from klaw.store.kinds.memory_files import StoredChunk
from klaw.store.kinds.summaries import StoredNote, notes_by_rowids
from klaw.store.search import passages
from klaw.store.search.history_search import HistoryFilters, read_messages
from klaw.store.search.passages import PassageKind
from klaw.store.search.ranked_lists import Lists

DEPTH = 50
DOCUMENTS_S = 1.0
"""Time for the search of files of messages."""
NEAR = 0.5
"""Calibrated distance up to which a vector alone shows relevance (``autoRag.relevanceThreshold`` is the same)."""

Stored: TypeAlias = Fact | StoredChunk | StoredNote | SentPassage | Message
_READ: Mapping[Kind, Callable[[Any, UserId, Sequence[int]], Mapping[int, Stored]]] = {
    "fact": facts.by_rowids,
    "file": memory_files.by_rowids,
    "note": notes_by_rowids,
    "document": message_files.passages_by_rowids,
    "message": lambda connection, user, rowids: {each.rowid: each for each in read_messages(connection, rowids, user)},
}


@attrs.frozen(kw_only=True)
class ResultEntry(RankDetails):
    kind: Kind
    rowid: int

    @property
    def key(self) -> tuple[Kind, int]:
        return self.kind, self.rowid


async def find_kept(
    readers: Readers,
    vector: bytes | None,
    asked: Sequence[str],
    filters: HistoryFilters,
    kinds: frozenset[Kind] | None,
    random_cosine: float,
) -> dict[Kind, list[ResultEntry]]:
    """What of a user's facts, files and notes has to do with a query's vector and words (as written). Filters by time
    count for facts (their last change) and notes (the call), those by chat for notes. Raises StorageError."""
    found: dict[Kind, list[ResultEntry]] = {"fact": [], "file": [], "note": [], "document": []}
    if filters.role is not None:
        return found
    timed = filters.since is not None or filters.until is not None
    of: tuple[tuple[Kind, PassageKind], ...]
    of = (("fact", "fact"), ("file", "chunk"), ("note", "note"), ("document", "document"))
    for kind, stored in of:
        if filters.chat is not None and kind not in ("note", "document"):
            continue
        if (kinds is not None and kind not in kinds) or (kind == "file" and timed):
            continue
        if stored == "document":
            lists = await _search_documents(readers, vector, asked, filters)
        else:
            near = () if vector is None else await readers.run(passages.nearest, stored, filters.user, vector, DEPTH)
            hits = await readers.run(passages.matching, stored, filters.user, asked, DEPTH)
            lists = Lists(neighbours=near, hits=hits)
        fused = fuse(lists)
        kept = await readers.run(_READ[kind], filters.user, list(fused))
        texts = {rowid: _text(each) for rowid, each in kept.items() if _is_allowed(each, filters)}
        for rowid, ranks in sorted(fused.items(), key=lambda one: (-one[1].score, -one[0])):
            away = calibrated(ranks.distance, random_cosine)
            if rowid in texts and is_related(away, texts[rowid], asked):
                found[kind].append(ResultEntry(kind=kind, rowid=rowid, **{**fields_of(ranks, Ranks), "distance": away}))
    return found


async def _search_documents(
    readers: Readers, vector: bytes | None, asked: Sequence[str], filters: HistoryFilters
) -> Lists:
    """Search the files of messages."""
    user = filters.user
    documents = await readers.run(message_files.sent, user, filters.chat)
    if not documents:
        return Lists()
    scope = PassageScope(user=user, bases=[message_files.base_of(user)], documents=documents)
    return await readers.run(passages.search_documents, vector, asked, scope, DEPTH, DOCUMENTS_S)


def is_related(distance: float | None, text: str, asked: Sequence[str]) -> bool:
    """Whether a text has something to do with a query: by its calibrated distance, or by the query's words in it."""
    if distance is not None and distance <= NEAR:
        return True
    forms = {stem(word) for word in asked}
    shared = len(forms_there(text, forms)) if forms else 0
    return shared > 0 and shared / len(forms) >= enough_overlap(shared, command=False)


def _text(stored: Stored) -> str:
    match stored:
        case StoredChunk():
            return f"{stored.heading}\n{stored.text}"
        case StoredNote():
            return f"{stored.note.tool}: {stored.note.text}"
        case SentPassage():
            return stored.passage.text
        case Message():
            return stored.content
        case _:
            return stored.text


def _is_allowed(stored: Stored, filters: HistoryFilters) -> bool:
    if isinstance(stored, StoredChunk):
        return True
    if isinstance(stored, StoredNote) and filters.chat != stored.chat and (filters.chat or stored.temporary):
        return False
    if isinstance(stored, SentPassage):
        time = stored.sent.created_at
        return (filters.since is None or time >= filters.since) and (filters.until is None or time < filters.until)
    time = stored.updated_at if isinstance(stored, Fact) else stored.created_at
    return (filters.since is None or time >= filters.since) and (filters.until is None or time < filters.until)


async def read_results(
    readers: Readers, threads: Threads, shown: Sequence[ResultEntry], user: UserId, asked: Sequence[str]
) -> list[AnyResult]:
    """The results of entries in their order; what is gone meanwhile is left out, and so are the emptied rows of
    forgotten messages."""
    found: dict[tuple[Kind, int], Stored] = {}
    for kind in {each.kind for each in shown}:
        read = await readers.run(_READ[kind], user, [each.rowid for each in shown if each.kind == kind])
        found |= {(kind, rowid): stored for rowid, stored in read.items() if _text(stored)}
    return await threads.run(_results, [(each, found[each.key]) for each in shown if each.key in found], asked)


def _results(shown: Sequence[tuple[ResultEntry, Stored]], asked: Sequence[str]) -> list[AnyResult]:
    stems = {stem(word): word for word in asked}
    return [_result(entry, stored, stems) for entry, stored in shown]


def _result(entry: ResultEntry, stored: Stored, stems: Mapping[str, str]) -> AnyResult:
    text = _text(stored)
    piece, there = snippet(stored.text if isinstance(stored, StoredChunk) else text, stems), forms_there(text, stems)
    found: dict[str, Any] = {
        **fields_of(entry, Ranks),
        "words": tuple(word for form, word in stems.items() if form in there),
        "snippet": piece.text,
        "marks": piece.marks,
    }
    match stored:
        case Fact():
            return FactResult(**found, **fields_of(stored, FactResult))
        case StoredChunk():
            return FileResult(**found, **fields_of(stored, FileResult))
        case StoredNote():
            note = stored.note
            return NoteResult(**found, chat=stored.chat, seq=note.seq, tool=note.tool, created_at=stored.created_at)
        case SentPassage(passage=passage, sent=sent):
            return DocumentResult(
                **found,
                **attrs.asdict(sent),
                document=passage.document,
                page=passage.first_page,
                heading=passage.heading,
            )
        case Message():
            return SearchResult(**found, **fields_of(stored, SearchResult), boosts=entry.boosts)
