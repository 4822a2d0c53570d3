"""``memory_search``: what matches a query in all that a user and the assistant ever said, in the user's facts and
memory files, page by page.

The pipeline of recall over a user's whole history, fused by rank with facts and pieces of files. Somebody asked for it,
so there is no relevance gate for messages, and words that recall leaves out are looked for when there are no others.

A list is ranked once and kept for its other pages. It has nothing newer than when it was first asked for, and counts
"yesterday" from then: both are in the name of the next page (``3-f4240-6925a3b0``), so that all pages are of one list,
also after a restart.
"""

import math
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import attrs
import trio

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.domain.search import Kind, RankDetails, SearchPage, TopicResult, fields_of
from klaw.domain.topic import TopicCandidate
from klaw.errors import InvalidValue
from klaw.memory.embed.embedder import QUERY_S, Embedder
from klaw.memory.recall.gate import calibrated
from klaw.memory.recall.message_features import gather
from klaw.memory.recall.pipeline import POOL, Account
from klaw.memory.recall.query import Query, read_query, read_search_words
from klaw.memory.recall.ranker import Pool, RankedEntry, mix
from klaw.memory.search.named_people import find_people
from klaw.memory.search.passage_search import ResultEntry, find_kept, read_results
from klaw.memory.topics.search import TopicSearch
from klaw.store.engine.database import Readers
from klaw.store.engine.tokenizer import words
from klaw.store.search import token_codes
from klaw.store.search.history_search import HistoryFilters, history_end, search_history
from klaw.store.search.ranked_lists import HEAD_CHARACTERS, Lists, MessagePlace

DEPTH = 200
"""How many results each list gives to the fusion; those by words share their scores with their neighbours."""
DEFAULT_LIMIT = 10
NEAR_ENOUGH = 0.6
"""Calibrated distance up to which a message without a word of the query is found. Wider than for a reply (0.5):
somebody asked, and across languages what is meant lies there ("аллергия на орехи", "allergic to peanuts": 0.51)."""
TOPICS = 3
_SWITCHED_OFF = "embedding_off"
KEPT_LISTS = 16
"""Lists of results that are kept for their next pages; some 200 KB each at most."""

RankedMessage: TypeAlias = RankedEntry[MessagePlace]


def matches_first(ranked: Sequence[RankedMessage]) -> list[RankedMessage]:
    """Put what only stands beside a match behind it, unless its own vector is nearer: words were searched for. Pure."""
    there = {each.rowid: each for each in ranked}
    limits: dict[int, float] = {}
    for each in ranked:
        if each.bm25 is None:
            continue
        for rowid in (each.item.previous, each.item.next):
            other = there.get(rowid) if rowid is not None else None
            if other is not None and other.bm25 is None and not _is_nearer(other, each):
                limits[other.rowid] = min(each.score, limits.get(other.rowid, other.score))
    limited = [attrs.evolve(each, score=limits[each.rowid]) if each.rowid in limits else each for each in ranked]
    return sorted(limited, key=lambda each: (-each.score, each.rowid in limits, -each.rowid))


def _is_nearer(one: RankedMessage, other: RankedMessage) -> bool:
    return one.vector_rank is not None and (other.vector_rank is None or one.vector_rank < other.vector_rank)


