"""Recall of stored turns, done again under other settings, without an LLM: what would have been recalled?"""

from collections.abc import Sequence
from typing import Any

import attrs

from klaw.actor.clock import FixedClock, from_iso
from klaw.config.memory import AutoRagConfig
from klaw.domain.search import NOTHING, Candidate, RecallOutcome
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.recall import Recall
from klaw.store.engine.database import Readers
from klaw.store.search.whereabouts import StoredRecall


@attrs.frozen(kw_only=True)
class TurnReplay:
    """One turn's recall under the settings in force now, and under changed ones."""

    stored: StoredRecall
    before: RecallOutcome
    after: RecallOutcome

    @property
    def kept_then(self) -> list[int]:
        return sorted(self.stored.turn.receipt["recall"]["kept"])

    def kept(self, recalled: RecallOutcome) -> dict[int, Candidate]:
        """What would go into the context, by seq: not what that turn's window shows, or one of its topics in full."""
        receipt = self.stored.turn.receipt
        first = receipt["window"]["first_seq"]
        topics = receipt.get("topics", {}).get("candidates", ())
        shown = {rowid for topic in topics for rowid in topic.get("rowids", ())}
        found = {each.message.seq: each for each in recalled.kept if each.message.rowid not in shown}
        return {seq: each for seq, each in found.items() if first is None or seq < first}

    @property
    def gained(self) -> list[Candidate]:
        before = self.kept(self.before)
        return [each for seq, each in self.kept(self.after).items() if seq not in before]

    @property
    def lost(self) -> list[Candidate]:
        after = self.kept(self.after)
        return [each for seq, each in self.kept(self.before).items() if seq not in after]

    @property
    def tokens(self) -> tuple[int, int]:
        before, after = (sum(each.tokens for each in self.kept(one).values()) for one in (self.before, self.after))
        return before, after

    @property
    def changed(self) -> bool:
        before, after = self.kept(self.before), self.kept(self.after)
        return {seq: each.text for seq, each in before.items()} != {seq: each.text for seq, each in after.items()}


async def replay(
    readers: Readers, embedder: Embedder, stored: StoredRecall, before: AutoRagConfig, after: AutoRagConfig
) -> TurnReplay | None:
    """Recall for a stored turn again, as if it were asked at that time; None for one that had nothing to search."""
    if stored.scope is None:
        return None
    clock = FixedClock(from_iso(stored.turn.started_at))
    found = []
    for config in (before, after):
        if config.enabled:
            found.append(await Recall(readers, embedder, config, clock).search(stored.question, stored.scope))
        else:
            found.append(NOTHING)
    return TurnReplay(stored=stored, before=found[0], after=found[1])


def totals(replayed: Sequence[TurnReplay]) -> dict[str, Any]:
    def side(pick: str) -> dict[str, int]:
        kept = [each.kept(getattr(each, pick)) for each in replayed]
        return {
            "recalled": sum(map(len, kept)),
            "tokens": sum(candidate.tokens for one in kept for candidate in one.values()),
            "turns_with_nothing": sum(not one for one in kept),
            "turns_cut_short": sum(bool(getattr(each, pick).degraded) for each in replayed),
        }

    return {
        "turns": len(replayed),
        "changed": sum(each.changed for each in replayed),
        "unlike_then": sum(sorted(each.kept(each.before)) != each.kept_then for each in replayed),
        "before": side("before"),
        "after": side("after"),
    }
