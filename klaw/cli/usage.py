"""``klaw usage``: tokens and cost by day, chat, model, task or source. Asks the server, or reads the database."""

import argparse
from collections.abc import Mapping
from typing import Any

from klaw.cli.admin_call import Refused, ask, fail, line, print_json, table
from klaw.config.paths import Paths
from klaw.domain.text import plural
from klaw.domain.usage import FIELDS, Spent, dollars
from klaw.errors import KlawError

_NO_KEY = {"chat": "(tasks)", "task": "(chats)"}
"""What stands for usage that belongs to no chat, or to no task."""


def usage_command(args: argparse.Namespace) -> int:
    """Prints the sums; 1 when there is neither a server nor a database."""
    paths = Paths.resolve(args.home)
    wanted = {"days": args.days, "by": args.by, "user": args.user}
    try:
        answer = ask(paths, "usage", wanted, lambda: _read(paths, wanted))
    except KlawError as error:
        return fail(error)
    if args.json:
        print_json(answer)
    else:
        print("\n".join(lines(answer)))
    return 0


def _read(paths: Paths, wanted: dict[str, Any]) -> dict[str, Any]:
    """Read the database, which no server has open.

    Raises:
        Refused: a name breaks its rule.
        StorageError: it cannot be read.
    """
    from klaw.actor.clock import SystemClock
    from klaw.admin.requests import BadRequest, Usage, parse_args
    from klaw.admin.usage import check_usage, describe_usage
    from klaw.store.offline import read_offline
    from klaw.store.sql import usage

    try:
        request = parse_args(Usage, {name: value for name, value in wanted.items() if value is not None})
        filters = check_usage(request, SystemClock().now())
    except BadRequest as error:
        raise Refused(error.code, str(error)) from None
    total, groups = read_offline(paths.database, usage.both, filters, request.by or "day")
    return describe_usage(request, filters, total, groups, None)


# -- the text ----------------------------------------------------------------------------------------------------------


def lines(answer: dict[str, Any]) -> list[str]:
    """The sums as text."""
    whose = f" of {answer['user']}" if answer["user"] else ""
    head = f"usage{whose} since {answer['since']} (UTC), {plural(answer['days'], 'day')}"
    if not answer["total"]["calls"]:
        return [f"{head}: nothing", *_budget(answer["budget"])]
    rows = [[answer["by"], "calls", "tokens in", "cached", "tokens out", "cost"]]
    rows += [_row(each["key"] or _NO_KEY.get(answer["by"], "-"), each) for each in answer["groups"]]
    rows.append(_row("total", answer["total"]))
    return [
        line(head),
        *map(line, table(rows, right=frozenset({1, 2, 3, 4}))),
        *_notes(answer),
        *_budget(answer["budget"]),
    ]


def _row(name: str, each: dict[str, Any]) -> list[str]:
    counts = (each["calls"], each["prompt_tokens"], each["cached_tokens"], each["completion_tokens"])
    return [line(name), *(f"{count:,}" for count in counts), cost_of(each)]


def cost_of(each: Mapping[str, Any]) -> str:
    """What some calls cost, for people.

    Args:
        each: with all ``FIELDS``.
    """
    spent = Spent(**{name: each[name] for name in FIELDS})
    if not spent.unpriced_calls:
        return dollars(spent.cost_nano)
    return "price unknown" if spent.unpriced_calls >= spent.calls else f"{dollars(spent.cost_nano)} + unknown"


def _notes(answer: dict[str, Any]) -> list[str]:
    total, notes = answer["total"], []
    if total["unpriced_calls"]:
        calls, tokens = plural(total["unpriced_calls"], "call"), plural(total["unpriced_tokens"], "token")
        notes.append(f"of unknown price: {calls} with {tokens}")
    if total["estimated_calls"]:
        calls = plural(total["estimated_calls"], "call is", "calls are")
        notes.append(f"{calls} estimated: stopped, or not counted by the provider")
    return notes


def _budget(budget: dict[str, Any] | None) -> list[str]:
    return [f"today: {budget_text(budget)}"] if budget is not None and budget["share"] is not None else []


def budget_text(budget: dict[str, Any]) -> str:
    """How the daily limits stand."""
    parts = []
    if budget["limit_nano"] is not None:
        parts.append(f"{dollars(budget['spent_nano'])} of {dollars(budget['limit_nano'])}")
    if budget["limit_tokens"] is not None:
        parts.append(f"{budget['unpriced_tokens']:,} of {budget['limit_tokens']:,} tokens of unknown price")
    refused = f", {budget['refused']:,} requests refused" if budget["refused"] else ""
    return f"{' and '.join(parts)} used{refused}"
