"""``klaw why``: where a message lives now and what would bring it back. Asks the server; without one reads the
database."""

import argparse
from collections import Counter
from typing import Any

from klaw.cli.admin_call import Refused, ask, fail, line, print_json, table
from klaw.config.paths import Paths
from klaw.domain.text import plural
from klaw.errors import KlawError

SHOWN_TURNS = 5


def why_command(args: argparse.Namespace) -> int:
    """Prints what is known of the message; 1 when there is none."""
    paths = Paths.resolve(args.home)
    wanted = {"message": args.message, "user": args.user, "chat": args.chat, "query": args.query}
    try:
        answer = ask(paths, "why", wanted, lambda: _read(paths, wanted))
    except KlawError as error:
        return fail(error)
    if args.json:
        print_json(answer)
    else:
        print("\n".join(lines(answer)))
    return 0


def _read(paths: Paths, wanted: dict[str, str | None]) -> dict[str, Any]:
    """Read the database, which no server has open. A query is tried with full text only: no model is loaded for it.

    Raises:
        Refused: there is no such message.
        StorageError: it cannot be read.
        ConfigError: the configuration is wrong.
    """
    import attrs
    import trio

    from klaw.actor import log
    from klaw.admin import trial, why
    from klaw.admin.requests import BadRequest, Why, parse_args
    from klaw.agent.workspace import Workspace
    from klaw.config.load import load
    from klaw.context.pinned_facts import standing
    from klaw.store import message_location
    from klaw.store.kinds import facts
    from klaw.store.store import read_offline

    log.configure("error", "auto")
    config, _ = load(paths.config_file)
    try:
        request = parse_args(Why, {name: value for name, value in wanted.items() if value is not None})
        target = why.check_why(request)
        message = why.choose(read_offline(paths.database, message_location.find, target))
        fixed = Workspace(paths.workspace, paths.data_dir).read(message.user)
        kept = read_offline(paths.database, facts.standing, message.user)
        fixed = attrs.evolve(fixed, core_memory=standing(fixed.core_memory, kept).text)
        about = read_offline(
            paths.database,
            message_location.locate,
            message,
            why.words_of(message),
            turns=why.TURNS,
            window_rows=config.window_rows,
            summarised=config.summaries.enabled,
        )
        found = why.combine(message, about, config, fixed)
    except BadRequest as error:
        raise Refused(error.code, str(error)) from None
    asked = trio.run(trial.try_query_offline, found, paths.database, config, request.query) if request.query else None
    return why.describe(found, config, asked)


# -- the text ----------------------------------------------------------------------------------------------------------

_PLACES = {
    "pending": "in the next request: it waits for its answer",
    "window": "in the window of the next request",
    "summary": "in a summary of the next request; no search finds it",
    "auto_rag": "in reach of Auto-RAG: recalled when a question is about it",
    "earlier_segment": "before the last /new: found by search, not by Auto-RAG",
    "disabled": "found by search; Auto-RAG is off",
    "not_searched": "in the history only, by design",
    "wordless": "in the history only: it holds no word",
    "nowhere": "NOWHERE: no search finds it",
}
_NO_VECTOR = {
    "not_searched": "not searched by design",
    "too_short": "shorter than autoRag.minMessageTokens",
    "disabled": "embedding.enabled is false",
    "waiting": "it waits for one",
    "lost": "it got lost",
}
_TURNS = {
    "question": "was its question",
    "window": "had it in the window",
    "recalled": "recalled it",
    "cut": "found it and cut it",
    "summary": "had it in a summary",
    "topic": "showed it in a topic",
    "not_found": "did not find it",
    "other_segment": "was of another segment",
    "guard_all_in_context": "needed no recall",
    "guard_disabled": "had recall off",
    "no_context": "had no context",
    "later": "had answered before it",
}


