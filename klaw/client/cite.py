"""What the marks ``[n]`` of an answer refer to: a list below it, and the passage itself with ``/open n``."""

from klaw.client.client import Client
from klaw.domain import context_used
from klaw.domain.context_used import ContextUsed, place_of
from klaw.errors import RequestRefused

OPEN = "/open"
"""What is typed before a passage's number; never sent."""


def sources(used: ContextUsed) -> list[str]:
    """The passages that an answer refers to, one a line."""
    return [f"[{each.number}] {place_of(each)}" for each in used.passages if each.cited]


async def passage(client: Client, turn: str, number: str) -> str:
    """A passage as the model was given it.

    Args:
        client: connected.
        turn: that made the answer; empty: there is none.
        number: what was typed.

    Raises:
        RequestRefused: there is no such passage; the text says which there are.
        ConnectionLost, ServerRefused, ServerUnreachable, ClientClosed
    """
    if not turn:
        raise RequestRefused("no_passages", "no answer here refers to a passage")
    used = context_used.read((await client.call("receipt", turn=turn))["receipt"])
    given = {str(each.number): each for each in used.passages} if used is not None else {}
    found = given.get(number.strip("[] "))
    if found is None:
        numbers = f"1 to {len(given)}" if len(given) > 1 else "1"
        raise RequestRefused("no_passage", f"{OPEN} takes the number of a passage: {numbers}")
    return f"[{found.number}] {place_of(found)}\n{found.text}"
