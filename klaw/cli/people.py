"""``klaw people``: the people a user speaks of, listed, changed, merged and removed by the running server."""

import argparse
from typing import Any

from klaw.cli.admin_call import line, table
from klaw.cli.task_ask import ask, wrong

_HEAD = ["person", "topics", "last named", "name", "also", "relation"]


def list_command(args: argparse.Namespace) -> int:
    """Prints the people, those named most often first. 0 also when there are none."""
    return ask(args, "person_list", {"limit": args.limit, "page": args.page}, people_table)


def show_command(args: argparse.Namespace) -> int:
    """Prints a person with the topics that name it. 0 done, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        topics = [
            [_minute(each["at"]), f"day {each['day']}" if each["day"] else f"topic {each['topic']}"]
            for each in answer["mentions"]
        ]
        was = [f"was also known as {line(each['id'])}: {line(each['name'])}" for each in answer["was"]]
        return [*person_lines(answer["person"]), *was, *table(topics)]

    return ask(args, "person_show", {"person": args.person}, show)


def add_command(args: argparse.Namespace) -> int:
    """Adds a person. 0 done, 1 failed, 2 wrong fields."""
    fields = {"name": args.name, "aliases": args.alias, "relation": args.relation}

    def show(answer: dict[str, Any]) -> list[str]:
        same = ", ".join(map(line, answer["namesakes"]))
        return [*person_lines(answer["person"]), *([f"others have one of these names: {same}"] if same else [])]

    return ask(args, "person_add", {"fields": _given(fields)}, show)


def edit_command(args: argparse.Namespace) -> int:
    """Changes what is given. 0 done, 1 failed, 2 wrong fields."""
    fields = _given(
        {
            "name": args.name,
            "relation": args.relation,
            "add_aliases": args.alias,
            "remove_aliases": args.no_alias,
        }
    )
    if not fields:
        return wrong(["give what is to be changed: --name, --relation, --alias or --no-alias"])
    wanted = {"person": args.person, "fields": fields}
    return ask(args, "person_edit", wanted, lambda answer: person_lines(answer["person"]))


def merge_command(args: argparse.Namespace) -> int:
    """Says that a person is another one. 0 done, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        back = f"take it back: klaw people undo {line(answer['merged'])}"
        return [*person_lines(answer["person"]), back]

    return ask(args, "person_merge", {"person": args.person, "into": args.into}, show)


def delete_command(args: argparse.Namespace) -> int:
    """Removes a person. 0 removed, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        person = answer["removed"]
        return [
            f"removed {line(person['id'])}: {line(person['name'])}",
            f"take it back: klaw people undo {line(person['id'])}",
            f"to take it out of everything: klaw forget person:{line(person['id'])}",
        ]

    return ask(args, "person_delete", {"person": args.person}, show)


def history_command(args: argparse.Namespace) -> int:
    """Prints all that a person was, the oldest first. 0 done, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        rows = [_change(each) for each in answer["changes"]]
        return table([["entry", "at", "what", "name", "also", "relation"], *rows], right=frozenset({0}))

    return ask(args, "person_history", {"person": args.person}, show)


def undo_command(args: argparse.Namespace) -> int:
    """Takes back the newest change of a person, or all after an entry. 0 done, 1 failed."""

    def show(answer: dict[str, Any]) -> list[str]:
        back = [f"a person again: {line(each['id'])}: {line(each['name'])}" for each in answer["revived"]]
        if answer["person"] is None:
            return [f"removed {line(answer['id'])}", *back]
        return [*person_lines(answer["person"]), *back]

    return ask(args, "person_undo", {"person": args.person, "entry": args.entry}, show)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


# -- text for the terminal ---------------------------------------------------------------------------------------------


def people_table(answer: dict[str, Any]) -> list[str]:
    """People, one a line."""
    found = answer["people"]
    if not found:
        return ["no people" if not answer["count"] else "no more people"]
    rows = [
        [
            line(each["id"]),
            str(each["topics"]),
            _minute(each["last_at"] or "-"),
            line(each["name"]),
            line(", ".join(each["aliases"])) or "-",
            line(each["relation"]) or "-",
        ]
        for each in found
    ]
    more = [f"more: --page {answer['next']} ({answer['count']} in all)"] if answer["next"] is not None else []
    return [*table([_HEAD, *rows], right=frozenset({1})), *more]


def person_lines(person: dict[str, Any]) -> list[str]:
    """One person."""
    rows = [["person", line(person["id"])], ["name", line(person["name"])]]
    if person["aliases"]:
        rows.append(["also", line(", ".join(person["aliases"]))])
    if person["relation"]:
        rows.append(["relation", line(person["relation"])])
    rows.append(["source", person["source"]])
    if "topics" in person:
        rows.append(["topics", str(person["topics"])])
    rows.append(["changed", _minute(person["updated_at"])])
    if person["merged_into"] is not None:
        rows.append(["history", f"this is {line(person['merged_into'])}"])
    return table(rows)


def _change(change: dict[str, Any]) -> list[str]:
    person = change["person"]
    head = [str(change["entry"]), _minute(change["at"]), line(change["what"])]
    if person is None:
        return [*head, "-", "-", "-"]
    also, relation = line(", ".join(person["aliases"])) or "-", line(person["relation"]) or "-"
    return [*head, line(person["name"]), also, relation]


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")
