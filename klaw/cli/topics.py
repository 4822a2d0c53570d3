"""``klaw topics``: what the archivist made of the conversations."""

import argparse
from typing import Any

from klaw.cli.admin_call import call, fail, line, print_json, table
from klaw.config.paths import Paths
from klaw.errors import KlawError


def list_command(args: argparse.Namespace) -> int:
    """Lists topics, the last talked about first."""
    user = args.user or "local"
    chat = f"{user}:{args.chat}" if args.chat else None
    return _ask(args, "topics_list", {"user": args.user, "chat": chat, "limit": args.limit})


def show_command(args: argparse.Namespace) -> int:
    """Shows a topic with its messages."""
    return _ask(args, "topics_show", {"user": args.user, "topic": args.topic})


def _ask(args: argparse.Namespace, command: str, wanted: dict[str, Any]) -> int:
    try:
        answer = call(Paths.resolve(args.home), command, **wanted)
    except KlawError as error:
        return fail(error)
    if args.json:
        print_json(answer)
    else:
        print("\n".join(_list(answer) if command == "topics_list" else _show(answer)))
    return 0


def _list(answer: dict[str, Any]) -> list[str]:
    if not answer["topics"]:
        return ["no topics yet"]
    rows = [["topic", "chat", "from", "to", "messages", "summary"]]
    for each in answer["topics"]:
        days = each["first_at"][:10], each["last_at"][:10]
        rows.append([str(each["id"]), line(each["chat"]), *days, str(each["messages"]), line(each["summary"])])
    return [*table(rows, right=frozenset({0, 4})), f"{len(answer['topics'])} of {answer['count']}"]


def _show(answer: dict[str, Any]) -> list[str]:
    topic = answer["topic"]
    span = f"{topic['first_at'][:16]} to {topic['last_at'][:16]}"
    head = [
        f"topic {topic['id']} of {line(topic['chat'])}, {topic['messages']} messages, {span}",
        f"  {line(topic['summary'])}",
    ]
    said = [f"#{each['seq']} {each['role']}: {line(each['content'])}" for each in answer["messages"]]
    return [*head, *said]
