"""The receipt: the account of a turn's context, stored with the turn and shown to the user. Pure; plain JSON values."""

from collections.abc import Mapping
from typing import Any

from klaw.context.assemble import Context, Guard, Plan
from klaw.context.topics import PackedTopics
from klaw.domain.context_used import KEY
from klaw.domain.search import Candidate, RecallOutcome
from klaw.domain.topic import ChosenTopics, TopicCandidate

RECEIPT_VERSION = 2
"""2: candidates without id and date, and without what is None or empty; with the query, the settings, the scope, what
was found in all, and the numbers that explain a cut. Version 1 is still shown."""


def explain(plan: Plan, context: Context) -> dict[str, Any]:
    """Describe what went into a request, what was recalled, and what was cut and why. Messages stand in it by seq."""
    snapshot = plan.snapshot
    summaries = [
        {"number": each.number, "first_seq": each.first_seq, "last_seq": each.last_seq, "tokens": each.tokens}
        for each in snapshot.summaries
    ]
    return {
        "version": RECEIPT_VERSION,
        "budget": {
            "context_tokens": snapshot.budget.context_tokens,
            "reply_reserve_tokens": snapshot.budget.reply_reserve_tokens,
            "correction": round(snapshot.budget.correction, 3),
            "usable_tokens": snapshot.budget.usable,
            "used_tokens": context.tokens,
        },
        "layers": [
            {"name": layer.name, "tokens": layer.tokens, **({"shortened": True} if layer.cut else {})}
            for layer in context.layers
        ],
        "window": {
            "messages": len(context.window),
            "first_seq": context.window[0].seq if context.window else None,
            "last_seq": context.window[-1].seq if context.window else None,
            "left_out": len(snapshot.history) - len(context.window),
            "older_in_segment": bool(snapshot.has_older or snapshot.summarised_to),
            **({"held": True} if snapshot.settings.hold_uncovered else {}),
        },
        **({"summaries": summaries} if snapshot.summarised_to else {}),
        "pending": [message.seq for message in snapshot.pending],
        "recall": describe_recall(plan.guard, context.recalled),
        **_topics(plan, context),
        **({KEY: context.passages.used.written()} if context.passages is not None else {}),
    }


def _topics(plan: Plan, context: Context) -> dict[str, Any]:
    chosen, packed = context.chosen, context.topics
    if chosen is None:
        return {}
    account: dict[str, Any] = {
        "asked": chosen.asked.value,
        "chosen_by": "reranker" if chosen.reranked else "search",
        "fallback": chosen.fallback,
        "loads": chosen.loads or None,
        **_spent(chosen),
        "max_tokens": plan.topics_tokens,
        "tokens": packed.tokens,
        "candidates": [describe_topic(each, packed) for each in chosen.candidates],
    }
    return {"topics": {name: value for name, value in account.items() if value is not None}}


def _spent(search: RecallOutcome | ChosenTopics) -> dict[str, Any]:
    timings_ms = {step: round(spent, 2) for step, spent in search.timings_ms.items()}
    return {"degraded": list(search.degraded), "timings_ms": timings_ms}


def describe_topic(candidate: TopicCandidate, packed: PackedTopics) -> dict[str, Any]:
    """A found topic's numbers; what is None or empty is left out."""
    shown = next((each for each in packed.shown if each.id == candidate.topic.id), None)
    account: dict[str, Any] = {
        "id": int(candidate.topic.id),
        "cosine": _rounded(candidate.cosine, 4),
        "words_rank": candidate.words_rank,
        "message_rank": candidate.message_rank,
        "shared_words": candidate.shared_words or None,
        "score": _rounded(candidate.score, 5),
        "place": candidate.place,
        "decision": packed.fates.get(candidate.topic.id, candidate.fate).value,
    }
    if shown is not None:
        account |= {
            "tokens": shown.tokens,
            "rowids": list(shown.whole),
            "shortened": list(shown.part),
            "left_out": shown.left_out or None,
            "present": shown.present or None,
            "excerpt": shown.excerpt or None,
            "summary": None if shown.summary else False,
        }
    return _present(account)


def _present(account: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in account.items() if value not in (None, [], {})}


def describe_recall(guard: Guard, recalled: RecallOutcome) -> dict[str, Any]:
    account: dict[str, Any] = {
        "guard": guard.value,
        "query_words": recalled.query_words,
        **_spent(recalled),
        "kept": [candidate.message.seq for candidate in recalled.kept],
        "kept_tokens": sum(candidate.tokens for candidate in recalled.kept),
        "found": recalled.found,
    }
    if recalled.command:
        account["command"] = True
    if recalled.expansion:
        account["expansion"] = list(recalled.expansion)
    if recalled.days:
        account["days"] = [[first.isoformat(), last.isoformat()] for first, last in recalled.days]
    if recalled.end_seq is not None:
        account["scope"] = {"first_seq": recalled.first_seq, "end_seq": recalled.end_seq}
    if recalled.settings is not None:
        settings = recalled.settings
        account["settings"] = {
            "topK": settings.top_k,
            "maxTokens": settings.max_tokens,
            "relevanceThreshold": settings.relevance_threshold,
            "timeBudgetMs": settings.time_budget_ms,
        }
    return {**account, "candidates": [describe_candidate(candidate) for candidate in recalled.candidates]}


def describe_candidate(candidate: Candidate) -> dict[str, Any]:
    """A candidate's numbers; what is None or empty is left out."""
    excerpt = candidate.text != candidate.message.content
    account = {
        "seq": candidate.message.seq,
        "role": candidate.message.role.value,
        "vector_rank": candidate.vector_rank,
        "distance": _rounded(candidate.distance, 4),
        "dated_rank": candidate.dated_rank,
        "text_rank": candidate.text_rank,
        "bm25": _rounded(candidate.bm25, 3),
        "shared_words": candidate.shared_words or None,
        "added_words": candidate.added_words or None,
        "score": _rounded(candidate.score, 2),
        "rerank": _rounded(candidate.rerank, 5),
        "parts": dict(candidate.parts),
        "token_score": _rounded(candidate.token_score, 3),
        "boosts": list(candidate.boosts),
        "decision": candidate.decision.value,
        "left_tokens": candidate.left_tokens,
        "repeated_by": candidate.repeated_by,
        "tokens": candidate.tokens,
        "whole_tokens": candidate.message.tokens if excerpt else None,
    }
    return _present(account)


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)
