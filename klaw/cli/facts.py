"""``klaw facts``: what is kept about a user, listed, added, changed, removed and taken back by the running server."""

import argparse
import sys
from typing import Any

from klaw.cli.admin_call import line, table
from klaw.cli.task_ask import ask, wrong
from klaw.domain.fact import InvalidFact, fact_text

_PAST = ["entry", "at", "from", "imp", "category", "text"]
_HEAD = ["fact", "imp", "category", "changed", "text"]


class _WrongText(Exception):
    """The text cannot be sent; says why."""


def list_command(args: argparse.Namespace) -> int:
    """Prints the facts, the most important first. 0 also when there are none."""
    wanted = {"category": args.category, "limit": args.limit, "page": args.page}
    return ask(args, "fact_list", wanted, fact_table)


def add_command(args: argparse.Namespace) -> int:
    """Keeps a statement. 0 kept, also when it was kept already; 1 failed, 2 wrong fields."""
    try:
        fields = {"text": _text("TEXT", args.text), **_fields(args)}
    except _WrongText as error:
        return wrong([str(error)])
    if args.replaces is not None:
        fields["replaces"] = args.replaces

    def show(answer: dict[str, Any]) -> list[str]:
        return fact_lines(answer["fact"], "" if answer["added"] else "known already, nothing was written")

    return ask(args, "fact_add", {"fields": fields}, show)


def edit_command(args: argparse.Namespace) -> int:
    """Changes what is given. 0 done, 1 failed, 2 wrong fields."""
    try:
        fields = _fields(args)
        if args.text is not None:
            fields["text"] = _text("--text", args.text)
    except _WrongText as error:
        return wrong([str(error)])
    if not fields:
        return wrong(["give what is to be changed: --text, --category or --importance"])
    return ask(args, "fact_edit", {"fact": args.fact, "fields": fields}, lambda answer: fact_lines(answer["fact"]))


def delete_command(args: argparse.Namespace) -> int:
    """Removes a fact. 0 removed, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        fact = answer["removed"]
        return [
            f"removed {line(fact['id'])}: {line(fact['text'])}",
            f"take it back: klaw facts undo {line(fact['id'])}",
        ]

    return ask(args, "fact_delete", {"fact": args.fact}, show)


def history_command(args: argparse.Namespace) -> int:
    """Prints all that a fact was, the oldest first. 0 done, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        return table([_PAST, *map(_change, answer["changes"])], right=frozenset({0, 3}))

    return ask(args, "fact_history", {"fact": args.fact}, show)


def undo_command(args: argparse.Namespace) -> int:
    """Takes back the newest change of a fact, or all after an entry. 0 done, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        back = [f"holds again: {line(each['id'])}: {line(each['text'])}" for each in answer["revived"]]
        if answer["fact"] is None:
            return [f"removed {line(answer['id'])}", *back]
        return [*fact_lines(answer["fact"]), *back]

    return ask(args, "fact_undo", {"fact": args.fact, "entry": args.entry}, show)


# -- what is sent ------------------------------------------------------------------------------------------------------


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    given = {"category": args.category, "importance": args.importance}
    return {field: value for field, value in given.items() if value is not None}


def _text(option: str, given: str) -> str:
    """The text as it is kept; ``-`` reads it from standard input. Raises _WrongText."""
    raw = sys.stdin.buffer.read(65_536) if given == "-" else given.encode("utf-8", "surrogateescape")
    try:
        return fact_text(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _WrongText(f"{option}: must be valid UTF-8") from None
    except InvalidFact as error:
        raise _WrongText(f"{option}: {str(error).removeprefix('text: ')}") from None


# -- text for the terminal ---------------------------------------------------------------------------------------------


def fact_table(answer: dict[str, Any]) -> list[str]:
    """Facts, one a line."""
    found = answer["facts"]
    if not found:
        return ["no facts" if not answer["count"] else "no more facts"]
    rows = [
        [
            line(each["id"]),
            str(each["importance"]),
            line(each["category"]),
            _minute(each["updated_at"]),
            line(each["text"]),
        ]
        for each in found
    ]
    more = [f"more: --page {answer['next']} ({answer['count']} in all)"] if answer["next"] is not None else []
    return [*table([_HEAD, *rows], right=frozenset({1})), *more]


def fact_lines(fact: dict[str, Any], note: str = "") -> list[str]:
    """One fact with where it comes from."""
    rows = [
        ["fact", line(fact["id"])],
        ["text", line(fact["text"])],
        ["category", line(fact["category"])],
        ["importance", str(fact["importance"])],
        ["source", f"{fact['source']}, in the words of: {fact['origin']}"],
        *([["topic", line(fact["topic"])]] if fact["topic"] is not None else []),
        *([["day", line(fact["day"])]] if fact["day"] is not None else []),
        ["changed", _minute(fact["updated_at"])],
    ]
    if fact["superseded_by"] is not None:
        rows.append(["history", f"{line(fact['superseded_by'])} took its place"])
    return [*([note] if note else []), *table(rows)]


def _change(change: dict[str, Any]) -> list[str]:
    fact = change["fact"]
    head = [str(change["entry"]), _minute(change["at"])]
    if fact is None:
        return [*head, "-", "-", "-", "(removed)"]
    past = f" ({line(fact['superseded_by'])} took its place)" if fact["superseded_by"] is not None else ""
    return [*head, _from(fact), str(fact["importance"]), line(fact["category"]), line(fact["text"]) + past]


def _from(fact: dict[str, Any]) -> str:
    """What it was drawn from, or by which way it came."""
    if fact["day"] is not None:
        return f"day {line(fact['day'])}"
    return f"topic {line(fact['topic'])}" if fact["topic"] is not None else line(fact["source"])


def _told(fact: dict[str, Any]) -> list[str]:
    return [line(fact["category"]), _minute(fact["updated_at"]), line(fact["text"])]


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")
