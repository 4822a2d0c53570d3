"""Searching what is kept beside the messages: a user's facts, the pieces of their memory files, notes on tool calls;
and whom a query names ("who is Аня?", "Аню", "Anna's birthday").

Both lists by vector and by words, fused. Every fact is some vector's neighbour, and there are few facts: so, unlike
messages, they have to show that they have something to do with the query: a near vector, or enough of its words.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from klaw.actor.threads import Threads
from klaw.domain.fact import Fact
from klaw.domain.names import UserId
from klaw.domain.person import Finder, PersonId, folded, word_forms
from klaw.domain.search import AnyResult, FactResult, FileResult, Kind, NamedFact, NoteResult, PersonResult
from klaw.memory.recall.excerpt import forms_there, snippet
from klaw.memory.recall.gate import calibrated, enough_overlap
from klaw.memory.recall.rank import Entry, reciprocal_rank_fusion
from klaw.store.engine.database import Readers
from klaw.store.kinds import facts, memory_files, tool_notes
from klaw.store.kinds.memory_files import StoredChunk
from klaw.store.kinds.tool_notes import StoredNote
from klaw.store.search import passages, people_search
from klaw.store.search.history_search import HistoryFilters
from klaw.store.search.passages import PassageKind
from klaw.store.search.tokenizer import stem

DEPTH = 50
"""Of each list."""
NEAR = 0.5
"""Calibrated distance up to which a vector alone shows relevance (``autoRag.relevanceThreshold`` is the same)."""


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
            away = calibrated(distance, random_cosine)
            if is_related(away, texts[rowid], asked):
                entry = Entry(
                    kind=kind,
                    rowid=rowid,
                    score=score,
                    vector_rank=vector_rank,
                    distance=away,
                    text_rank=text_rank,
                    bm25=bm25,
                )
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
        **entry.ranks(),
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


MOST = 3
"""People that a search shows."""
FACTS_EACH = 3
MIN_PART = 3
"""Letters of a part of a name that counts for all of it: the first name, the surname."""
MAX_CHARACTERS = 8_000
"""Of a longer text only the beginning is looked through for names: it is read again for each of them."""
_START = 2
"""All forms of a word begin with the same letters, so many at least."""


@attrs.frozen
class PeopleSearch:
    """Looks for people in one store."""

    readers: Readers

    async def find(self, text: str, user: UserId, *, limit: int = MOST) -> tuple[PersonResult, ...]:
        """Those of a user's people whose name or alias stands in a text, whole names first, and those known last first.

        Raises:
            StorageError: the database cannot be read.
        """
        text = text[:MAX_CHARACTERS]
        if not re.search(r"\w", text):
            return ()
        found = await self.readers.run(people_search.find, user, partial(named, text, limit=limit), FACTS_EACH)
        return tuple(map(_result, found))


def named(text: str, known: Sequence[tuple[PersonId, Sequence[str]]], *, limit: int) -> list[PersonId]:
    """Whom a text names. Pure.

    Args:
        text: what was asked.
        known: people with their names' normal forms, in the order in which they are to be told.
        limit: so many at most.
    """
    wanted = frozenset(re.findall(r"\w+", folded(text)))
    starts = frozenset(word[:_START] for word in wanted)
    whole, partly = [], []
    for person, names in known:
        near = [name for name in names if any(word[:_START] in starts for word in name.split())]
        if not near:
            continue
        if Finder(tuple(near)).finds(text):
            whole.append(person)
        elif any(_has_part(name, wanted) for name in near):
            partly.append(person)
    return [*whole, *partly][:limit]


def _has_part(name: str, wanted: frozenset[str]) -> bool:
    words = name.split()
    return any(len(word) >= MIN_PART and not wanted.isdisjoint(word_forms(word)) for word in words)


def _result(found: people_search.Found) -> PersonResult:
    person = found.person
    return PersonResult(
        id=person.id,
        name=person.name,
        aliases=person.aliases,
        relation=person.relation,
        last_at=found.last_at,
        facts=tuple(NamedFact(id=each.id, text=" ".join(each.text.split())) for each in found.facts),
    )
