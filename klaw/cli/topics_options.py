"""The options of ``klaw topics``."""

import argparse
from collections.abc import Callable
from typing import Any


def add(group: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands to their group. ``command`` makes one: the group, its name, its text, module and function."""

    def made(name: str, text: str, module: str = "topics_control") -> argparse.ArgumentParser:
        parser = command(group, name, text, module, f"{name}_command")
        parser.add_argument("--user", metavar="NAME", help="whose (default: local)")
        return parser

    listing = made("list", "list topics, the last talked about first", "topics")
    listing.add_argument("--chat", metavar="NAME", help="of this chat only")
    listing.add_argument("--limit", metavar="N", type=int, help="so many, 1 to 100 (default: 20)")
    show = made("show", "show a topic with its messages", "topics")
    show.add_argument("topic", metavar="TOPIC", help="its number")
    merge = made("merge", "let the first of some topics take in the others")
    merge.add_argument("topics", metavar="TOPIC", nargs="+", help="numbers of two or more, of one chat")
    merge.add_argument("--summary", metavar="TEXT", help="of the whole (default: their summaries, one after the other)")
    split = made("split", "put several topics in the place of one; without --at a model divides it")
    split.add_argument("topic", metavar="TOPIC", help="its number")
    at = "a message with which a new topic begins: its id, or main#12; may be given again"
    split.add_argument("--at", metavar="MESSAGE", action="append", default=[], help=at)
    rebuild = made("rebuild", "drop topics and let the archivist make them anew; facts are kept")
    rebuild.add_argument("--chat", metavar="NAME", help="of this chat only")
    rebuild.add_argument("--since", metavar="TIME", help="only those last talked about since then: 2026-05-01, 7d …")
    rebuild.add_argument("--dry-run", action="store_true", help="only list what would be dropped")
    rebuild.add_argument("--yes", action="store_true", help="do not ask")
    history = made("history", "show changes of topics, the newest first")
    history.add_argument("topic", metavar="TOPIC", nargs="?", help="of this one only")
    history.add_argument("--limit", metavar="N", type=int, help="so many, 1 to 100 (default: 20)")
    undo = made("undo", "take back a change of topics, also one that took back another")
    undo.add_argument("entry", metavar="ENTRY", nargs="?", help="its number (default: the newest you made)")
