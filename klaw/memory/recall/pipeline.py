"""One pipeline of search: query → candidates → features → ranking → gate → packing.

Recall, ``memory_search``, topics and knowledge bases are its four configurations: where candidates come from
(``store.search``: each search gives ``Lists``), which features (``message_features``, ``knowledge.passage_features``),
which weights (``ranker.json`` beside these), which gate (``gate``). The stages are pure functions. What waits for the
store or for the model, and the account of it, is here.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, tzinfo
from typing import Any, TypeAlias, TypeVar

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.config.memory import AutoRagConfig
from klaw.domain.search import Candidate, RecallSettings
from klaw.errors import EmbeddingUnavailable, StorageError
from klaw.memory.embed.embedder import Embedder
from klaw.memory.embed.token_coder import Floats, Reading
from klaw.memory.recall.gate import Gate
from klaw.memory.recall.query import Query, read_query
from klaw.memory.recall.token_overlap import TokenOverlap, max_sim
from klaw.store.engine.database import Readers
from klaw.store.search.ranked_lists import Lists

T = TypeVar("T")
Search: TypeAlias = Callable[[bytes | None, Sequence[str], Lists], Awaitable[Lists]]
"""Searches by words, or by vector with what was found by words; the other one is None or empty."""

POOL, CONSIDERED = 200, 50
"""So many of the fused lists are ranked by all that is known of them; so many of these judged and accounted for."""
MAX_QUERY_CHARACTERS = 1_500
"""The beginning of a longer query is embedded: one run of the model."""
LEAST_SHARE = 0.5
"""The share of the time budget that a step has at least, however late the query's vector came."""

log = structlog.get_logger("klaw.recall")


@attrs.define
class Account:
    """What a search says of itself: what was missing, how long its steps took, what it read."""

    budget_s: float
    deadline: float = attrs.field(init=False)
    degraded: list[str] = attrs.Factory(list)
    timings_ms: dict[str, float] = attrs.Factory(dict)
    reading: Reading | None = None
    """What the model made of the query, when it came in time."""
    codes: Mapping[int, bytes] = attrs.Factory(dict)
    """The codes of the candidates' tokens, by row id."""
    added: tuple[str, ...] = ()
    """Words that a model added to the query."""

    def __attrs_post_init__(self) -> None:
        self.deadline = trio.current_time() + self.budget_s

    @property
    def soon(self) -> float:
        """Until when a step may take that begins now: the deadline, or what a late step before it must leave to it."""
        return max(self.deadline, trio.current_time() + self.budget_s * LEAST_SHARE)

    @property
    def vector(self) -> bytes | None:
        return self.reading.vector if self.reading is not None else None

    @property
    def query_tokens(self) -> Floats | None:
        return self.reading.tokens if self.reading is not None else None

    async def embed(self, embedder: Embedder, text: str, *, off: str | None = None) -> None:
        """Read the query with the model, until the deadline. ``off`` is said where vectors are switched off."""
        code: str | None = "embedding_late"
        with self.step("embed"), trio.move_on_at(self.deadline):
            try:
                self.reading, code = await embedder.read(text[:MAX_QUERY_CHARACTERS]), None
            except EmbeddingUnavailable as error:
                code = error.degraded or off
        if code is not None:
            self.say(code)

    def token_scores(self) -> dict[int, float]:
        """How well the words of each message with codes meet the query's. For a thread."""
        if self.query_tokens is None:
            return {}
        scores = zip(self.codes, max_sim(self.query_tokens, list(self.codes.values())), strict=True)
        return {rowid: score for rowid, score in scores if score is not None}

    def overlap_with(self, candidate: Candidate) -> TokenOverlap | None:
        """Where a candidate's message meets the query, if its tokens have codes."""
        query, codes = self.query_tokens, self.codes.get(candidate.message.rowid)
        return TokenOverlap(query, codes) if query is not None and len(query) and codes else None

    def say(self, code: str) -> None:
        if code not in self.degraded:
            self.degraded.append(code)

    def take(self, lists: Lists) -> Lists:
        if lists.vectors_failed:
            self.say("vector_search_failed")
        if lists.text_failed:
            self.say("text_search_failed")
        if not lists.vectors_complete:
            self.say("vectors_not_encoded")
        if lists.newest_only:
            self.say("newest_only")
        for step in lists.cut:
            self.say(f"cut_{step}")
        self.timings_ms.update(lists.timings_ms)
        return lists

    @contextmanager
    def degrading(self, what: str, event: str) -> Iterator[None]:
        """Go on when the store is late or fails in the body, and name it: ``search_late``, ``search_failed``."""
        try:
            yield
        except trio.TooSlowError:
            self.say(f"{what}_late")
        except StorageError as error:
            log.warning(event, error=error_class(error))
            self.say(f"{what}_failed")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begin = trio.current_time()
        try:
            yield
        finally:
            self.timings_ms[name] = self.timings_ms.get(name, 0.0) + (trio.current_time() - begin) * 1000


@attrs.define(eq=False, slots=False)
class SearchForPrompt:
    """What searches for a prompt have in common: a budget of time; a failure of a part is none of the whole."""

    _readers: Readers
    _embedder: Embedder
    _config: AutoRagConfig
    _clock: Clock
    _monotonic: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    _threads: Threads = attrs.field(factory=lambda: Threads("search", 2), init=False)

    def account(self) -> Account:
        return Account(self._config.time_budget_ms / 1000)

    def gate(self, query: Query, *, command: bool) -> Gate:
        threshold = self._config.relevance_threshold
        return Gate(threshold=threshold, content_words=len(query.content_stems), command=command)

    def settings(self, top_k: int, max_tokens: int) -> RecallSettings:
        return RecallSettings(
            top_k=top_k,
            max_tokens=max_tokens,
            relevance_threshold=self._config.relevance_threshold,
            time_budget_ms=self._config.time_budget_ms,
        )

    async def read(self, text: str, latest: date | None = None, zone: tzinfo | None = None) -> Query:
        return await self._threads.run(read_query, text, self._clock.now(), latest, zone)

    async def lists(self, text: str, words: Sequence[str], search: Search, account: Account) -> Lists:
        """Search by words while the query is embedded, then by vector: Python's part of both takes turns anyway."""
        hits = Lists()

        async def by_words() -> None:
            nonlocal hits
            hits = await search(None, words, Lists())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(by_words)
            await account.embed(self._embedder, text)
        near = Lists() if account.vector is None else await search(account.vector, (), hits)
        return account.take(hits.joined(near))

    async def timed(self, account: Account, search: Callable[..., Lists], *args: Any) -> Lists:
        """Run a search whose last arguments are its seconds and the clock; empty lists when it fails or is late."""
        seconds = account.soon - trio.current_time()
        # The second limit is for what cannot be interrupted from within.
        with account.degrading("search", "recall_failed"), trio.fail_after(2 * seconds):
            return await self._readers.run(search, *args, seconds, self._monotonic)
        return Lists()

    async def fetched(self, account: Account, default: T, read: Callable[..., T], *args: Any) -> T:
        """Read from the store what the search goes on with; the default when that fails or is late."""
        with account.degrading("search", "recall_failed"), trio.fail_at(account.soon):
            return await self._readers.run(read, *args)
        return default
