"""Why a candidate of a receipt was kept or cut, and what would have changed it, in words. Reads the receipt's own JSON,
of version 1 too, which has no settings and fewer numbers. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from klaw.domain.search import PASSED
from klaw.memory.recall.gate import AS_FAR_AS_CHANCE, COMMAND_THRESHOLD, enough_overlap

Recall = Mapping[str, Any]
_KEPT = frozenset(decision.value for decision in PASSED)
_FITTING = ("over_top_k", "in_window", "in_topic")
"""Passed, and not there for another reason than the gate or the room."""


_REASONS = {
    "ranked": "by its place: others show that the question is known here",
    "no_content": "the question has no content words",
    "in_window": "the model sees it in full anyway",
    "unwanted": "you said that it is never to be recalled",
    "in_topic": "a topic in the prompt shows it in full",
}
_REMEDIES = {
    "in_window": "The model saw it in full.",
    "in_topic": "A topic in that request shows it.",
    "unwanted": "`klaw recall again` lets it be recalled again.",
    "no_content": (
        "No setting: a question without a content word recalls nothing. One that names what it is about does."
    ),
}


def place_of(recall: Recall, at: int) -> int:
    """The place of a candidate among those that passed the gate and would fit, from 1; repeated ones have none."""
    before = recall["candidates"][:at]
    return 1 + sum(each["decision"] in _KEPT or each["decision"] in _FITTING for each in before)


def reason(recall: Recall, at: int) -> str:
    each, settings = recall["candidates"][at], recall.get("settings", {})
    distance, threshold = each.get("distance"), _threshold(recall)
    shared, asked = each.get("shared_words", 0), recall["query_words"]
    match each["decision"]:
        case "near" if threshold is not None:
            return f"distance at most {threshold:g}"
        case "words" if shared:
            return f"has {shared} of {asked} content words"
        case "too_far":
            return _too_far(distance, threshold, shared, asked, command=bool(recall.get("command")))
        case "over_top_k" if settings:
            return f"place {place_of(recall, at)}, topK is {settings['topK']}"
        case "over_budget" if "left_tokens" in each:
            return f"{each['left_tokens']} of {settings['maxTokens']} tokens were left"
        case "repeated":
            return f"message {each['repeated_by']} is newer and says the same"
        case other:
            return _REASONS.get(other, "")


def ranking(each: Mapping[str, Any]) -> str:
    """What raised a candidate among the others, and what held it back; empty for a receipt that does not hold it."""
    parts = sorted(each.get("parts", {}).items(), key=lambda part: -abs(part[1]))
    said = {
        "raised by": [f"{name} +{value:g}" for name, value in parts if value > 0],
        "held back by": [f"{name} {value:g}" for name, value in parts if value < 0],
    }
    if not parts and each.get("boosts"):  # of an earlier version
        said["raised by"] = [" and ".join(each["boosts"])]
    return "; ".join(f"{how} {', '.join(by)}" for how, by in said.items() if by)


def _threshold(recall: Recall) -> float | None:
    threshold = recall.get("settings", {}).get("relevanceThreshold")
    if threshold is None:
        return None
    return float(threshold) * (COMMAND_THRESHOLD if recall.get("command") else 1.0)


def _too_far(distance: float | None, threshold: float | None, shared: int, asked: int, *, command: bool) -> str:
    words = f"has {shared} of {asked} content words"
    if distance is None:
        return f"not among the nearest; {words}"
    if threshold is None:
        return ""
    if distance <= threshold:
        return words
    if distance >= AS_FAR_AS_CHANCE and not shared:
        return "as far away as chance, and shares no content word"
    what = " for a command" if command else ""
    return f"{distance - threshold:.2f} over the {threshold:g}{what}; {words}"


def remedy(recall: Recall, at: int) -> str:
    """What would have brought a candidate into the context, as a sentence."""
    each, settings = recall["candidates"][at], recall.get("settings")
    decision = each["decision"]
    if decision in _KEPT:
        return "It went into the context."
    if decision == "repeated":
        return f"Message {each['repeated_by']} stands for it: it is newer and says the same."
    if decision in _REMEDIES:
        return _REMEDIES[decision]
    if settings is None:
        return "The receipt is of an earlier version and does not hold the settings of that time."
    if decision == "over_top_k":
        return _more_places(recall, at)
    if decision == "over_budget":
        needed = settings["maxTokens"] - each["left_tokens"] + each["tokens"]
        return (
            f"It needed {each['tokens']} tokens and {each['left_tokens']} were left: with autoRag.maxTokens {needed} it"
            " would have come in."
        )
    return _nearer(recall, each)


def _more_places(recall: Recall, at: int) -> str:
    settings, place = recall["settings"], place_of(recall, at)
    before = (
        each for each in recall["candidates"][:at] if each["decision"] in _KEPT or each["decision"] == "over_top_k"
    )
    needed = sum(each["tokens"] for each in before) + recall["candidates"][at]["tokens"]
    room = "" if needed <= settings["maxTokens"] else f" and autoRag.maxTokens {needed}"
    full = f"autoRag.topK {settings['topK']} was full, it was at place {place}"
    return f"{full}: with autoRag.topK {place}{room} it would have come in."


def _nearer(recall: Recall, each: Mapping[str, Any]) -> str:
    command, asked = bool(recall.get("command")), recall["query_words"]
    counts = range(1, asked + 2)
    wanted = next((count for count in counts if count >= asked * enough_overlap(count, command=command)), asked + 1)
    words = f"a question that shares {wanted} of {asked} content words with it instead of {each.get('shared_words', 0)}"
    if command and wanted > asked:
        words = "a question that is no command to the model"
    distance, threshold = each.get("distance"), _threshold(recall)
    if distance is None or threshold is None:
        return f"It is not among the nearest by meaning; {words} would have brought it back."
    passing = math.ceil(100 * distance / (COMMAND_THRESHOLD if command else 1.0)) / 100
    if distance <= threshold or passing >= AS_FAR_AS_CHANCE:
        return f"Its distance {distance:.2f} is that of unrelated texts; {words} would have brought it back."
    return (
        f"Its distance {distance:.2f} is over {threshold:g}: with autoRag.relevanceThreshold {passing:g} it would have"
        f" passed the gate, or with {words}."
    )
