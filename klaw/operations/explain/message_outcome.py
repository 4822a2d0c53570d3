"""What a turn did with one message, and why, by the turn's receipt. No answer holds what was said."""

from collections.abc import Mapping
from typing import Any

import attrs

from klaw.actor.clock import FixedClock, from_iso
from klaw.context.assemble import Guard
from klaw.domain.message import Message, is_searchable
from klaw.domain.turn import TurnRecord
from klaw.memory.recall.pipeline import CONSIDERED
from klaw.memory.recall.reasons import place_of, ranking, reason, remedy
from klaw.memory.recall.recall import Recall
from klaw.operations import stored
from klaw.operations.handler import DatabaseParts
from klaw.store.kinds.turns import TurnOfMessage

SEARCH_BUDGET_MS = 3_000
"""For a search that is done again: nobody waits for a reply, and it looks deeper."""


_AS = {
    "question": "It was the question of that turn.",
    "no_context": "No context was put together for that turn, so nothing was recalled.",
    "other_chat": "It is of another chat: Auto-RAG looks in its own chat only.",
    "other_segment": "It is of another segment: Auto-RAG does not look beyond /new.",
    "later": "It was said after what that turn was made from.",
    "window": "The window of that turn showed it, so it did not have to be recalled.",
    "not_searched": "Commands, their answers and tool rows are not searched by design.",
    "summary": "A summary in that turn's prompt told of it.",
    "guard_disabled": "autoRag.enabled was false.",
    "guard_all_in_context": "The window showed all of the segment, so nothing was searched.",
}


def explain_message(turn: TurnRecord, message: Message) -> dict[str, Any]:
    """What a turn did with a message, by its receipt: ``as`` is a code, ``text`` sentences, ``rank`` its place among
    the candidates, ``place`` among those that competed for ``autoRag.topK``."""
    code = what_became(turn, message)
    if code == "not_found" and not is_searchable(message.role, message.type):
        code = "not_searched"
    told: dict[str, Any] = {
        "message": {"chat": message.chat, "seq": message.seq, "id": message.id, "role": message.role.value},
        "as": code,
        "rank": None,
        "place": None,
        "candidate": None,
        "text": [_AS[code]] if code in _AS else [],
        "searched_now": None,
    }
    if code == "topic":
        topic = in_topic(turn.receipt, message)
        return {**told, "text": [f"It came into the prompt as a part of topic {topic}, which fits the question."]}
    if code not in ("recalled", "cut"):
        return told
    recall, at = turn.receipt["recall"], candidate_at(turn, message)
    candidate = recall["candidates"][at]
    why_so = reason(recall, at)
    what = "It was recalled" if code == "recalled" else "It was found and cut"
    said = f"{what}: {candidate['decision']}" + (f" ({why_so})." if why_so else ".")
    place = place_of(recall, at) if code == "recalled" or candidate["decision"] == "over_top_k" else None
    ranked = [f"Place {at + 1} of the ranking: {by}."] if (by := ranking(candidate)) else []
    return {**told, "place": place, "rank": at + 1, "candidate": candidate, "text": [said, *ranked, remedy(recall, at)]}


def what_became(turn: TurnRecord | TurnOfMessage, message: Message) -> str:
    """What a turn of the message's user did with it, as a code. The receipt may be of any version, and empty."""
    receipt = turn.receipt
    shown = in_topic(receipt, message) is not None
    if turn.chat != message.chat:
        return "topic" if shown else "other_chat"
    if message.seq in receipt.get("pending", []):
        return "question"
    if "window" not in receipt or "recall" not in receipt:
        return "no_context"
    if shown:
        return "topic"
    if turn.segment != message.segment:
        return "other_segment"
    window, recall = receipt["window"], receipt["recall"]
    if window["first_seq"] is not None and window["first_seq"] <= message.seq <= window["last_seq"]:
        return "window"
    if message.seq > turn.last_seq or (window["last_seq"] is not None and message.seq > window["last_seq"]):
        return "later"
    if any(candidate["seq"] == message.seq for candidate in recall["candidates"]):
        return "recalled" if message.seq in recall["kept"] else "cut"
    if any(each["first_seq"] <= message.seq <= each["last_seq"] for each in receipt.get("summaries", ())):
        return "summary"
    return "not_found" if recall["guard"] == Guard.SEARCH.value else f"guard_{recall['guard']}"


def candidate_at(turn: TurnRecord | TurnOfMessage, message: Message) -> int:
    """The place of the message among the candidates, from 0. Raises StopIteration when it is none of them."""
    return next(at for at, each in enumerate(turn.receipt["recall"]["candidates"]) if each["seq"] == message.seq)


def in_topic(receipt: Mapping[str, Any], message: Message) -> int | None:
    """The id of the topic by which the message came into the turn's prompt."""
    for each in receipt.get("topics", {}).get("candidates", ()):
        if message.rowid in (*each.get("rowids", ()), *each.get("shortened", ())):
            return int(each["id"])
    return None


async def with_search(told: dict[str, Any], message: Message, turn: TurnRecord, parts: DatabaseParts) -> dict[str, Any]:
    """The explanation, with where a message that the turn did not consider stands now for the turn's question, in the
    turn's scope and at its time."""
    not_among = f"It was not among the {CONSIDERED} best that the turn considered."
    recalled = await parts.readers.run(stored.whereabouts.stored_recall, turn)
    scope = recalled.scope
    if scope is None or not scope.first_seq <= message.seq < scope.end_seq:
        return {**told, "text": [not_among]}
    missing = await parts.embedder.prepare()
    patient = attrs.evolve(parts.config.auto_rag, time_budget_ms=SEARCH_BUDGET_MS)
    recall = Recall(parts.readers, parts.embedder, patient, FixedClock(from_iso(turn.started_at)))
    place = await recall.rank_of(recalled.question, scope, message.rowid)
    ranked = place.ranked
    searched = {
        "place": place.place,
        "found": place.found,
        "considered": CONSIDERED,
        "vector_rank": ranked.vector_rank if ranked else None,
        "distance": round(place.distance, 4) if place.distance is not None else None,
        "dated_rank": ranked.dated_rank if ranked else None,
        "text_rank": ranked.text_rank if ranked else None,
        "bm25": round(ranked.bm25, 3) if ranked and ranked.bm25 is not None else None,
        "degraded": [*place.degraded, *([missing] if missing else [])],
    }
    if place.place is None:
        now = f"Searched now, it is not among {place.found} messages either."
    else:
        later = ": its vector, or a change of the index, came after that turn" if place.place <= CONSIDERED else ""
        now = f"Searched now, it is at place {place.place} of {place.found}{later}."
    return {**told, "text": [not_among, now], "searched_now": searched}
