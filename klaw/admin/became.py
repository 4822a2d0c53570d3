"""What a turn did with one message, by the turn's receipt. Pure; no answer holds what was said."""

from collections.abc import Mapping
from typing import Any

from klaw.context.assemble import Guard
from klaw.domain.message import Message
from klaw.domain.names import ChatId
from klaw.domain.topic import Topic


def what_became(receipt: Mapping[str, Any], message: Message, *, chat: ChatId, segment: int, last_seq: int) -> str:
    """What a turn of the message's user did with it, as a code.

    Args:
        receipt: of any version; empty when no context was put together.
        message: the one that is asked about.
        chat: of the turn.
        segment: of the turn.
        last_seq: of the turn.
    """
    shown = in_topic(receipt, message) is not None
    if chat != message.chat:
        return "topic" if shown else "other_chat"
    if message.seq in receipt.get("pending", []):
        return "question"
    if "window" not in receipt or "recall" not in receipt:
        return "no_context"
    if shown:
        return "topic"
    if segment != message.segment:
        return "other_segment"
    window, recall = receipt["window"], receipt["recall"]
    if window["first_seq"] is not None and window["first_seq"] <= message.seq <= window["last_seq"]:
        return "window"
    if message.seq > last_seq or (window["last_seq"] is not None and message.seq > window["last_seq"]):
        return "later"
    if any(candidate["seq"] == message.seq for candidate in recall["candidates"]):
        return "recalled" if message.seq in recall["kept"] else "cut"
    if any(each["first_seq"] <= message.seq <= each["last_seq"] for each in receipt.get("summaries", ())):
        return "summary"
    return "not_found" if recall["guard"] == Guard.SEARCH.value else f"guard_{recall['guard']}"


def in_topic(receipt: Mapping[str, Any], message: Message) -> int | None:
    """The id of the topic by which the message came into the turn's prompt."""
    for each in receipt.get("topics", {}).get("candidates", ()):
        if message.rowid in (*each.get("rowids", ()), *each.get("shortened", ())):
            return int(each["id"])
    return None


def describe_topic(topic: Topic | None) -> dict[str, Any] | None:
    """A message's topic as plain JSON values."""
    if topic is None:
        return None
    return {
        "id": int(topic.id),
        "general": topic.general,
        "messages": topic.messages,
        "first_at": topic.first_at,
        "last_at": topic.last_at,
    }
