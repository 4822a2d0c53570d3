"""Facts that stand in every context, behind core memory and within its budget. Pure."""

from collections.abc import Sequence
from typing import Any

import attrs

from klaw.domain import tokens
from klaw.domain.core_memory import MAX_TOKENS
from klaw.domain.fact import STANDING_CATEGORY, Fact
from klaw.domain.text import one_line

HEADER = "[facts]"


@attrs.frozen(kw_only=True)
class Standing:
    text: str
    facts: tuple[Fact, ...] = ()
    left_out: int = 0

    def describe(self) -> dict[str, Any]:
        if not self.facts and not self.left_out:
            return {}
        shown = [
            {"id": each.id, "because": _because(each), "importance": each.importance, "tokens": _tokens(_line(each))}
            for each in self.facts
        ]
        return {"facts": {"shown": shown, "left_out": self.left_out}}


def standing(core: str, facts: Sequence[Fact]) -> Standing:
    """Core memory (rendered) with facts that are to stand in every context, the most important first, as many as its
    budget has room for. One that does not fit is left out, and the next is tried."""
    left = MAX_TOKENS - _tokens(core) - _tokens(HEADER)
    shown: list[Fact] = []
    for fact in facts:
        needed = _tokens(_line(fact))
        if needed <= left:
            left -= needed
            shown.append(fact)
    lines = [core, *([HEADER] if shown else []), *map(_line, shown)]
    return Standing(
        text="\n".join(each for each in lines if each), facts=tuple(shown), left_out=len(facts) - len(shown)
    )


def _line(fact: Fact) -> str:
    return f"- {one_line(fact.text)}"


def _tokens(text: str) -> int:
    return tokens.estimate(text) + 1 if text else 0  # and its line end


def _because(fact: Fact) -> str:
    return STANDING_CATEGORY if fact.category == STANDING_CATEGORY else "importance"
