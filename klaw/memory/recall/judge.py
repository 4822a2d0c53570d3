"""From ranked rows and their messages to candidates on which the gate has decided. Pure."""

import re
from collections.abc import Sequence

from klaw.domain.message import Message
from klaw.domain.recall import Candidate
from klaw.memory.recall.gate import Evidence, Gate, calibrated
from klaw.memory.recall.pack import LINE_TOKENS
from klaw.memory.recall.rank import Ranked
from klaw.store.tokenizer import stem

COMPARED = 2_000
"""Characters of a message whose words are looked at: this runs on the event loop."""


_WORD = re.compile(r"\w+")
"""Quicker than the tokenizer, and good enough to compare two messages with each other."""


def stems_of(message: Message, characters: int = COMPARED) -> frozenset[str]:
    """The different index forms of a message's words, of a longer one those of its beginning."""
    return frozenset(map(stem, _WORD.findall(message.content[:characters])))


def judge(ranked: Sequence[Ranked], found: Sequence[Message], gate: Gate, random_cosine: float) -> list[Candidate]:
    """Let the gate decide on each message that was read, the best first."""
    by_rowid = {message.rowid: message for message in found}
    read = [(each, by_rowid[each.place.rowid]) for each in ranked if each.place.rowid in by_rowid]
    evidence = [_evidence(each, random_cosine) for each, _ in read]
    return [
        Candidate(
            message=message,
            vector_rank=each.vector_rank,
            distance=seen.distance,
            text_rank=each.text_rank,
            bm25=each.bm25,
            score=each.score,
            boosts=each.boosts,
            decision=decision,
            text=message.content,
            tokens=message.tokens + LINE_TOKENS,
            dated_rank=each.dated_rank,
            shared_words=seen.shared_words,
        )
        for (each, message), seen, decision in zip(read, evidence, gate.decide(evidence), strict=True)
    ]


def _evidence(each: Ranked, random_cosine: float) -> Evidence:
    return Evidence(
        distance=calibrated(each.distance, random_cosine) if each.distance is not None else None,
        shared_words=each.shared_words,
    )
