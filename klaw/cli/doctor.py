"""``klaw doctor``: checks an installation, running or stopped."""

from typing import TYPE_CHECKING, Any

import attrs

from klaw.cli.admin_call import NoServer, RefusedByServer, call
from klaw.cli.operations import Here, command
from klaw.config.paths import Paths
from klaw.domain.text import plural
from klaw.operations.lines import Line, ShownLines, Table
from klaw.operations.operation import Noun, argument

if TYPE_CHECKING:
    from klaw.doctor.places import Server

NOUN = Noun("doctor", "check an installation, running or stopped (docs/operations.md)", local=True)
SHOWN_CHATS = 20
_COLUMNS = ("messages", "not_searchable", "in_text", "with_vector", "wordless", "uncovered")


@attrs.frozen(kw_only=True)
class Doctor:
    full: bool = argument("read every log line, index, file of a message and model file; slower", default=False)


def _shown(answer: dict[str, Any]) -> ShownLines:
    """A line for each check, below it what to do, then the chats and the sum."""
    rows = []
    for finding in answer["findings"]:
        rows.append([finding["level"], finding["name"], finding["text"]])
        rows += [["", "", f"-> {finding['todo']}"]] if finding["todo"] else []
    lines: list[Line] = [Table(rows), ""]
    if chats := answer["chats"]:
        head = ["chat", *(column.replace("_", " ") for column in _COLUMNS)]
        shown = [[chat, *(str(counts[column]) for column in _COLUMNS)] for chat, counts in chats.items()]
        lines.append(Table([head, *shown[:SHOWN_CHATS]], right=frozenset(range(1, 7))))
        more = len(chats) - SHOWN_CHATS
        lines += [f"and {plural(more, 'more chat')}; --json has all", ""] if more > 0 else [""]
    problems, warnings = answer["problems"], answer["warnings"]
    total = f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}"
    return ShownLines([*lines, total if problems or warnings else "All is well."], found=answer["ok"])


@command(NOUN, "doctor", Doctor, cli="", show=_shown)
def doctor(asked: Doctor, here: Here) -> dict[str, Any]:
    """Check the installation and say what to do. It changes nothing. The exit code is 1 if there is a problem."""
    from klaw import __version__
    from klaw.doctor.checkup import check_up

    return check_up(here.paths, _server(here.paths), whole=asked.full, version=__version__).told()


def _server(paths: Paths) -> "Server":
    from klaw.doctor.places import Server

    try:
        return Server(status=call(paths, "status"), health=call(paths, "health"))
    except (NoServer, RefusedByServer) as error:
        return Server(error=str(error))
