"""Where a message lives now and what would bring it back; what a turn did with one message, and why. The answers name
at most a few words of the message, and never go into a log."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import attrs
from attrs.filters import include

from klaw.actor.clock import FixedClock, from_iso
from klaw.agent.workspace import PromptTexts
from klaw.chats.build_context import plan_of
from klaw.config.schema import EngineConfig
from klaw.context.assemble import Guard, Plan
from klaw.context.inputs import Budget
from klaw.domain.message import Message, TurnRecord, is_embeddable, is_searchable
from klaw.domain.names import LOCAL_USER
from klaw.llm.router import context_tokens_of
from klaw.memory.recall.pipeline import CONSIDERED
from klaw.memory.recall.query import content_words
from klaw.memory.recall.reasons import place_of, ranking, reason, remedy
from klaw.memory.recall.recall import Recall
from klaw.operations import stored
from klaw.operations.handler import DatabaseParts
from klaw.store.kinds import messages
from klaw.store.kinds.turns import TurnOfMessage
from klaw.store.search.chat_search import ChatScope
from klaw.store.search.whereabouts import Whereabouts

if TYPE_CHECKING:
    from klaw.operations.answers import WhyAnswer

SEARCH_BUDGET_MS = 3_000
"""For a search that is done again: nobody waits for a reply, and it looks deeper."""
LOOKED_WORDS = 64
"""Words of the message whose frequency is counted."""
RARE_WORDS = 5

_AS = {
    "question": "It was the question itself.",
    "no_context": "No context was put together for that answer, so nothing was recalled.",
    "other_chat": "It is of another chat: Auto-RAG looks in its own chat only.",
    "other_segment": "A fresh start (/new) lies between: recall does not look beyond it.",
    "later": "It was said after what that answer was made from.",
    "window": "The model saw it in full, so it did not have to be recalled.",
    "not_searched": "Commands, their answers and tool rows are not searched by design.",
    "summary": "A summary in that request told of it.",
    "guard_disabled": "autoRag.enabled was false.",
    "guard_all_in_context": "The whole conversation fitted, so nothing had to be looked up.",
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
    for each in receipt.get("topics", {}).get("candidates", ()):
        if message.rowid in (*each.get("rowids", ()), *each.get("shortened", ())):
            return int(each["id"])
    return None


async def with_search(told: dict[str, Any], message: Message, turn: TurnRecord, parts: DatabaseParts) -> dict[str, Any]:
    """The explanation, with where a message that the turn did not consider stands now for the turn's question, in the
    turn's scope and at its time."""
    not_among = f"It was not among the {CONSIDERED} best that were considered."
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
        later = ": its vector, or a change of the index, came after that answer" if place.place <= CONSIDERED else ""
        now = f"Searched now, it is at place {place.place} of {place.found}{later}."
    return {**told, "text": [not_among, now], "searched_now": searched}


# -- where it is now -------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class LocatedMessage:
    message: Message
    about: Whereabouts
    config: EngineConfig
    planned: Plan | None
    """The next turn's context, without its question if nobody asked it yet. None for a chat without any message."""

    @property
    def is_current(self) -> bool:
        return self.message.segment == self.about.session.segment

    @property
    def scope(self) -> ChatScope:
        """Where Auto-RAG would look now."""
        window = self.planned.window or self.planned.snapshot.pending if self.planned else ()
        end = window[0].seq if window else self.about.session.last_seq + 1
        return ChatScope(chat=self.message.chat, first_seq=self.about.session.segment_start, end_seq=end)

    @property
    def rare_words(self) -> list[tuple[str, int]]:
        """Words of the message, and how many messages of its chat hold them; the rarest first."""
        return sorted((pair for pair in self.about.frequencies.items() if pair[1]), key=itemgetter(1))[:RARE_WORDS]

    @property
    def in_window(self) -> bool:
        return self.planned is not None and self.message.rowid in {each.rowid for each in self.planned.window}

    @property
    def waits(self) -> bool:
        """Whether the next turn answers it."""
        pending = self.planned.snapshot.pending if self.planned else ()
        return self.message.rowid in {each.rowid for each in pending}

    @property
    def is_summarised(self) -> bool:
        """Whether the next request shows the summary that holds it."""
        shown = self.planned.snapshot.summaries if self.planned else ()
        return self.about.summary is not None and self.about.summary.number in {each.number for each in shown}

    @property
    def place(self) -> str:
        """The best way in which the message comes back, as a code."""
        row = self.about.row
        if self.waits:
            return "pending"
        if self.in_window:
            return "window"
        if not row.searchable:
            return "not_searched"
        if not row.findable and self.is_summarised:
            return "summary"
        if not row.findable:
            return "wordless" if row.silent else "nowhere"
        if not self.is_current:
            return "earlier_segment"
        if not self.config.auto_rag.enabled:
            return "disabled"
        return "unwanted" if self.about.unwanted else "auto_rag"


def words_of(message: Message) -> list[str]:
    """The words by which a message may be asked for, in its order."""
    searchable = is_searchable(message.role, message.type)
    return content_words(message.content, LOOKED_WORDS) if searchable else []


