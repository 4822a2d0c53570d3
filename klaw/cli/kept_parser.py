"""The command line of ``klaw people``."""

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

from klaw.cli.arguments import Words

NewGroup: TypeAlias = Callable[[Any, str, str], Any]
"""Makes a group of commands: of which, its name, its help."""
NewCommand: TypeAlias = Callable[[Any, str, str, str, str], argparse.ArgumentParser]
"""Makes a command: of which group, its name, its help, the module and the function that carry it out."""


def add(commands: Any, new_group: NewGroup, new_command: NewCommand) -> None:
    """Add the group."""
    _people_commands(commands, new_group, new_command)


def _people_commands(commands: Any, new_group: NewGroup, new_command: NewCommand) -> None:
    group = new_group(commands, "people", "list, change, merge and remove the people a user speaks of (docs/topics.md)")

    def command(name: str, text: str, *, of_person: bool = True) -> argparse.ArgumentParser:
        made = new_command(group, name, text, "people", f"{name}_command")
        made.add_argument("--user", metavar="NAME", help="whose people (default: local)")
        if of_person:
            made.add_argument("person", metavar="PERSON", help="the id, a name or an alias")
        return made

    listing = command("list", "list the people, those named most often first", of_person=False)
    listing.add_argument("--limit", metavar="N", type=int, help="so many, 1 to 100 (default: 50)")
    listing.add_argument("--page", metavar="N", type=int, help="go on at this page")
    command("show", "show a person with the topics that name it")
    adding = command("add", "add a person", of_person=False)
    adding.add_argument("name", metavar="NAME", nargs="+", action=Words, help="what you call the person")
    edit = command("edit", "change a person; what is not given stays as it is")
    edit.add_argument("--name", metavar="NAME", help="another name; the former one stays as an alias")
    for made in (adding, edit):
        made.add_argument("--alias", metavar="NAME", action="append", help="one more name; repeatable")
        made.add_argument("--relation", metavar="TEXT", help="who it is to the user, for instance sister")
    edit.add_argument("--no-alias", metavar="NAME", action="append", help="take this alias away; repeatable")
    merge = command("merge", "say that a person is another one, who gets all names")
    merge.add_argument("into", metavar="INTO", help="the other one, whose name stays")
    command("delete", "remove a person; its history stays")
    command("history", "show all that a person was, the oldest first")
    undo = command("undo", "take back the newest change of a person, also its merge, its removal or its making")
    undo.add_argument("--entry", metavar="N", type=int, help="go back to this entry of its history")
