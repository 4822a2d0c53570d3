"""The order of a provider's reranking model (``autoRag.rerank``) for what recall found and its gate let pass.

What it is not asked about, and what it gives no score, follows in recall's own order; without its answer in time all
does. What goes into the context at all stays the gate's decision.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import trio

from klaw.actor.threads import Threads
from klaw.domain import tokens
from klaw.domain.search import Candidate
from klaw.llm.client import LlmClient, Meter
from klaw.llm.endpoint import ModelEndpoint, read_scores
from klaw.llm.errors import ProviderError, ProviderTimeout
from klaw.memory.recall.excerpt import excerpt
from klaw.memory.recall.pipeline import Account

MAX_QUESTION_TOKENS, MAX_DOCUMENT_TOKENS = 100, 300
"""Estimated, of what is sent: both together have to fit into the 512 tokens of small models."""
LEAST_S = 0.01
"""With less time left it is not asked: its answer would surely be late, and its failures are counted."""


@attrs.frozen(kw_only=True)
class CandidateReranker:
    """Asks a model for an order of at most so many candidates. ``llm`` counts the calls that belong to no turn."""

    endpoint: ModelEndpoint
    candidates: int
    llm: LlmClient
    threads: Threads = attrs.Factory(lambda: Threads("rerank", 1))

    async def order(
        self, question: str, stems: Collection[str], judged: Sequence[Candidate], account: Account, meter: Meter | None
    ) -> list[Candidate]:
        """The candidates in the model's order, those with a score first. Never raises for a failure: ``account`` says
        ``rerank_late`` or ``rerank_failed``, and the order stays. What the gate refused is not sent. ``stems`` are of
        the question's content words; the account's deadline is this one's too."""
        asked = [at for at, each in enumerate(judged) if each.passed][: self.candidates]
        if len(asked) < 2:
            return list(judged)
        scores: Mapping[int, float] = {}
        with account.step("rerank"):
            try:
                texts = [judged[at].message.content for at in asked]
                query, documents = await self.threads.run(_shortened, question, texts, stems, abandon=True)
                scores = await self._ask(query, documents, account.deadline, meter or self.llm.meter())
            except ProviderTimeout:
                account.say("rerank_late")
            except ProviderError:
                account.say("rerank_failed")
        scored = {asked[place]: score for place, score in scores.items()}
        order = sorted(range(len(judged)), key=lambda at: (at not in scored, -scored.get(at, 0.0), at))
        return [attrs.evolve(judged[at], rerank=scored.get(at)) for at in order]

    async def _ask(self, query: str, documents: Sequence[str], deadline: float, meter: Meter) -> dict[int, float]:
        left_s = deadline - trio.current_time()
        if left_s < LEAST_S:
            raise ProviderTimeout("there is no time left for the reranker")

        def read(answer: Mapping[str, Any]) -> dict[int, float]:
            return read_scores(answer, len(documents))

        return await meter.post(
            self.endpoint,
            {"query": query, "documents": list(documents), "top_n": len(documents)},
            read,
            prompt_tokens=sum(map(tokens.estimate, documents)) + len(documents) * tokens.estimate(query),
            within_s=left_s,
        )


def _shortened(question: str, others: Sequence[str], stems: Collection[str]) -> tuple[str, list[str]]:
    shorter = [excerpt(each, stems, MAX_DOCUMENT_TOKENS) for each in others]
    return excerpt(question, stems, MAX_QUESTION_TOKENS), shorter