def lines(answer: dict[str, Any]) -> list[str]:
    """The answer as text."""
    message = answer["message"]
    long = f"{plural(message['characters'], 'character')}, {plural(message['tokens'], 'token')}"
    kind = f"{message['role']}, {message['type']}, {long}"
    rows = [
        ["message", f"{message['chat']}#{message['seq']}, id {message['id']}"],
        ["said", f"{message['created_at']}, {kind}"],
        ["log", message["log"]],
        ["segment", _segment(answer["segment"])],
        ["place", _PLACES.get(answer["place"], answer["place"])],
        ["window", _window(answer["window"])],
        ["summary", _summary(answer["summary"])],
        ["topic", _topic(answer["topic"])],
        ["vector", _vector(answer["vector"])],
        ["full text", _full_text(answer["full_text"])],
        ["turns", _turns(answer["turns"])],
    ]
    out = table([[name, line(str(text))] for name, text in rows])
    out += _recalls(answer["turns"])
    if answer["query"] is not None:
        out += ["", "query  " + line(_query(answer["query"]))]
    return [*out, "", *(line(sentence) for sentence in answer["advice"])]


def _summary(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "none yet"
    held = f"in summary {summary['number']}, of messages {summary['first_seq']} to {summary['last_seq']}"
    if summary["shown"]:
        return f"{held}, which the next request has"
    return f"{held}, which " + ("made room for newer ones" if summary["state"] == "evicted" else "is not shown now")


def _topic(topic: dict[str, Any] | None) -> str:
    if topic is None:
        return "none yet"
    general = ", general conversation" if topic["general"] else ""
    return (
        f"{topic['id']}, {plural(topic['messages'], 'message')} from {topic['first_at']} to {topic['last_at']}{general}"
    )


def _segment(segment: dict[str, Any]) -> str:
    if segment["current"]:
        return f"{segment['number']}, the current one"
    return f"{segment['number']}, ended by /new (message {segment['ended_by_seq']}, {segment['ended_at']})"


def _window(window: dict[str, Any]) -> str:
    if window["pending"]:
        return "it is the question"
    if window["first_seq"] is None:
        return "empty"
    where = "yes" if window["there"] else "no"
    return f"{where}: the next request shows messages {window['first_seq']} to {window['last_seq']}"


def _vector(vector: dict[str, Any]) -> str:
    if vector["there"]:
        return f"yes, {vector['model']}"
    return f"no: {_NO_VECTOR.get(vector['reason'], vector['reason'])}"


def _full_text(text: dict[str, Any]) -> str:
    return f"yes, {plural(text['words'], 'word')}" if text["there"] else "no"


def _turns(turns: list[dict[str, Any]]) -> str:
    counts = Counter(each["as"] for each in turns)
    said = [f"{count} {_did(code, count)}" for code, count in counts.most_common()]
    return f"of the last {len(turns)} since then: {', '.join(said)}" if said else "none since then"


def _did(code: str, count: int) -> str:
    said = _TURNS.get(code, code)
    return f"were {said.removeprefix('was ')}" if count > 1 and said.startswith("was ") else said


def _recalls(turns: list[dict[str, Any]]) -> list[str]:
    """The turns in which it was a candidate, the newest first."""
    found = [each for each in turns if "candidate" in each]
    if not found:
        return []
    columns = ("vector_rank", "distance", "text_rank", "score", "decision")
    rows = [["turn", "ended", "vector", "distance", "text", "score", "decision"]]
    for each in found[:SHOWN_TURNS]:
        cells = (each["candidate"].get(column) for column in columns)
        rows.append(
            [line(each["turn"]), each["ended_at"], *(line("-" if cell is None else str(cell)) for cell in cells)]
        )
    more = len(found) - SHOWN_TURNS
    return ["", *table(rows), *([f"and {more} more; --json has all"] if more > 0 else [])]


def _query(query: dict[str, Any]) -> str:
    words = f"{query['content_words']} content words"
    degraded = f"; degraded: {', '.join(query['degraded'])}" if query["degraded"] else ""
    if not query["in_scope"]:
        return f"would not look there: it is outside of Auto-RAG's reach now ({words}{degraded})"
    if query["candidate"] is None:
        return f"would not find it among {query['candidates']} candidates ({words}{degraded})"
    what = "would recall it" if query["recalled"] else "would find it and cut it"
    decision = query["candidate"]["decision"]
    return f"{what}: place {query['place']} of {query['candidates']}, {decision} ({words}{degraded})"
