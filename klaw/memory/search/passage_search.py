"""Searching what is kept beside the messages: a user's facts, the pieces of their memory files, notes on tool calls.

Both lists by vector and by words, fused. Every fact is some vector's neighbour, and there are few facts: so, unlike
messages, they have to show that they have something to do with the query: a near vector, or enough of its words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from klaw.actor.threads import Threads
from klaw.domain.fact import Fact
from klaw.domain.names import UserId
from klaw.domain.search import AnyResult, FactResult, FileResult, Kind, NoteResult
from klaw.memory.recall.excerpt import forms_there, snippet
from klaw.memory.recall.gate import calibrated, enough_overlap
from klaw.memory.recall.rank import reciprocal_rank_fusion
from klaw.store.engine.database import Readers
from klaw.store.kinds import facts, memory_files, tool_notes
from klaw.store.kinds.memory_files import StoredChunk
from klaw.store.kinds.tool_notes import StoredNote
from klaw.store.search import passages
from klaw.store.search.history_search import HistoryFilters
from klaw.store.search.passages import PassageKind
from klaw.store.search.tokenizer import stem

DEPTH = 50
"""Of each list."""
NEAR = 0.5
"""Calibrated distance up to which a vector alone shows relevance (``autoRag.relevanceThreshold`` is the same)."""


@attrs.frozen(kw_only=True)
class Entry:
    """A message, a fact, a piece of a file or a note on a tool call that was found."""

    kind: Kind
    rowid: int
    score: float
    vector_rank: int | None
    distance: float | None
    text_rank: int | None
    bm25: float | None
    boosts: tuple[str, ...] = ()
    """Why a message's score was raised."""

    @property
    def key(self) -> tuple[Kind, int]:
        return self.kind, self.rowid


@attrs.frozen(kw_only=True)
class Kept:
    """The lists, the best first."""

    facts: Sequence[Entry] = ()
    files: Sequence[Entry] = ()
    notes: Sequence[Entry] = ()


async def find_kept(
    readers: Readers,
    vector: bytes | None,
    asked: Sequence[str],
    filters: HistoryFilters,
    kinds: frozenset[Kind] | None,
    random_cosine: float,
) -> Kept:
    """What of a user's facts, files and notes has to do with a query. Notes are of a chat, the others of none.

    Args:
        readers: of the store.
        vector: of the query, if there is one.
        asked: its words, as written.
        filters: the user counts, for facts the time of their last change, for notes the chat and the time of the call.
            See ``MemorySearch.search``.
        kinds: what is looked for.
        random_cosine: of the model.

    Raises:
        StorageError: the database cannot be read.
    """
    if filters.role is not None:
        return Kept()
    timed = filters.since is not None or filters.until is not None
    found: dict[Kind, list[Entry]] = {"fact": [], "file": [], "note": []}
    of: tuple[tuple[Kind, PassageKind], ...] = (("fact", "fact"), ("file", "chunk"), ("note", "note"))
    for kind, stored in of:
        if filters.chat is not None and kind != "note":
            continue
        if (kinds is not None and kind not in kinds) or (kind == "file" and timed):
            continue
        near = () if vector is None else await readers.run(passages.nearest, stored, filters.user, vector, DEPTH)
        hits = await readers.run(passages.matching, stored, filters.user, asked, DEPTH)
        scores = reciprocal_rank_fusion([(1.0, [each.rowid for each in near]), (1.0, [hit.rowid for hit in hits])])
        texts = await _texts(readers, kind, filters, list(scores))
        by_vector = {each.rowid: (rank, each.distance) for rank, each in enumerate(near, 1)}
        by_words = {hit.rowid: (rank, hit.bm25) for rank, hit in enumerate(hits, 1)}
        for rowid, score in sorted(scores.items(), key=lambda one: (-one[1], -one[0])):
            if rowid not in texts:
                continue
            vector_rank, distance = by_vector.get(rowid, (None, None))
            text_rank, bm25 = by_words.get(rowid, (None, None))
            away = calibrated(distance, random_cosine) if distance is not None else None
            entry = Entry(
                kind=kind,
                rowid=rowid,
                score=score,
                vector_rank=vector_rank,
                distance=away,
                text_rank=text_rank,
                bm25=bm25,
            )
            if is_related(away, texts[rowid], asked):
                found[kind].append(entry)
    return Kept(facts=found["fact"], files=found["file"], notes=found["note"])


