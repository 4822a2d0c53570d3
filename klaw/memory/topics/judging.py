"""Which found topics have something to do with a question: the relevance gate of messages, asked about topics. Pure."""

from collections.abc import Mapping, Sequence

import attrs

from klaw.domain.chosen import Fate, TopicCandidate
from klaw.domain.recall import PASSED
from klaw.memory.recall.gate import AS_FAR_AS_CHANCE, Evidence, Gate, calibrated
from klaw.memory.recall.query import Query
from klaw.memory.topics.search import TopicHit
from klaw.store.tokenizer import forms_in


@attrs.frozen(kw_only=True)
class Judged:
    """What is known of the hits of one search, in their order."""

    candidates: tuple[TopicCandidate, ...]
    """Those that the gate lets pass are ``CHOSEN``, the others ``TOO_FAR``."""
    worth_asking: tuple[bool, ...]
    """Whether a model that chooses is shown it: it has a word of the question, or is nearer to it than chance."""


def judge(
    hits: Sequence[TopicHit], said: Mapping[int, str], query: Query, *, threshold: float, random_cosine: float
) -> Judged:
    """Let the gate decide. Reads a lot of text.

    Args:
        hits: the best first.
        said: the messages that they were found by, by row id.
        query: the question, read.
        threshold: ``autoRag.relevanceThreshold``.
        random_cosine: of the embedding model.
    """
    evidence = [_evidence(hit, said, query, random_cosine) for hit in hits]
    gate = Gate(threshold=threshold, content_words=len(query.content_stems), command=query.command)
    decisions = gate.decide(evidence)
    candidates = tuple(
        TopicCandidate(
            topic=hit.topic,
            score=hit.score,
            cosine=hit.cosine,
            words_rank=hit.words_rank,
            message_rank=hit.message_rank,
            shared_words=seen.shared_words,
            fate=Fate.CHOSEN if decision in PASSED else Fate.TOO_FAR,
        )
        for hit, seen, decision in zip(hits, evidence, decisions, strict=True)
    )
    worth = tuple(
        each.fate is Fate.CHOSEN or (not query.command and _is_related(seen))
        for each, seen in zip(candidates, evidence, strict=True)
    )
    return Judged(candidates=candidates, worth_asking=worth)


def _evidence(hit: TopicHit, said: Mapping[int, str], query: Query, random_cosine: float) -> Evidence:
    texts = [hit.topic.summary, *(said[rowid] for rowid in hit.best if rowid in said)]
    return Evidence(
        distance=calibrated(1.0 - hit.cosine, random_cosine) if hit.cosine is not None else None,
        shared_words=max(len(forms_in(text, query.content_stems)) for text in texts),
    )


def _is_related(seen: Evidence) -> bool:
    return seen.shared_words > 0 or (seen.distance is not None and seen.distance < AS_FAR_AS_CHANCE)
