"""``klaw doctor``: checks an installation, running or stopped."""

import argparse
from typing import TYPE_CHECKING, Any

import attrs

from klaw.cli.admin_call import NoServer, Refused, call, line, print_json, table
from klaw.config.paths import Paths

if TYPE_CHECKING:
    from klaw.doctor.checkup import Checkup
    from klaw.doctor.places import Server

SHOWN_CHATS = 20


def doctor_command(args: argparse.Namespace) -> int:
    """Prints what was found; 1 when something is wrong, 0 when all is well or there are warnings only."""
    from klaw import __version__
    from klaw.doctor.checkup import check_up
    from klaw.doctor.finding import Level

    paths = Paths.resolve(args.home)
    done = check_up(paths, _ask(paths), whole=args.full, version=__version__)
    if args.json:
        print_json(as_json(done))
    else:
        print("\n".join(lines(done)))
    return 1 if done.count(Level.PROBLEM) else 0


def _ask(paths: Paths) -> "Server":
    from klaw.doctor.places import Server

    try:
        return Server(status=call(paths, "status"), health=call(paths, "health"))
    except (NoServer, Refused) as error:
        return Server(error=str(error))


def as_json(done: "Checkup") -> dict[str, Any]:
    """The outcome as plain JSON values."""
    from klaw.doctor.finding import Level

    return {
        "ok": not done.count(Level.PROBLEM),
        "problems": done.count(Level.PROBLEM),
        "warnings": done.count(Level.WARNING),
        "findings": [attrs.asdict(finding) for finding in done.findings],
        "chats": done.chats,
    }


def lines(done: "Checkup") -> list[str]:
    """The outcome as text: a line for each check, below it what to do, then the chats and the sum."""
    from klaw.doctor.finding import Level

    rows = []
    for finding in done.findings:
        rows.append([finding.level.value, finding.name, line(finding.text)])
        rows += [["", "", "-> " + line(finding.todo)]] if finding.todo else []
    out = table(rows)
    if done.chats:
        out += ["", *_chats(done)]
    problems, warnings = done.count(Level.PROBLEM), done.count(Level.WARNING)
    return [*out, "", f"{problems} problems, {warnings} warnings" if problems or warnings else "All is well."]


def _chats(done: "Checkup") -> list[str]:
    columns = ["messages", "not_searchable", "in_text", "with_vector", "wordless", "uncovered"]
    rows = [["chat", *(column.replace("_", " ") for column in columns)]]
    rows += [
        [line(chat), *(str(counts[column]) for column in columns)]
        for chat, counts in list(done.chats.items())[:SHOWN_CHATS]
    ]
    more = len(done.chats) - SHOWN_CHATS
    return table(rows, right=frozenset(range(1, 7))) + ([f"and {more} more chats; --json has all"] if more > 0 else [])
