"""``klaw topics merge``, ``split``, ``rebuild``, ``history`` and ``undo``: changing what the archivist made."""

import argparse
import sys
from typing import Any

from klaw.cli.admin_call import call, fail, line, print_json, table
from klaw.cli.task_ask import ask, wrong
from klaw.config.paths import Paths
from klaw.domain.text import plural
from klaw.errors import KlawError


def merge_command(args: argparse.Namespace) -> int:
    """Lets the first topic take in the others. 0 done, 1 refused, 2 wrong usage."""
    if (ids := _numbers(args.topics)) is None:
        return wrong([_NO_NUMBER.format("TOPIC")])
    fields: dict[str, Any] = {"topics": ids} | ({"summary": args.summary} if args.summary is not None else {})

    def show(answer: dict[str, Any]) -> list[str]:
        return ["merged:", *_told([answer["topic"]]), _BACK]

    return ask(args, "topics_merge", {"fields": fields}, show)


def split_command(args: argparse.Namespace) -> int:
    """Puts several topics in the place of one. 0 done, 1 refused, 2 wrong usage."""
    if (ids := _numbers([args.topic])) is None:
        return wrong([_NO_NUMBER.format("TOPIC")])
    fields = {"at": args.at} if args.at else {}

    def show(answer: dict[str, Any]) -> list[str]:
        return [f"in the place of topic {answer['ended']}:", *_told(answer["topics"]), _BACK]

    return ask(args, "topics_split", {"topic": ids[0], "fields": fields}, show)


def rebuild_command(args: argparse.Namespace) -> int:
    """Drops topics for the archivist to make anew. 0 done, or a dry run; 1 refused or not confirmed."""
    paths = Paths.resolve(args.home)
    chat = f"{args.user or 'local'}:{args.chat}" if args.chat else None
    wanted = {"user": args.user, "chat": chat, "since": args.since}
    try:
        answer = call(paths, "topics_rebuild", **wanted, dry_run=True)
        if not args.dry_run and (args.yes or _agreed(answer)):
            answer = call(paths, "topics_rebuild", **wanted, dry_run=False)
    except KlawError as error:
        return fail(error)
    done = answer["dropped"] or args.dry_run
    if args.json:
        print_json(answer)
    elif done:
        print("\n".join(_rebuilt(answer)))
    return 0 if done else 1


def history_command(args: argparse.Namespace) -> int:
    """Prints changes of topics. 0 also when there are none; 1 failed."""
    if (ids := _numbers([args.topic] if args.topic is not None else [])) is None:
        return wrong([_NO_NUMBER.format("TOPIC")])
    return ask(args, "topics_history", {"topic": ids[0] if ids else None, "limit": args.limit}, _history)


def undo_command(args: argparse.Namespace) -> int:
    """Takes a change back. 0 done, 1 refused, 2 wrong usage."""
    if (entries := _numbers([args.entry] if args.entry is not None else [])) is None:
        return wrong([_NO_NUMBER.format("ENTRY")])

    def show(answer: dict[str, Any]) -> list[str]:
        lines = [f"change {answer['undone']} is taken back, by change {answer['entry']}"]
        if answer["topics"]:
            lines += ["there again as they were:", *_told(answer["topics"], answer["count"])]
        if answer["ended"]:
            lines.append(f"gone by it: {_ids(answer['ended'], answer['ended_count'])}")
        return lines

    return ask(args, "topics_undo", {"entry": entries[0] if entries else None}, show)


_NO_NUMBER = "{}: must be a number from 1"


def _numbers(given: list[str]) -> list[int] | None:
    """The numbers that were given; None when one is none."""
    if any(not each.isdecimal() or len(each) > 15 or int(each) < 1 for each in given):
        return None
    return [int(each) for each in given]


# -- text for the terminal ---------------------------------------------------------------------------------------------

_BACK = "take it back: klaw topics undo"


def _agreed(answer: dict[str, Any]) -> bool:
    if not sys.stdin.isatty():
        print(
            "klaw: nothing was changed; say --yes to do it, or --dry-run to see what would be dropped", file=sys.stderr
        )
        return False
    print("\n".join(_rebuilt(answer)), file=sys.stderr)
    print("Make them anew? It costs calls to the model. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes", "да")


def _rebuilt(answer: dict[str, Any]) -> list[str]:
    told = f"{plural(answer['count'], 'topic')} of {plural(answer['messages'], 'message')}"
    if answer["dropped"]:
        head = f"dropped {told}, to be made again"
        return [head, *(f"take it back: klaw topics undo {entry}" for entry in answer["entries"])]
    return [
        f"would be dropped and made again: {told}",
        *_told(answer["topics"], answer["count"]),
    ]


def _told(topics: list[dict[str, Any]], count: int = 0) -> list[str]:
    rows = [[str(each["id"]), line(each["chat"]), str(each["messages"]), line(each["summary"])] for each in topics]
    more = [f"  … and {count - len(rows)} more"] if count > len(rows) else []
    return [*(f"  {row}" for row in table(rows, right=frozenset({0, 2}))), *more]


def _ids(ids: list[int], count: int) -> str:
    return ", ".join(map(str, ids)) + (f" and {count - len(ids)} more" if count > len(ids) else "")


def _history(answer: dict[str, Any]) -> list[str]:
    if not answer["changes"]:
        return ["no changes of topics"]
    rows = [["entry", "at", "chat", "by", "change", "note"]]
    for each in answer["changes"]:
        before = _ids([state["id"] for state in each["before"]], each["before_count"]) or "-"
        after = _ids(each["after"], each["after_count"]) or "-"
        note = f"takes back {each['undoes']}" if each["undoes"] is not None else ""
        if each["undone_by"] is not None:
            note = f"{note}; " * bool(note) + f"taken back by {each['undone_by']}"
        rows.append(
            [
                str(each["entry"]),
                each["at"][:16].replace("T", " "),
                line(each["chat"]),
                each["by"],
                f"{each['op']} {before} -> {after}",
                note,
            ]
        )
    return table(rows, right=frozenset({0}))
