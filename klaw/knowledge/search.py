"""Searching knowledge bases, by the machinery of recall: from a question to the passages that answer it, with an
account of every candidate.

embed the question -> vectors and full text in scope -> Reciprocal Rank Fusion -> ranking -> relevance gate -> pack.
Every failure degrades to the rest and is named in the result, as is every step that time did not allow.
"""

import re
import time
from collections.abc import Callable, Collection, Sequence

import attrs
import trio

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.config.memory import AutoRagConfig
from klaw.domain.knowledge import BaseId, DocumentId
from klaw.domain.knowledge_search import FoundPassage, FoundPassages, PassageCandidate
from klaw.domain.names import UserId
from klaw.domain.search import RecallSettings
from klaw.knowledge import rank
from klaw.knowledge.rank import EMPTY, LINE_TOKENS, Pool
from klaw.memory.embed.embedder import Embedder, read_question
from klaw.memory.recall.account import Account
from klaw.memory.recall.excerpt import pack
from klaw.memory.recall.gate import Gate
from klaw.memory.recall.query import Query, read_query
from klaw.store.engine.database import Readers
from klaw.store.search import knowledge_search
from klaw.store.search.knowledge_search import PassageLists
from klaw.store.search.knowledge_vectors import PassageScope

DEPTH = 200
"""How many results each list gives to the fusion."""
POOL = 200
"""How many of the fused lists are read and ranked."""
CONSIDERED = 50
"""How many of the ranking are judged by the gate and accounted for."""
WHOLE_TOKENS = 300 + LINE_TOKENS
"""What a whole passage takes: so many are kept that each can be shown whole."""

_ABOUT_DOCUMENTS = re.compile(
    r"""\b(?:documents?|files?|reports?|papers?|articles?|books?|manuals?|handbooks?|contracts?|pages?|sections?
      |chapters?|paragraphs?|tables?|figures?|appendix|appendices|clauses?|according\ to
      |документ\w*|файл\w*|отч[её]т\w*|стать\w+|книг\w*|инструкци\w+|руководств\w+|договор\w*|страниц\w*|раздел\w*
      |глав[аеуы]\w*|пункт\w*|абзац\w*|таблиц\w*|рисун\w+|приложени\w+|согласно)\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""What a command speaks of that needs the documents: "summarize chapter 3", not "write a haiku"."""


@attrs.define(eq=False, slots=False)
class KnowledgeSearch:
    """Search over a store and an embedder.

    Args:
        config: recall's: its threshold and its time budget are those of passages too.
        clock: of reading a question.
        monotonic: seconds, by which the search's steps are measured in the readers' threads.
    """

    _readers: Readers
    _embedder: Embedder
    _config: AutoRagConfig
    _clock: Clock
    _monotonic: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    _threads: Threads = attrs.field(factory=lambda: Threads("knowledge", 2), init=False)

    async def search(
        self,
        text: str,
        bases: Collection[BaseId],
        user: UserId,
        *,
        max_tokens: int,
        within: Collection[DocumentId] | None = None,
        top_k: int | None = None,
    ) -> FoundPassages:
        """Find the passages that matter for a question. Never raises for a failure of a part: the result says what was
        degraded. Nothing kept is a result: ``why_nothing`` says why.

        Args:
            text: all that is searched with; of a follow-up the caller puts what it refers to before it.
            bases: where; those of which the user is no member are left out.
            max_tokens: of what is kept, estimated.
            within: only in these documents.
            top_k: at most so many are kept; None: as many whole ones as fit.

        Cancellation: nothing is changed.
        """
        account = Account(self._config.time_budget_ms / 1000)
        query, pool = await self._gather(text, PassageScope(user=user, bases=bases, documents=within), account)
        most = max(1, max_tokens // WHOLE_TOKENS) if top_k is None else top_k
        gate = Gate(
            threshold=self._config.relevance_threshold,
            content_words=len(query.content_stems),
            command=query.command and _ABOUT_DOCUMENTS.search(text) is None,
        )

        def decide() -> list[PassageCandidate]:
            judged = rank.once(pool.rank(gate, self._embedder.random_cosine, CONSIDERED))
            return pack(judged, query.content_stems, top_k=most, max_tokens=max_tokens)

        with account.step("rank"):
            candidates = await self._threads.run(decide)
        return FoundPassages(
            candidates=tuple(candidates),
            query_words=len(query.words),
            found=pool.found,
            degraded=tuple(account.degraded),
            timings_ms=account.timings_ms,
            command=gate.command,
            settings=RecallSettings(
                top_k=most,
                max_tokens=max_tokens,
                relevance_threshold=self._config.relevance_threshold,
                time_budget_ms=self._config.time_budget_ms,
            ),
        )

    async def gather(
        self, text: str, bases: Collection[BaseId], user: UserId, within: Collection[DocumentId] | None = None
    ) -> Pool:
        """What ``search`` ranks for a question: what the ranker is trained with."""
        account = Account(self._config.time_budget_ms / 1000)
        return (await self._gather(text, PassageScope(user=user, bases=bases, documents=within), account))[1]

    async def _gather(self, text: str, scope: PassageScope, account: Account) -> tuple[Query, Pool]:
        """Read the question, search, and look at what is to be ranked."""
        with account.step("begin"):
            query = await self._threads.run(read_query, text, self._clock.now(), None)
        if not query.words or not scope.bases:
            return query, EMPTY
        lists = await self._lists(text, query.words, scope, account)
        best, fused = rank.fuse(lists, POOL)
        with account.step("read"):
            read = await self._read(best, scope, account)
        with account.step("rank"):
            pool = await self._threads.run(rank.gather, lists, fused, read, text, self._embedder.random_cosine)
        return query, pool

    async def _lists(self, text: str, words: Sequence[str], scope: PassageScope, account: Account) -> PassageLists:
        """Search by words while the question is embedded, and then by vector."""
        by_words = PassageLists()

        async def search_words() -> None:
            nonlocal by_words
            by_words = await self._search(None, words, scope, account)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(search_words)
            with account.step("embed"):
                reading = await read_question(self._embedder, text, account.deadline, account.degraded)
        near = PassageLists() if reading is None else await self._search(reading.vector, (), scope, account)
        if near.vectors_failed:
            account.say("vector_search_failed")
        if by_words.text_failed:
            account.say("text_search_failed")
        for step in (*by_words.cut, *near.cut):
            account.say(f"cut_{step}")
        account.timings_ms.update({**by_words.timings_ms, **near.timings_ms})
        return attrs.evolve(by_words, neighbours=near.neighbours)

    async def _search(
        self, vector: bytes | None, words: Sequence[str], scope: PassageScope, account: Account
    ) -> PassageLists:
        seconds = account.soon - trio.current_time()
        # The search watches its own time; the second limit is for what cannot be interrupted from within.
        with account.degrading("search", "knowledge_search_failed"), trio.fail_after(2 * seconds):
            return await self._readers.run(
                knowledge_search.search_lists, vector, words, scope, DEPTH, seconds, self._monotonic
            )
        return PassageLists()

    async def _read(self, rowids: Sequence[int], scope: PassageScope, account: Account) -> list[FoundPassage]:
        with account.degrading("search", "knowledge_search_failed"), trio.fail_at(account.soon):
            return await self._readers.run(knowledge_search.read, rowids, scope)
        return []
