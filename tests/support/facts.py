"""Facts for tests."""

import itertools
from typing import Any

from klaw.actor.clock import iso
from klaw.domain.fact import Fact, FactId, FactSource, Origin
from klaw.domain.names import UserId
from tests.support.stores import START

_count = itertools.count(1)


def fact(text: str = "Anna is allergic to peanuts.", *, user: str = "local", at: float = START, **changes: Any) -> Fact:
    """A fact; another one at each call."""
    values: dict[str, Any] = {
        "id": FactId(f"fact{next(_count)}"),
        "category": "person",
        "importance": 60,
        "source": FactSource.TOOL,
        "origin": Origin.ASSISTANT,
        "turn": "turn1",
        "created_at": iso(at),
        "updated_at": iso(at),
    }
    return Fact(user=UserId(user), text=text, **{**values, **changes})
