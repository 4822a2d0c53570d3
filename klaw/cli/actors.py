"""``klaw actors``: the tree of actors with their counters, once or again every two seconds."""

import argparse
import datetime as dt
import sys
import time
from typing import Any

from klaw.cli.admin_call import NoServer, Refused, call, fail, line, print_json, span, table
from klaw.config.paths import Paths

REFRESH_S = 2.0
_HEAD = [
    "actor",
    "state",
    "since",
    "depth",
    "high",
    "capacity",
    "handled",
    "failed",
    "dropped",
    "restarts",
    "last error",
    "activity",
]
_NUMBERS = frozenset(range(2, 10))
_HOME_AND_CLEAR_BELOW = "\x1b[H\x1b[J"


def actors_command(args: argparse.Namespace) -> int:
    """Prints the tree; 1 when no server runs. With ``--watch`` until Ctrl-C or until the server is gone."""
    paths = Paths.resolve(args.home)
    try:
        while True:
            answer = call(paths, "actors")
            if args.json:
                print_json(answer)
            else:
                clear = _HOME_AND_CLEAR_BELOW if args.watch and sys.stdout.isatty() else ""
                print(clear + "\n".join(lines(answer)))
            if not args.watch:
                return 0
            sys.stdout.flush()
            time.sleep(REFRESH_S)
    except (NoServer, Refused) as error:
        return fail(error)
    except KeyboardInterrupt:
        return 0


def lines(answer: dict[str, Any]) -> list[str]:
    """The tree as text."""
    rows = [_HEAD]
    _add(rows, answer["tree"], answer["now"], "", "")
    return table(rows, right=_NUMBERS)


def _add(rows: list[list[str]], node: dict[str, Any], now: float, lead: str, below: str) -> None:
    rows.append([line(lead + node["name"]), *_cells(node, now)])
    children = node["children"]
    for place, child in enumerate(children, 1):
        last = place == len(children)
        _add(rows, child, now, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def _cells(node: dict[str, Any], now: float) -> list[str]:
    match node["kind"]:
        case "actor":
            return _actor_cells(node, now)
        case "slots":
            queue = [str(node["waiting"]), str(node["high_water"]), "", str(node["granted"])]
            return ["", "", *queue, "", "", "", "", f"{node['busy']} of {node['total']} busy"]
        case "connection":
            return ["open", _since(node.get("since"), now), *[""] * 7, "", _connection(node)]
        case _:
            return [""] * (len(_HEAD) - 1)


def _actor_cells(node: dict[str, Any], now: float) -> list[str]:
    box = node["mailbox"]
    columns = ("depth", "high_water", "capacity", "handled", "failed", "dropped")
    return [
        node["state"],
        _since(node["since"], now),
        *[str(box[column]) if box else "" for column in columns],
        str(node["restarts"]),
        line(node["last_error"] or ""),
        line(f"{node['activity']} ({_since(node['activity_since'], now)})"),
    ]


def _connection(node: dict[str, Any]) -> str:
    shown = {name: value for name, value in node.items() if name not in ("name", "kind", "children", "id", "since")}
    return line(", ".join(f"{name} {value}" for name, value in shown.items() if value not in (None, "")))


def _since(moment: float | str | None, now: float) -> str:
    """How long ago it was: Unix seconds or ISO text."""
    if moment is None:
        return ""
    seconds = dt.datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment
    return span(now - seconds)
