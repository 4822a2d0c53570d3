"""``klaw search``: what matches a query in all that was said and is kept. Asks the server; without one reads the
database."""

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from klaw.cli.admin_call import Refused, ask, fail, line, print_json
from klaw.config.paths import Paths
from klaw.domain.text import plural
from klaw.errors import KlawError

if TYPE_CHECKING:
    from klaw.admin.requests import Search

_OPTIONS = ("user", "chat", "since", "until", "role", "limit", "page")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[22m"
_WRONG_USAGE = frozenset({"bad_args", "line_too_long"})

_NOTES = {
    "embedding_off": "full text only: embedding.enabled is false",
    "embedding_no_model": "full text only: the embedding model is not here (klaw models pull)",
    "embedding_loading": "full text only: the embedding model is being loaded",
    "embedding_restarting": "full text only: the embedder is being restarted",
    "embedding_busy": "full text only: the embedder has too much to do",
    "embedding_late": "full text only: the query's vector was not ready in time",
    "embedding_failed": "full text only: the embedding model failed",
    "no_vectors": "full text only: there are no vectors yet",
    "no_model": "full text only: the embedding model is not here (klaw models pull)",
    "other_model": "full text only: the stored vectors are of another embedding model",
    "vectors_incomplete": "most messages have no vector yet and are found by their words only",
    "vectors_not_encoded": "not all vectors were searched: they are being prepared",
    "vector_search_failed": "full text only: the vectors are damaged; a running server makes them anew",
    "text_search_failed": "by meaning only: the full-text index is damaged (klaw doctor)",
    "newest_only": "by words only newer messages were ranked: all words of the query are very frequent",
}

_ORIGINS = {"tool": "after reading from outside"}
"""What is said of a fact's origin."""


def search_command(args: argparse.Namespace) -> int:
    """Prints a page of results. 0 found, 1 nothing found or failed, 2 wrong usage."""
    paths = Paths.resolve(args.home)
    wanted = {"query": args.query, **{name: getattr(args, name) for name in _OPTIONS}}
    try:
        answer = ask(paths, "search", wanted, lambda: _read(paths, wanted))
    except Refused as error:
        print(f"klaw search: {line(_as_typed(error))}", file=sys.stderr)
        return 2 if error.code in _WRONG_USAGE else 1
    except KlawError as error:
        return fail(error)
    if args.json:
        print_json(answer)
    else:
        for note in notes(answer):
            print(f"klaw: {line(note)}", file=sys.stderr)
        more = again(args, answer["next"]) if answer["next"] is not None else None
        bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print("\n".join(lines(answer, more=more, bold=bold)), end="\n" if answer["results"] else "")
    return 0 if answer["results"] or answer.get("people") else 1


def _as_typed(error: Refused) -> str:
    """What the server refused, in the words of the command line."""
    if error.code == "line_too_long":
        from klaw.admin.requests import MAX_QUERY

        return f"QUERY: must have 1 to {MAX_QUERY} characters"
    return str(error)


def _read(paths: Paths, wanted: dict[str, Any]) -> dict[str, Any]:
    """Search the database, which no server has open; with vectors if the model is here.

    Raises:
        Refused: an argument is wrong.
        StorageError: it cannot be read.
        ConfigError: the configuration is wrong.
    """
    import trio

    from klaw.actor import log
    from klaw.admin.requests import BadRequest, Search, parse_args

    log.configure("error", "auto")
    try:
        request = parse_args(Search, {name: value for name, value in wanted.items() if value is not None})
        return trio.run(_search, paths, request)
    except BadRequest as error:
        raise Refused(error.code, str(error)) from None


async def _search(paths: Paths, request: "Search") -> dict[str, Any]:
    from klaw.actor.clock import SystemClock
    from klaw.actor.metrics import Metrics
    from klaw.admin.search import run_search
    from klaw.config.load import load
    from klaw.memory.recall.offline_recall import open_recall
    from klaw.memory.search.search import MemorySearch
    from klaw.memory.topics.metrics import TopicMetrics
    from klaw.memory.topics.search import TopicSearch

    config, _ = load(paths.config_file)
    folder = config.embedding.path or paths.models_dir / config.embedding.model
    async with open_recall(paths.database, config, folder) as offline:
        clock = SystemClock()
        topics = TopicSearch(offline.readers, offline.embedder, clock, TopicMetrics(Metrics()))
        search = MemorySearch(offline.readers, offline.embedder, clock, topics)
        answer = await run_search(search, offline.readers, request)
    if offline.missing is not None:
        answer["degraded"] = [offline.missing if each == "embedding_off" else each for each in answer["degraded"]]
    return answer


# -- the text ----------------------------------------------------------------------------------------------------------


def again(args: argparse.Namespace, page: str) -> str:
    """The command as it was given, but for another page."""
    given = [(name, getattr(args, name)) for name in ("home", *_OPTIONS) if name != "page"]
    options = [f"--{name}={value}" for name, value in [*given, ("page", page)] if value is not None]
    query = ["--", args.query] if args.query.startswith("-") else [args.query]
    return shlex.join(["klaw", "search", *options, *query])


def notes(answer: dict[str, Any]) -> list[str]:
    """What a person should know of how the search was done, or why nothing was found."""
    out = []
    for code in answer["degraded"]:
        name, _, detail = code.partition(":")
        done = f"full text only, {detail.replace('%', ' %')} re-embedded: the embedding model was changed"
        out.append(done if name == "reembedding" else _NOTES.get(code, code))
    if answer["words_left_out"]:
        out.append(f"very frequent words were not looked for: {', '.join(answer['words_left_out'])}")
    if not answer["words"]:
        out.append("QUERY has no word or emoji that could be searched for")
    elif not answer["total"] and not answer.get("people"):
        out.append("nothing found")
    elif answer["total"] and not answer["results"]:
        out.append(f"there is no such page: {_results(answer)} in all")
    return out


def lines(answer: dict[str, Any], *, more: str | None, bold: bool) -> list[str]:
    """The results as text, and how to see more.

    Args:
        answer: of the search.
        more: the command that shows the next page.
        bold: whether matches are set in bold; else they are not marked.
    """
    out = []
    prefix = f"{answer['user']}:"
    for each in answer.get("people", ()):
        out += [line("  ".join(_who(each))), *(f"    {line(fact['text'])}" for fact in each["facts"]), ""]
    for each in answer.get("topics", ()):
        span = " to ".join(dict.fromkeys((each["first_at"][:10], each["last_at"][:10])))
        head = ["topic", span, each["chat"].removeprefix(prefix), plural(each["messages"], "message")]
        out += [line("  ".join(head)), f"    {line(each['summary'])}", ""]
    for each in answer["results"]:
        head = [*_label(each, answer["user"]), *_without_words(each)]
        out += [line("  ".join(head)), f"    {_snippet(each, bold=bold)}", ""]
    if answer["results"]:
        last = answer["first"] + len(answer["results"]) - 1
        out.append(f"{answer['first']} to {last} of {_results(answer)}")
    if more is not None:
        out.append(f"more: {line(more)}")
    return out


def _who(person: dict[str, Any]) -> list[str]:
    """The head of a person."""
    also = f"also {', '.join(person['aliases'])}" if person["aliases"] else ""
    named = f"last named {person['last_at'][:10]}" if person["last_at"] else ""
    return ["person", *(each for each in (person["name"], person["relation"], also, named) if each)]


def _label(result: dict[str, Any], user: str) -> list[str]:
    """What a result is, and where it is from."""
    match result.get("kind", "message"):
        case "fact":
            about = f"{result['category']}, importance {result['importance']}"
            origin = [_ORIGINS[result["origin"]]] if result["origin"] in _ORIGINS else []
            return [_minute(result["updated_at"]), f"fact {result['id']}", about, *origin]
        case "file":
            return [f"{result['path']}:{result['line']}", *([result["heading"]] if result["heading"] else [])]
        case "note":
            place = f"{result['chat'].removeprefix(f'{user}:')}#{result['seq']}"
            return [_minute(result["created_at"]), place, "note on a tool's result"]
        case _:
            place = f"{result['chat'].removeprefix(f'{user}:')}#{result['seq']}"
            return [_minute(result["created_at"]), place, result["role"]]


def _minute(time: str) -> str:
    return f"{time[:10]} {time[11:16]}"


def _without_words(result: dict[str, Any]) -> list[str]:
    """How a message was found that has none of the words."""
    if result["words"]:
        return []
    return ["by meaning"] if result["vector_rank"] is not None else ["beside a match"]


def _results(answer: dict[str, Any]) -> str:
    return f"{'' if answer['total_is_exact'] else 'at least '}{answer['total']}"


def _snippet(result: dict[str, Any], *, bold: bool) -> str:
    text, marks = result["snippet"], result["marks"]
    if not bold:
        return line(text)
    out, done = [], 0
    for begin, end in marks:
        # Each piece is made harmless by itself: that changes lengths.
        out += [line(text[done:begin]), _BOLD, line(text[begin:end]), _PLAIN]
        done = end
    return "".join([*out, line(text[done:])])
