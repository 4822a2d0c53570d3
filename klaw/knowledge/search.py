"""Searching knowledge bases: the pipeline of recall over passages of documents, with an account of every candidate.
Passages are read before they are ranked, because their features are in their text."""

import re
from collections.abc import Collection, Sequence

import attrs

from klaw.domain.knowledge import BaseId, DocumentId
from klaw.domain.names import UserId
from klaw.domain.search import FoundPassage, PassageCandidate, PassageOutcome
from klaw.knowledge.passage_features import LINE_TOKENS, PASSAGES, best_of, gather, judge_passages, lack, once
from klaw.memory.recall.excerpt import pack
from klaw.memory.recall.pipeline import CONSIDERED, POOL, Account, SearchForPrompt
from klaw.memory.recall.query import Query
from klaw.memory.recall.ranker import Pool, fuse
from klaw.store.kinds.knowledge import passages
from klaw.store.kinds.knowledge.passages import PassageScope
from klaw.store.search import passages as stored_passages
from klaw.store.search.ranked_lists import Lists

DEPTH = 200
"""How many results each list gives to the fusion."""
WHOLE_TOKENS = 300 + LINE_TOKENS
EMPTY: Pool[FoundPassage] = Pool(of=PASSAGES)

_ABOUT_DOCUMENTS = re.compile(
    r"""\b(?:documents?|files?|reports?|papers?|articles?|books?|manuals?|handbooks?|contracts?|pages?|sections?
      |chapters?|paragraphs?|tables?|figures?|appendix|appendices|clauses?|according\ to
      |документ\w*|файл\w*|отч[её]т\w*|стать\w+|книг\w*|инструкци\w+|руководств\w+|договор\w*|страниц\w*|раздел\w*
      |глав[аеуы]\w*|пункт\w*|абзац\w*|таблиц\w*|рисун\w+|приложени\w+|согласно)\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""What a command speaks of that needs the documents: "summarize chapter 3", not "write a haiku"."""
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-ZА-ЯЁ(«\"])")
_HOW = re.compile(
    r"""\W*(?:please\s+|пожалуйста,?\s+)?(?:
        (?:write|give|return|save|format|express|state|provide|list|enumerate|output)\b.*
            \b(?:answers?|format\w*|integer|float|decimal\w*|response|(?:in|as|within)\s+a\s+list)\b
        |answer\s+(?:in|as|with|the\s+following|what)\b|(?:your|the)\s+answer\s+(?:should|shall|must)\b
        |round\b|(?:return|give)\s+me\b|(?:assume|imagine|suppose)\s+(?:that\s+)?you\b|you\s+are\s+an?\b
        |(?:respond|calculate|compute|base|utilize)\b.*\b(?:answer|question|response|judg\w+|was\s+asked)\b
        |we\s+(?:need|want)\s+to\s+calculate\b|here['’]?s\s+the\s+question
        |(?:напиши|дай|верни|запиши|вырази|оформи)(?:те)?\b.*
            \b(?:ответ\w*|списком|формат\w*|цел\w+\s+числ\w+|в\s+виде\s+\w+)\b
        |ответ(?:ь|ьте)?\s+(?:в|во|на|как|по|одн\w+|кратко|коротко|списком|числом|дай|дайте|должен)\b
        |округли(?:те)?\b|представь(?:те)?,?\s+что\s+(?:ты|вы)\b|(?:ты|вы)\s*[-–—]\s*\w+
    )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_FISCAL_YEAR = re.compile(r"\bFY\s?['’]?(\d{4}|\d{2})\b")


def plain_question(text: str) -> str:
    """A question without the sentences that say only how to answer, if others are left; FY2018 and FY18 as 2018.

    How the answer is to look ("Answer in millions.", «Ответь списком.») and who is to give it ("You are an analyst.")
    is nothing that documents say, and would only draw the search aside.
    """
    kept = [each for each in _SENTENCE.split(text) if each.rstrip().endswith("?") or not _HOW.match(each)]
    return _FISCAL_YEAR.sub(lambda year: f"20{year[1]}"[-4:], " ".join(kept) or text)


@attrs.define(eq=False, slots=False)
class KnowledgeSearch(SearchForPrompt):
    """Search over a store and an embedder; recall's threshold and time budget are those of passages too."""

    async def search(
        self,
        text: str,
        bases: Collection[BaseId],
        user: UserId,
        *,
        max_tokens: int,
        within: Collection[DocumentId] | None = None,
        top_k: int | None = None,
    ) -> PassageOutcome:
        """Find the passages that matter for a question. Never raises for a failure of a part: the result says what was
        degraded.

        Args:
            bases: those of which the user is no member are left out.
            within: only in these documents.
            top_k: at most so many are kept; None: as many whole ones as fit.
        """
        account = self.account()
        query, pool = await self.gather(text, PassageScope(user=user, bases=bases, documents=within), account)
        most = max(1, max_tokens // WHOLE_TOKENS) if top_k is None else top_k
        gate = self.gate(query, command=query.command and _ABOUT_DOCUMENTS.search(text) is None)

        def decide() -> tuple[list[PassageCandidate], float | None]:
            ranked = pool.rank(limit=CONSIDERED)
            judged = judge_passages(ranked, gate, self._embedder.random_cosine)
            lacking = lack(pool, ranked, numbers=any(any(map(str.isdigit, each)) for each in query.stems))
            return pack(once(judged), query.content_stems, top_k=most, max_tokens=max_tokens), lacking

        with account.step("rank"):
            candidates, lacking = await self._threads.run(decide)
        return PassageOutcome(
            candidates=tuple(candidates),
            query_words=len(query.words),
            found=pool.found,
            degraded=tuple(account.degraded),
            timings_ms=account.timings_ms,
            command=gate.command,
            settings=self.settings(most, max_tokens),
            lack=lacking,
        )

    async def gather(self, text: str, scope: PassageScope, account: Account) -> tuple[Query, Pool[FoundPassage]]:
        """The question, and what is ranked: what the ranker is trained with."""
        text = plain_question(text)
        with account.step("begin"):
            query = await self.read(text)
        if not query.words or not scope.bases:
            return query, EMPTY

        async def search(vector: bytes | None, words: Sequence[str], _hits: Lists) -> Lists:
            return await self.timed(account, stored_passages.search_documents, vector, words, scope, DEPTH)

        lists = await self.lists(text, query.words, search, account)
        fused = fuse(lists)
        nothing: list[FoundPassage] = []
        with account.step("read"):
            read = await self.fetched(account, nothing, passages.read, best_of(fused, POOL), scope)
        with account.step("rank"):
            pool = await self._threads.run(gather, lists, fused, read, text, self._embedder.random_cosine)
        return query, pool
