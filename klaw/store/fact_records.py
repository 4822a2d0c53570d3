"""Facts as JSON values of the memory journal. Pure."""

from typing import Any

from klaw.domain.fact import Fact, FactId, FactSource, Origin, check
from klaw.domain.names import ChatId, UserId
from klaw.store.fields import optional_text, text, whole


def fact_value(fact: Fact) -> dict[str, Any]:
    """Everything but whose it is and under which id: the journal's line has those beside it."""
    value = {
        "text": fact.text,
        "category": fact.category,
        "importance": fact.importance,
        "source": fact.source,
        "origin": fact.origin,
        "chat_id": fact.chat,
        "message_id": fact.message,
        "turn_id": fact.turn,
        "topic": fact.topic,
        "created_at": fact.created_at,
        "updated_at": fact.updated_at,
        "superseded_by": fact.superseded_by,
    }
    return value if fact.day is None else {**value, "day": fact.day}


def read_fact(user: UserId, fact_id: FactId, value: dict[str, Any]) -> Fact:
    """The fact of a value. Raises KeyError, TypeError or ValueError for a malformed one."""
    chat, after = optional_text(value["chat_id"]), optional_text(value["superseded_by"])
    fact = Fact(
        id=fact_id,
        user=user,
        text=text(value["text"]),
        category=text(value["category"]),
        importance=whole(value["importance"]),
        source=FactSource(value["source"]),
        origin=Origin(value["origin"]),
        chat=ChatId(chat) if chat is not None else None,
        message=optional_text(value["message_id"]),
        turn=optional_text(value["turn_id"]),
        topic=optional_text(value["topic"]),
        day=optional_text(value.get("day")),
        created_at=text(value["created_at"]),
        updated_at=text(value["updated_at"]),
        superseded_by=FactId(after) if after is not None else None,
    )
    check(fact)
    return fact