def newer_first(ranked: Sequence[RankedMessage]) -> list[RankedMessage]:
    """Let the messages that say the same (of one role, with the same words, as far as the beginning and the length of a
    longer one tell) change places among themselves, so that the newest of them comes first. Pure."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    for at, each in enumerate(ranked):
        place = each.item
        is_whole = len(place.head) < HEAD_CHARACTERS
        said = unicodedata.normalize("NFKC", " ".join(words(place.head))).casefold() or place.head
        groups.setdefault((place.role, said, 0 if is_whole else place.tokens), []).append(at)
    ordered = list(ranked)
    for group in (each for each in groups.values() if len(each) > 1):
        newest = sorted(group, key=lambda at: -ranked[at].rowid)
        for at, other in zip(group, newest, strict=True):
            ordered[at] = attrs.evolve(ranked[other], score=ranked[at].score)
    return ordered


MAX_PAGE = 1_000
_CURSOR = re.compile(r"([0-9]{1,4})(?:-([0-9a-f]{1,16})-([0-9a-f]{1,9}))?")


@attrs.frozen(kw_only=True)
class Cursor:
    """A page of a list that was begun before, at a time in Unix seconds, when ``last_rowid`` was the newest message."""

    page: int
    last_rowid: int
    asked_at: int

    def __str__(self) -> str:
        return f"{self.page}-{self.last_rowid:x}-{self.asked_at:x}"


def read_cursor(text: str) -> Cursor | int:
    """A page, or of a list that is begun again its number alone. Raises InvalidValue."""
    match = _CURSOR.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= MAX_PAGE or (match[2] and int(match[2], 16) >= 1 << 63):
        raise InvalidValue(f"must be a number from 1 to {MAX_PAGE}, or the name of a next page as a search gave it")
    if match[2] is None:
        return int(match[1])
    return Cursor(page=int(match[1]), last_rowid=int(match[2], 16), asked_at=int(match[3], 16))


@attrs.frozen(kw_only=True)
class ResultList:
    entries: tuple[ResultEntry, ...]
    is_exact: bool
    words: tuple[str, ...]
    words_left_out: tuple[str, ...]
    degraded: tuple[str, ...]
    topics: tuple[TopicCandidate, ...] = ()


class MemorySearch:
    """One reader is used at a time, so that turns find the others free."""

    def __init__(self, readers: Readers, embedder: Embedder, clock: Clock, topics: TopicSearch | None = None) -> None:
        self._readers = readers
        self._topics = topics
        self._embedder = embedder
        self._clock = clock
        self._one_at_a_time = trio.CapacityLimiter(1)
        self._threads = Threads("memory search", 1)
        self._lists: OrderedDict[tuple[str, HistoryFilters, int, frozenset[Kind] | None], ResultList] = OrderedDict()

    def now(self) -> int:
        """Unix seconds from which a search that begins now counts its days."""
        return math.floor(self._clock.now())

    async def search(
        self,
        text: str,
        filters: HistoryFilters,
        *,
        limit: int = DEFAULT_LIMIT,
        page: int | Cursor = 1,
        kinds: frozenset[Kind] | None = None,
    ) -> SearchPage:
        """Find what matches a query. Raises StorageError; a damaged index is none, the other one is used.

        Args:
            filters: their ``last_rowid`` is set here.
            kinds: None for all. Facts and files are of no chat, only messages are of a speaker, and files are of no
                time: with such a filter they are left out. People are shown without any filter only.
        """
        account = Account(QUERY_S)
        asked_at = page.asked_at if isinstance(page, Cursor) else self.now()
        number = page.page if isinstance(page, Cursor) else page
        async with self._one_at_a_time:
            newest, latest, zone = await self._readers.run(history_end, filters.user)
            last_rowid = page.last_rowid if isinstance(page, Cursor) else newest
            query = await self._threads.run(read_query, text, asked_at, latest, zone)
            upto = attrs.evolve(filters, last_rowid=last_rowid)
            found = await self._list(text, query, upto, kinds, asked_at, account)
            first = (number - 1) * limit
            shown = found.entries[first : first + limit]
            everything = kinds is None and attrs.evolve(filters, last_rowid=None) == HistoryFilters(user=filters.user)
            ask_who = everything and number == 1 and bool(found.words)
            with account.step("read"):
                results = await read_results(self._readers, self._threads, shown, filters.user, found.words)
                who = await find_people(self._readers, text, filters.user) if ask_who else ()
        topics = found.topics if number == 1 else ()
        more = first + limit < len(found.entries) and number < MAX_PAGE
        following = Cursor(page=number + 1, last_rowid=last_rowid, asked_at=asked_at)
        return SearchPage(
            results=tuple(results),
            page=number,
            first=first + 1,
            next=str(following) if more else None,
            total=len(found.entries),
            total_is_exact=found.is_exact,
            words=found.words,
            words_left_out=found.words_left_out,
            degraded=found.degraded,
            timings_ms=account.timings_ms,
            topics=tuple(TopicResult(**fields_of(hit.topic, TopicResult), score=hit.score) for hit in topics),
            people=who,
        )

    async def _list(
        self,
        text: str,
        query: Query,
        filters: HistoryFilters,
        kinds: frozenset[Kind] | None,
        asked_at: int,
        account: Account,
    ) -> ResultList:
        key = text, filters, asked_at, kinds
        if key in self._lists:
            self._lists.move_to_end(key)
            return self._lists[key]
        asked = tuple(await self._threads.run(read_search_words, text))
        if not asked:
            return ResultList(entries=(), is_exact=True, words=(), words_left_out=(), degraded=())
        await account.embed(self._embedder, text, off=_SWITCHED_OFF)
        if account.vector is not None and self._embedder.is_incomplete:
            account.say("vectors_incomplete")
        random_cosine, found = self._embedder.random_cosine, Lists()
        with account.step("search"):
            if kinds is None or "message" in kinds:
                found = await self._readers.run(search_history, account.vector, asked, filters, DEPTH)
            kept = await find_kept(self._readers, account.vector, asked, filters, kinds, random_cosine)
        if account.take(found).vectors_failed:
            self._embedder.report_damage()
        with account.step("rank"):
            pool = await self._threads.run(partial(gather, found, query, random_cosine=random_cosine, size=POOL))
        if account.query_tokens is not None:
            rowids = [each.rowid for each in pool.entries]
            with account.step("tokens"):
                account.codes = await self._readers.run(token_codes.of_user, rowids, filters.user)
        with account.step("rank"):
            said = await self._threads.run(_rank, pool, account, random_cosine)
        entries = mix([kept["fact"], said, kept["document"], kept["note"], kept["file"]])
        whole = max(len(found.neighbours), len(found.hits)) < DEPTH and not found.words_left_out
        topics = await self._find_topics(account.vector, asked, [each.rowid for each in entries], filters)
        made = ResultList(
            entries=tuple(entries),
            is_exact=whole and set(account.degraded) <= {_SWITCHED_OFF},
            words=asked,
            words_left_out=tuple(found.words_left_out),
            degraded=tuple(account.degraded),
            topics=tuple(topics),
        )
        self._lists[key] = made
        if len(self._lists) > KEPT_LISTS:
            self._lists.popitem(last=False)
        return made

    async def _find_topics(
        self, vector: bytes | None, asked: Sequence[str], rowids: Sequence[int], filters: HistoryFilters
    ) -> list[TopicCandidate]:
        if self._topics is None or filters.role is not None:
            return []
        return await self._topics.find(vector, asked, rowids, filters, limit=TOPICS)


def _rank(pool: Pool[MessagePlace], account: Account, random_cosine: float) -> list[ResultEntry]:
    best = pool.rank(account.token_scores())
    behind = best[-1].score - 1 if best else 0.0
    found = []
    for each in newer_first([*matches_first(best), *pool.rest(behind)]):
        distance = calibrated(each.distance, random_cosine)
        if each.text_rank is not None or (distance is not None and distance <= NEAR_ENOUGH):
            details = fields_of(each, RankDetails) | {"distance": distance}
            found.append(ResultEntry(kind="message", rowid=each.rowid, **details))
    return found
