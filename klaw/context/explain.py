"""The receipt: the account of a turn's context, stored with the turn and shown to the user. Pure; plain JSON values."""

from typing import Any

from klaw.context.assemble import Context, Guard, Plan
from klaw.domain.recall import Candidate, Recalled

RECEIPT_VERSION = 1


def explain(plan: Plan, context: Context) -> dict[str, Any]:
    """Describe what went into a request, what was recalled with which scores, and what was cut and why.

    Messages stand in it by seq and id; their text stays in the chat.
    """
    snapshot = plan.snapshot
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
            "older_in_segment": snapshot.has_older,
        },
        "pending": [message.seq for message in snapshot.pending],
        "recall": _recall(plan.guard, context.recalled),
    }


def _recall(guard: Guard, recalled: Recalled) -> dict[str, Any]:
    return {
        "guard": guard.value,
        "query_words": recalled.query_words,
        "degraded": list(recalled.degraded),
        "timings_ms": {step: round(spent, 2) for step, spent in recalled.timings_ms.items()},
        "kept": [candidate.message.seq for candidate in recalled.kept],
        "candidates": [_candidate(candidate) for candidate in recalled.candidates],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "seq": candidate.message.seq,
        "id": candidate.message.id,
        "role": candidate.message.role.value,
        "created_at": candidate.message.created_at,
        "vector_rank": candidate.vector_rank,
        "distance": _rounded(candidate.distance),
        "text_rank": candidate.text_rank,
        "bm25": _rounded(candidate.bm25),
        "score": _rounded(candidate.score),
        "tokens": candidate.tokens,
        "decision": candidate.decision.value,
        **({"excerpt": True} if candidate.text != candidate.message.content else {}),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 5)
