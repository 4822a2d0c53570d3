"""``klaw topics``: what the archivist made of the conversations."""

import argparse
from typing import Any

from klaw.cli.admin_call import line, table
from klaw.cli.task_ask import ask
from klaw.domain.text import plural


def list_command(args: argparse.Namespace) -> int:
    """Lists topics, the last talked about first."""
    user = args.user or "local"
    chat = f"{user}:{args.chat}" if args.chat else None
    return ask(args, "topics_list", {"chat": chat, "limit": args.limit}, _list)


def show_command(args: argparse.Namespace) -> int:
    """Shows a topic with its messages."""
    return ask(args, "topics_show", {"topic": args.topic}, _show)


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
        f"topic {topic['id']} of {line(topic['chat'])}, {plural(topic['messages'], 'message')}, {span}",
        f"  {line(topic['summary'])}",
    ]
    said = [f"#{each['seq']} {each['role']}: {line(each['content'])}" for each in answer["messages"]]
    return [*head, *said]
