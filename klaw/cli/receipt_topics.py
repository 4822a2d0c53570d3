"""The part of ``klaw receipt`` about topics."""

from collections.abc import Mapping
from typing import Any

from klaw.cli.admin_call import line, table
from klaw.domain.text import plural

_COLUMNS = {
    "id": "topic",
    "cosine": "cosine",
    "words_rank": "words",
    "message_rank": "messages",
    "shared_words": "shared",
    "score": "score",
    "tokens": "tokens",
}
_ASKED = {
    "searched": "searched",
    "no_content": "not looked for: the question has no content words",
    "no_topics": "not looked for: there are none",
}
_BECAUSE = {
    "not_chosen": "the reranker left it out",
    "too_far": "neither its vector nor its words show that it is about the question",
    "over_count": "enough better ones were found",
    "over_budget": "it does not fit into what was left of topics.maxTokens",
    "in_context": "all of its messages stand in the prompt anyway",
    "gone": "it was gone, or could not be read in time",
}


def topic_lines(topics: Mapping[str, Any]) -> list[str]:
    """What became of the topics that were found, as text."""
    said = _ASKED.get(topics["asked"], line(str(topics["asked"])))
    if topics["asked"] != "searched":
        return [f"topics  {said}"]
    shown = sorted(
        (each for each in topics["candidates"] if each["decision"] == "chosen"), key=lambda each: each.get("place", 0)
    )
    named = ", ".join(str(each["id"]) for each in shown) or "nothing"
    room = f"({topics['tokens']} of {topics['max_tokens']} tokens)"
    notes = [f"chosen by {topics['chosen_by']}: {named} {room}"]
    if "fallback" in topics:
        notes.append(f"fallback {topics['fallback']}: the best found were taken")
    if "loads" in topics:
        notes.append(f"the reranker looked into topics {plural(topics['loads'], 'time')}")
    notes += [f"{step} {spent:g} ms" for step, spent in topics["timings_ms"].items()]
    if topics["degraded"]:
        notes.append(f"degraded: {', '.join(topics['degraded'])}")
    out = [line(f"topics  {said}; {'; '.join(notes)}")]
    return [*out, "", *_table(topics["candidates"])] if topics["candidates"] else out


def _table(found: list[Mapping[str, Any]]) -> list[str]:
    rows = [[*_COLUMNS.values(), "decision", "because"]]
    for each in found:
        cells = [each.get(name) for name in _COLUMNS]
        rows.append([*(line("-" if cell is None else str(cell)) for cell in cells), line(_decision(each)), _why(each)])
    return table(rows, right=frozenset(range(len(_COLUMNS))))


def _decision(each: Mapping[str, Any]) -> str:
    place = f", place {each['place']}" if each["decision"] == "chosen" and "place" in each else ""
    return f"{each['decision']}{place}"


def _why(each: Mapping[str, Any]) -> str:
    if each["decision"] != "chosen":
        return _BECAUSE.get(each["decision"], "")
    whole, part = len(each.get("rowids", ())), len(each.get("shortened", ()))
    said = ["the reranker's excerpt"] if each.get("excerpt") else [f"{plural(whole + part, 'message')} shown"]
    if part:
        said.append(f"{part} of them shortened")
    if each.get("left_out"):
        said.append(f"{each['left_out']} had no room")
    if each.get("present"):
        said.append(f"{each['present']} stand in the prompt anyway")
    if each.get("summary") is False:
        said.append("a summary of the chat tells the rest")
    return "; ".join(said)
