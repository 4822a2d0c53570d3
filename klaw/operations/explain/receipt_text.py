"""The text of ``klaw receipt``. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klaw.context.assemble import Guard
from klaw.domain import context_used
from klaw.domain.context_used import ContextUsed, place_of
from klaw.domain.text import plural
from klaw.memory.recall.reasons import ranking, reason
from klaw.operations.kb.documents import WHY_NOTHING
from klaw.operations.lines import LAYERS, Line, Lines, Table, minute
from klaw.operations.usage import spent_text

_COLUMNS = {
    "seq": "seq",
    "role": "role",
    "vector_rank": "vector",
    "distance": "distance",
    "dated_rank": "dated",
    "text_rank": "text",
    "bm25": "bm25",
    "score": "score",
    "rerank": "reranker",
    "tokens": "tokens",
}
_LEFT = frozenset({"role"})
_ALWAYS = frozenset({"seq", "role", "vector_rank", "distance", "text_rank", "bm25", "score", "tokens"})
_STEPS = ("begin", "embed", "search", "rank", "tokens", "read", "judge", "rerank", "pack")
"""One after the other; the others are parts of the search."""

_TOPIC_COLUMNS = {
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
    "too_far": "neither its vector nor its words fit",
    "over_count": "enough better ones were found",
    "over_budget": "no room was left",
    "in_context": "all of its messages are in the prompt anyway",
    "unwanted": "you said that it is never to be recalled",
    "gone": "it was gone",
}


def lines(answer: Mapping[str, Any]) -> Lines:
    receipt = answer["receipt"]
    if "layers" not in receipt:
        return [_turn(answer), "", "No context was put together for this answer."]
    layers = [
        [LAYERS.get(each["name"], each["name"]), str(each["tokens"]), "shortened" if each.get("shortened") else ""]
        for each in receipt["layers"]
    ]
    used, adapted, thought = context_used.read(receipt), receipt.get("adapted"), receipt.get("thinking")
    sections: list[Sequence[Line]] = [
        [_turn(answer)],
        _budget(receipt["budget"]),
        [Table([["layer", "tokens", ""], *layers], right=frozenset({1}))],
        [_window(receipt["window"])],
        [_facts(receipt["facts"])] if "facts" in receipt else [],
        [_summaries(receipt["summaries"])] if "summaries" in receipt else [],
        _topics(receipt["topics"]) if "topics" in receipt else [],
        _recall(receipt["recall"]),
        _knowledge(used) if used is not None else [],
        _tools(receipt["tools"]) if "tools" in receipt else [],
        [f"ended   before its end: {receipt['finish_reason']}"] if "finish_reason" in receipt else [],
        [f"refused by the model: {', '.join(adapted)}"] if adapted else [],
        [f"thought for {thought['seconds']:g} s, about {plural(thought['tokens'], 'token')}"] if thought else [],
    ]
    _, *shown = (line for section in sections if section for line in ("", *section))
    return [*shown, *(f"problem: {problem}" for problem in receipt.get("problems", []))]


_NOTHING = {
    **WHY_NOTHING,
    "no_room": "the context has no room for passages",
    "no_bases": "no base of this chat is there, or shared with you, any more",
    "no_words": "the question names nothing that a graph could know",
    "no_entities": "no graph knows what the question names",
}
_FOLLOWS = {"pair": ", with the last question and answer", "model": ", as the model worded it"}


def _knowledge(used: ContextUsed) -> list[Line]:
    given = (
        plural(len(used.passages), "passage")
        if used.passages
        else f"nothing: {_NOTHING.get(used.nothing, used.nothing)}"
    )
    bases = f"bases   {', '.join(used.bases)}" if used.bases else "files   of this chat"
    out: list[Line] = [f"{bases}; given {given}"]
    out += [f"        not there, or not shared any more: {', '.join(used.gone)}"] if used.gone else []
    out.append(f"        searched{_FOLLOWS.get(used.follows, '')}: {' / '.join(used.query.splitlines())}")
    rows = [
        [f"[{each.number}]", "cited" if each.cited else "", f"{each.score:g}", place_of(each)] for each in used.passages
    ]
    out += ["        none of them fits the question well"] if used.weak else []
    out += [Table([["", "", "score", "passage"], *rows], right=frozenset({2}))] if rows else []
    out += [
        f"        graph: {' '.join(each.sparql.split())} ({each.error or plural(each.rows, 'row')})"
        for each in used.sparql
    ]
    out += [f"        {plural(used.removed, 'invalid citation')} removed"] if used.removed else []
    out += ["        the answer refers to none of them"] if used.uncited else []
    return [*out, f"        missing: {', '.join(used.degraded)}"] if used.degraded else out


_TITLES = {
    "system_prompt": "System prompt", "core_memory": "Core memory and facts", "summary": "Summaries",
    "topics": "Topics", "recall": "Recalled", "window": "Conversation", "pending": "Question", "tools": "Tools",
}  # fmt: skip


def tell_reasons(receipt: dict[str, Any]) -> None:
    """Add to what was found, and to knowledge that gave nothing, ``because``: why, in words; to layers their titles."""
    recall, used = receipt.get("recall", {}), receipt.get("context_used", {})
    for each in receipt.get("layers", ()):
        each["title"] = _TITLES.get(each["name"], each["name"])
    for at, each in enumerate(recall.get("candidates", ())):
        each["because"] = reason(recall, at)
    for each in receipt.get("topics", {}).get("candidates", ()):
        each["because"] = _BECAUSE.get(each["decision"], each["decision"])
    if used.get("nothing"):
        used["because"] = _NOTHING.get(used["nothing"], used["nothing"])


def _turn(answer: Mapping[str, Any]) -> Table:
    timings = ", ".join(f"{step} {spent:g} ms" for step, spent in answer["timings"].items())
    reason = f": {answer['receipt']['reason']}" if "reason" in answer["receipt"] else ""
    error = f" ({answer['error']}{reason})" if answer["error"] else ""
    first, last = answer["first_seq"], answer["last_seq"]
    return Table(
        [
            ["answer", answer["id"]],
            ["chat", answer["chat"]],
            ["of", f"message {first}" if first == last else f"messages {first} to {last}"],
            ["model", answer["model"] or "none"],
            ["status", f"{answer['status']}{error}, {minute(answer['started_at'])}"],
            ["timings", timings or "none"],
            ["usage", _usage(answer["usage"])],
        ]
    )


def _usage(usage: Mapping[str, Any]) -> str:
    """All of it, and of several models (one that chose topics, for instance) each."""
    if "calls" not in usage:  # as turns of Klaw 0.1 have it
        return ", ".join(f"{name} {value}" for name, value in usage.items() if value is not None) or "not reported"
    models = usage.get("models", ())
    parts = [f"{each['model']}: {spent_text(each)}" for each in models] if len(models) > 1 else []
    return "; ".join([spent_text(usage), *parts])


def _budget(budget: Mapping[str, Any]) -> list[str]:
    factor = budget["correction"]
    spent = f"{budget['used_tokens']} of {budget['usable_tokens']} usable tokens"
    of = f"context {budget['context_tokens']}, {budget['reply_reserve_tokens']} kept for the reply"
    if factor == 1:
        return [f"budget  {spent} ({of})"]
    counted = f"{round(budget['used_tokens'] * factor)} of {round(budget['usable_tokens'] * factor)}"
    return [
        f"budget  {spent}, as Klaw estimates them",
        f"        this model counts {factor} times as many: {counted} ({of})",
    ]


def _window(window: Mapping[str, Any]) -> str:
    if not window["messages"]:
        return "seen    no earlier messages"
    shown = f"seen    {plural(window['messages'], 'message')} in full, {window['first_seq']} to {window['last_seq']}"
    older = ", older ones are searched" if window["older_in_segment"] else ""
    return f"{shown}; left out {window['left_out']}{older}"


def _facts(facts: Mapping[str, Any]) -> str:
    said = [f"{each['id']} ({each['because']}, {plural(each['tokens'], 'token')})" for each in facts["shown"]]
    left_out = f"; left out for lack of room: {facts['left_out']}" if facts["left_out"] else ""
    return f"facts   {', '.join(said) or 'none'}{left_out}"


def _summaries(summaries: list[dict[str, Any]]) -> str:
    said = [
        f"{each['number']} (messages {each['first_seq']} to {each['last_seq']}, {plural(each['tokens'], 'token')})"
        for each in summaries
    ]
    return "summary " + (", ".join(said) if said else "none is left")


def _tools(tools: Mapping[str, Any]) -> list[Line]:
    earlier = f", {tools['earlier_rounds']} more before it was interrupted" if "earlier_rounds" in tools else ""
    out: list[Line] = [f"tools   {tools['offered']} offered, {tools['rounds']} rounds{earlier}"]
    rows = [["round", "tool", "state", "characters", "ms"]]
    for call in tools["calls"]:
        chars, spent = call.get("chars", "-"), call.get("duration_ms", "-")
        rows.append([str(call["round"]), call["name"], call["state"], str(chars), str(spent)])
    return [*out, Table(rows, right=frozenset({0, 3, 4}))] if tools["calls"] else out


def _recall(recall: Mapping[str, Any]) -> list[Line]:
    kept = ", ".join(map(str, recall["kept"])) or "nothing"
    tokens = f" ({recall['kept_tokens']} tokens)" if recall["kept"] and "kept_tokens" in recall else ""
    rows = [["recall", f"{recall['guard']}; recalled: {kept}{tokens}"]]
    if recall["guard"] == Guard.SEARCH.value:  # else the question was not read
        rows.append(["question", _question(recall)])
    if "settings" in recall:
        rows.append(["settings", ", ".join(f"{name} {value:g}" for name, value in recall["settings"].items())])
    if "scope" in recall:
        rows.append(["found", _found(recall)])
    if recall["timings_ms"]:
        rows.append(["steps", _steps(recall["timings_ms"])])
    if recall["degraded"]:
        rows.append(["missing", ", ".join(recall["degraded"])])
    candidates: list[Line] = ["", _candidates(recall)] if recall["candidates"] else []
    return [Table(rows), *candidates]


def _question(recall: Mapping[str, Any]) -> str:
    said = f"{recall['query_words']} content words"
    if recall.get("command"):
        said += ", a command to the model"
    for first, last in recall.get("days", []):
        said += f", names {first}" + (f" to {last}" if last != first else "")
    if recall.get("expansion"):
        said += f"; a model added {', '.join(recall['expansion'])}"
    return said


def _found(recall: Mapping[str, Any]) -> str:
    scope, count = recall["scope"], len(recall["candidates"])
    among = f"in messages {scope['first_seq']} to {scope['end_seq'] - 1}"
    return f"{recall['found']} {among}" + (f"; the best {count} were considered" if recall["found"] > count else "")


def _steps(timings: Mapping[str, float]) -> str:
    parts = ", ".join(f"{name} {spent:g}" for name, spent in timings.items() if name not in _STEPS)
    inside = {"search": f" ({parts})"} if parts else {}
    return ", ".join(f"{name} {timings[name]:g} ms{inside.get(name, '')}" for name in _STEPS if name in timings)


def _candidates(recall: Mapping[str, Any]) -> Table:
    found = recall["candidates"]
    used = [name for name in _COLUMNS if name in _ALWAYS or any(each.get(name) is not None for each in found)]
    rows = [[*(_COLUMNS[name] for name in used), "decision", "because"]]
    rows += [[*_cells(each, used), str(each["decision"]), _because(recall, at)] for at, each in enumerate(found)]
    return Table(rows, right=frozenset(at for at, name in enumerate(used) if name not in _LEFT))


def _cells(each: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return ["-" if each.get(name) is None else str(each[name]) for name in names]


def _because(recall: Mapping[str, Any], at: int) -> str:
    each = recall["candidates"][at]
    said = [reason(recall, at), ranking(each)]
    if each.get("added_words"):
        said.append(f"has {each['added_words']} of the words that the model added")
    if "whole_tokens" in each:
        said.append(f"an excerpt of {each['whole_tokens']} tokens")
    elif each.get("excerpt"):
        said.append("an excerpt")
    return "; ".join(filter(None, said))


# -- topics ------------------------------------------------------------------------------------------------------------


def _topics(topics: Mapping[str, Any]) -> list[Line]:
    said = _ASKED.get(topics["asked"], str(topics["asked"]))
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
        notes.append(f"missing: {', '.join(topics['degraded'])}")
    out: list[Line] = [f"topics  {said}; {'; '.join(notes)}"]
    if topics["candidates"]:
        rows = [[*_TOPIC_COLUMNS.values(), "decision", "because"]]
        for each in topics["candidates"]:
            place = f", place {each['place']}" if each["decision"] == "chosen" and "place" in each else ""
            rows.append([*_cells(each, _TOPIC_COLUMNS), f"{each['decision']}{place}", _because_of_topic(each)])
        out += ["", Table(rows, right=frozenset(range(len(_TOPIC_COLUMNS))))]
    return out


def _because_of_topic(each: Mapping[str, Any]) -> str:
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


# -- one message -------------------------------------------------------------------------------------------------------


def why_lines(answer: Mapping[str, Any]) -> Lines:
    why = answer["why"]
    message = why["message"]
    rows = [
        ["answer", f"{answer['id']}, {answer['chat']}, {minute(answer['started_at'])}"],
        ["message", f"{message['chat']}#{message['seq']}, id {message['id']}, {message['role']}"],
        ["it was", why["as"]],
    ]
    if why["candidate"] is not None:
        rows.append(["rank", f"{why['rank']} of {len(answer['receipt']['recall']['candidates'])} candidates"])
        rows += _numbers(why["candidate"])
    out: list[Line] = [Table(rows)]
    if why["searched_now"] is not None:
        searched = [[f"  {name}", value] for name, value in _numbers(why["searched_now"])]
        out += ["", "searched now, as for that answer", Table(searched)]
    return [*out, "", *why["text"]]


def _numbers(values: Mapping[str, Any]) -> list[list[str]]:
    shown = {name: value for name, value in values.items() if name not in ("seq", "role") and value != []}
    return [[_COLUMNS.get(name, name).replace("_", " "), _shown(value)] for name, value in shown.items()]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        value = [f"{name} {number:+g}" for name, number in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