def is_related(distance: float | None, text: str, asked: Sequence[str]) -> bool:
    """Whether a text has something to do with a query: by its calibrated distance, or by the query's words in it."""
    if distance is not None and distance <= NEAR:
        return True
    forms = {stem(word) for word in asked}
    shared = len(forms_there(text, forms)) if forms else 0
    return shared > 0 and shared / len(forms) >= enough_overlap(shared, command=False)


async def _texts(readers: Readers, kind: Kind, filters: HistoryFilters, rowids: list[int]) -> Mapping[int, str]:
    """The texts of those that the filters allow."""
    if kind == "file":
        pieces = await readers.run(memory_files.by_rowids, filters.user, rowids)
        return {rowid: f"{each.heading}\n{each.text}" for rowid, each in pieces.items()}
    if kind == "note":
        notes = await readers.run(tool_notes.by_rowids, filters.user, rowids)
        return {
            rowid: _note_text(each)
            for rowid, each in notes.items()
            if filters.chat in (None, each.chat) and _is_between(each.created_at, filters)
        }
    known = await readers.run(facts.by_rowids, filters.user, rowids)
    return {rowid: each.text for rowid, each in known.items() if _is_between(each.updated_at, filters)}


def _note_text(stored: StoredNote) -> str:
    """A note's text as it is searched."""
    return f"{stored.note.tool}: {stored.note.text}"


def _is_between(time: str, filters: HistoryFilters) -> bool:
    return (filters.since is None or time >= filters.since) and (filters.until is None or time < filters.until)


async def read_kept(
    readers: Readers, threads: Threads, shown: Sequence[Entry], user: UserId, asked: Sequence[str]
) -> dict[tuple[Kind, int], AnyResult]:
    """The results of entries by their keys; what is gone meanwhile is left out."""
    known = await readers.run(facts.by_rowids, user, [each.rowid for each in shown if each.kind == "fact"])
    pieces = await readers.run(memory_files.by_rowids, user, [each.rowid for each in shown if each.kind == "file"])
    notes = await readers.run(tool_notes.by_rowids, user, [each.rowid for each in shown if each.kind == "note"])
    return await threads.run(_results, shown, known, pieces, notes, asked)


def _results(
    shown: Sequence[Entry],
    known: Mapping[int, Fact],
    pieces: Mapping[int, StoredChunk],
    notes: Mapping[int, StoredNote],
    asked: Sequence[str],
) -> dict[tuple[Kind, int], AnyResult]:
    """Pure; reads all of the texts, so it runs in a thread."""
    stems = {stem(word): word for word in asked}
    results: dict[tuple[Kind, int], AnyResult] = {}
    for each in shown:
        if each.kind == "fact" and each.rowid in known:
            results[each.key] = _fact_result(each, known[each.rowid], stems)
        elif each.kind == "file" and each.rowid in pieces:
            results[each.key] = _file_result(each, pieces[each.rowid], stems)
        elif each.kind == "note" and each.rowid in notes:
            results[each.key] = _note_result(each, notes[each.rowid], stems)
    return results


def how_found(entry: Entry, text: str, stems: Mapping[str, str], *, shown: str | None = None) -> dict[str, Any]:
    """What all results say of how they were found. Pure; reads all of the text.

    Args:
        entry: in the ranking.
        text: in which the words are looked for.
        stems: the query's words by their stems.
        shown: what a snippet is cut from, if not the text.
    """
    cut, there = snippet(text if shown is None else shown, stems), forms_there(text, stems)
    return {
        "score": entry.score,
        "vector_rank": entry.vector_rank,
        "distance": entry.distance,
        "text_rank": entry.text_rank,
        "bm25": entry.bm25,
        "words": tuple(word for form, word in stems.items() if form in there),
        "snippet": cut.text,
        "marks": cut.marks,
    }


def _fact_result(entry: Entry, fact: Fact, stems: Mapping[str, str]) -> FactResult:
    return FactResult(
        **how_found(entry, fact.text, stems),
        id=fact.id,
        category=fact.category,
        importance=fact.importance,
        source=fact.source,
        origin=fact.origin,
        created_at=fact.created_at,
        updated_at=fact.updated_at,
    )


def _file_result(entry: Entry, piece: StoredChunk, stems: Mapping[str, str]) -> FileResult:
    return FileResult(
        **how_found(entry, f"{piece.heading}\n{piece.text}", stems, shown=piece.text),
        path=piece.path,
        line=piece.line,
        heading=piece.heading,
    )


def _note_result(entry: Entry, stored: StoredNote, stems: Mapping[str, str]) -> NoteResult:
    return NoteResult(
        **how_found(entry, _note_text(stored), stems),
        chat=stored.chat,
        seq=stored.note.seq,
        tool=stored.note.tool,
        created_at=stored.created_at,
    )
