"""What a turn did with one message, and why: for ``klaw receipt --why`` and ``klaw why``. The server and the command
without one both go through ``explain_message``. Pure but for the search that is done again.

No answer holds what was said.
"""

from typing import Any

import attrs

from klaw.actor.clock import FixedClock, from_iso
from klaw.admin import why
from klaw.admin.became import in_topic, what_became
from klaw.admin.requests import Why, parse_args
from klaw.config.schema import AutoRagConfig
from klaw.domain.message import Message, is_searchable
from klaw.domain.turn import TurnRecord
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.reasons import place_of, reason, remedy
from klaw.memory.recall.recall import CONSIDERED, Recall
from klaw.store.engine.database import Readers
from klaw.store.message_location import Target
from klaw.store.overview import StoredRecall

SEARCH_BUDGET_MS = 3_000
"""For a search that is done again: nobody waits for a reply, and it looks deeper."""


def check_message(text: str, turn: TurnRecord) -> Target:
    """Which message is meant: by its number in the turn's chat, by chat and number, or by its id.

    Raises:
        BadRequest: the text is no message's name.
    """
    of_chat = {"chat": turn.chat} if text.isdecimal() else {"user": turn.user} if ":" not in text else {}
    return why.check_why(parse_args(Why, {"message": text, **of_chat}))


_AS = {
    "question": "It was the question of that turn.",
    "no_context": "No context was put together for that turn, so nothing was recalled.",
    "other_chat": "It is of another chat: Auto-RAG looks in its own chat only.",
    "other_segment": "It is of another segment: Auto-RAG does not look beyond /new.",
    "later": "It was said after what that turn was made from.",
    "window": "The window of that turn showed it, so it did not have to be recalled.",
    "not_searched": "Commands, their answers and tool rows are not searched by design.",
    "guard_disabled": "autoRag.enabled was false.",
    "guard_all_in_context": "The window showed all of the segment, so nothing was searched.",
}


def explain_message(turn: TurnRecord, message: Message) -> dict[str, Any]:
    """What a turn did with a message, by its receipt, as plain JSON values.

    ``as`` says it as a code, ``text`` in sentences; ``rank`` is its place among the candidates, ``place`` among those
    that competed for ``autoRag.topK``. With ``as`` = ``not_found`` the search may be done again.
    """
    code = in_turn(turn, message)
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
    recall = turn.receipt["recall"]
    at = next(at for at, each in enumerate(recall["candidates"]) if each["seq"] == message.seq)
    candidate = recall["candidates"][at]
    why_so = reason(recall, at)
    what = "It was recalled" if code == "recalled" else "It was found and cut"
    said = f"{what}: {candidate['decision']}" + (f" ({why_so})." if why_so else ".")
    place = place_of(recall, at) if code == "recalled" or candidate["decision"] == "over_top_k" else None
    return {**told, "place": place, "rank": at + 1, "candidate": candidate, "text": [said, remedy(recall, at)]}


def in_turn(turn: TurnRecord, message: Message) -> str:
    """What a turn did with a message, as a code."""
    code = what_became(turn.receipt, message, chat=turn.chat, segment=turn.segment, last_seq=turn.last_seq)
    return "not_searched" if code == "not_found" and not is_searchable(message.role, message.type) else code


async def search_again(
    readers: Readers, embedder: Embedder, config: AutoRagConfig, stored: StoredRecall, message: Message
) -> dict[str, Any] | None:
    """Where a message stands now for a turn's question, in the turn's scope and at its time. None where the turn had
    nothing to search.

    Cancellation: nothing is changed.
    """
    scope = stored.scope
    if scope is None or not scope.first_seq <= message.seq < scope.end_seq:
        return None
    patient = attrs.evolve(config, time_budget_ms=SEARCH_BUDGET_MS)
    recall = Recall(readers, embedder, patient, FixedClock(from_iso(stored.turn.started_at)))
    place = await recall.place(stored.question, scope, message.rowid)
    ranked = place.ranked
    return {
        "place": place.place,
        "found": place.found,
        "considered": CONSIDERED,
        "vector_rank": ranked.vector_rank if ranked else None,
        "distance": round(place.distance, 4) if place.distance is not None else None,
        "dated_rank": ranked.dated_rank if ranked else None,
        "text_rank": ranked.text_rank if ranked else None,
        "bm25": round(ranked.bm25, 3) if ranked and ranked.bm25 is not None else None,
        "degraded": list(place.degraded),
    }


def with_search(told: dict[str, Any], searched: dict[str, Any] | None) -> dict[str, Any]:
    """The explanation, with what a search now says of a message that the turn did not consider."""
    recall_size = f"It was not among the {CONSIDERED} best that the turn considered."
    if searched is None:
        return {**told, "text": [recall_size]}
    if searched["place"] is None:
        now = f"Searched now, it is not among {searched['found']} messages either."
    elif searched["place"] <= CONSIDERED:
        now = (
            f"Searched now, it is at place {searched['place']} of {searched['found']}: its vector, or a change of the"
            " index, came after that turn."
        )
    else:
        now = f"Searched now, it is at place {searched['place']} of {searched['found']}."
    return {**told, "text": [recall_size, now], "searched_now": searched}


def needs_search(told: dict[str, Any]) -> bool:
    """Whether the receipt itself does not say what became of the message."""
    return bool(told["as"] == "not_found")
