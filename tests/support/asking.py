"""Asking an operation over parts, and what a terminal shows of a search."""

from collections.abc import Mapping
from typing import Any

from klaw.cli.operations import written
from klaw.operations import search
from klaw.operations.perform import OPERATOR, perform, read
from klaw.operations.table import operations


async def ask_operation(name: str, parts: Mapping[str, Any], **args: Any) -> dict[str, Any]:
    """What whoever runs the server is answered."""
    return await perform(read(operations()[name], args), OPERATOR, {"missing": None, **parts})


def search_lines(answer: dict[str, Any], *, more: str | None = None, bold: bool = False) -> list[str]:
    """What ``klaw search`` prints of an answer; ``more``: the command for the next page."""
    shown = search.show(answer if more else {**answer, "next": None}, lambda **_page: more or "")
    return written(shown.lines, bold=bold)