def plan(about: Whereabouts, config: EngineConfig, fixed: PromptTexts) -> Plan | None:
    """The next turn's plan, by the function that the turn uses. ``fixed``: the user's prompt files, which take their
    share of the context."""
    rows = about.next_rows
    if rows is None:
        return None
    budgets = [turn.receipt["budget"] for turn in about.turns if "budget" in turn.receipt]
    budget = Budget(
        # As the last turn had it: the server may know the model's length from the list of prices.
        context_tokens=int((budgets[0] if budgets else {}).get("context_tokens", 0))
        or context_tokens_of(config, rows.session.model),
        reply_reserve_tokens=config.context.reply_reserve_tokens,
        correction=float(budgets[0].get("correction", 1.0)) if budgets else 1.0,
    )
    # Of the newest receipt that says it: the tool list changes seldom.
    layers = next((turn.receipt["layers"] for turn in about.turns if "layers" in turn.receipt), ())
    tools_tokens = next((int(layer["tokens"]) for layer in layers if layer["name"] == "tools"), 0)
    return plan_of(rows, fixed.system_prompt, fixed.core_memory, config, budget, tools_tokens)


# -- the answer --------------------------------------------------------------------------------------------------------


def describe(found: LocatedMessage, asked: dict[str, Any] | None = None) -> "WhyAnswer":
    """The answer. ``asked``: what recall would make of the message for a question, if one was given."""
    message, about, place = found.message, found.about, found.place
    history = [_in_turn(turn, message) for turn in about.turns]
    window, summary, topic = found.planned.window if found.planned else (), about.summary, about.topic
    injected = topic is not None and about.row.searchable and found.config.topics.inject == "auto"
    advice = _advice(found, place, history)
    if topic is not None and injected and place in ("earlier_segment", "disabled"):
        advice.append(f"Its topic {topic.id} comes into the prompt by itself, in any chat, if a question is about it.")
    told = include("id", "user", "chat", "seq", "rowid", "role", "type", "created_at", "tokens")
    return {
        "message": {
            **attrs.asdict(message, recurse=False, filter=told),
            "characters": len(message.content),
            "log": messages.message_path(message),
        },
        "segment": {
            "number": message.segment,
            "current": found.is_current,
            "ended_by_seq": about.ended_seq,
            "ended_at": about.ended_at,
        },
        "window": {
            "there": found.in_window,
            "pending": found.waits,
            "first_seq": window[0].seq if window else None,
            "last_seq": window[-1].seq if window else None,
            "guard": found.planned.guard if found.planned else None,
        },
        "summary": None
        if summary is None
        else {
            **attrs.asdict(summary, filter=include("number", "first_seq", "last_seq", "state")),
            "shown": found.is_summarised,
        },
        "topic": attrs.asdict(topic, filter=include("id", "general", "messages", "first_at", "last_at"))
        if topic is not None
        else None,
        "vector": {"there": about.row.vector, "model": about.model, "reason": _why_no_vector(found)},
        "full_text": {"there": about.row.words is not None, "words": about.row.words or 0},
        "place": place,
        "reach": {
            "auto_rag": place == "auto_rag",
            "search": about.row.searchable and about.row.findable,
            "topics": injected,
        },
        "turns": history,
        "query": asked,
        "rare_words": [{"word": word, "messages": count} for word, count in found.rare_words],
        "advice": advice,
    }


def _why_no_vector(found: LocatedMessage) -> str | None:
    message, config = found.message, found.config
    if found.about.row.vector:
        return None
    if not is_searchable(message.role, message.type):
        return "not_searched"
    if not is_embeddable(message.role, message.type, message.tokens, config.auto_rag.min_message_tokens):
        return "too_short"
    if not config.embedding.enabled:
        return "disabled"
    return "lost" if found.about.row.marked else "waiting"


def _in_turn(turn: TurnOfMessage, message: Message) -> dict[str, Any]:
    code = what_became(turn, message)
    said = {"turn": turn.id, "last_seq": turn.last_seq, "ended_at": turn.ended_at, "as": code}
    if turn.chat != message.chat:
        said["chat"] = turn.chat
    if code in ("recalled", "cut"):
        recall, at = turn.receipt["recall"], candidate_at(turn, message)
        said |= {"candidate": recall["candidates"][at], "remedy": remedy(recall, at)}
    return said


_ADVICE = {
    "pending": "It waits for its answer and is in the next request.",
    "window": "Nothing is needed: it is in the next request as it stands.",
    "summary": "No search finds it, but the next request has the summary that was made of it.",
    "not_searched": "Commands and tool rows are not searched by design; a forgotten message is only a number.",
    "wordless": "It holds no word and has no vector, so no question can name it; it is in the history and the log.",
    "nowhere": (
        "This is an alarm: no search finds it. Nothing is lost, it is in the history and the log. A running server"
        " repairs that at its start and once a day; `klaw doctor` says what to do otherwise."
    ),
    "earlier_segment": "It was said before /new, where Auto-RAG does not look: {search} finds it{by_words}.",
    "unwanted": ("You said that it is never to be recalled; `klaw recall again` takes that back. {search} finds it."),
    "disabled": "autoRag.enabled is false: {search} finds it{by_words}.",
    "auto_rag": "Ask in the chat {chat}{by_words}.",
}


def _advice(found: LocatedMessage, place: str, history: Sequence[dict[str, Any]]) -> list[str]:
    words, user = ", ".join(f"“{word}”" for word, _ in found.rare_words), found.message.user
    search = "`klaw search`" if user == LOCAL_USER else f"`klaw search --user {user}`"
    if not words and not found.about.row.vector and place in ("auto_rag", "earlier_segment", "disabled"):
        return [f"All of its words are small talk, for which nothing is recalled; {search} finds it by them."]
    by_words = f" with one of its rarer words: {words}" if words else " for what it says: it is found by meaning only"
    advice = [_ADVICE[place].format(search=search, by_words=by_words, chat=found.about.session.name)]
    cut = next((each for each in history if each["as"] == "cut"), None)
    if place == "auto_rag" and cut:
        advice.append(f"When it was last found it was cut ({cut['candidate']['decision']}). {cut['remedy']}")
    return advice
