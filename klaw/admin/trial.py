"""``why --query``: what Auto-RAG would make of a message for a question that was asked now."""

from pathlib import Path
from typing import Any

import attrs

from klaw.actor.clock import SystemClock
from klaw.admin.why import Found
from klaw.config.schema import EngineConfig
from klaw.domain.message import Message
from klaw.domain.search import Candidate, Recalled
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.recall import Recall
from klaw.store.engine.database import open_readers


async def try_query(found: Found, recall: Recall, query: str) -> dict[str, Any]:
    """What Auto-RAG would make of the message for a question that was asked now.

    Cancellation: nothing is changed.
    """
    scope, seq = found.scope, found.message.seq
    inside = scope.first_seq <= seq < scope.end_seq
    recalled = await recall.search(query, scope)
    return describe_query(found.message, recalled, inside=inside)


def describe_query(message: Message, recalled: Recalled, *, inside: bool) -> dict[str, Any]:
    """The outcome of a trial as plain JSON values.

    Args:
        message: the one that was asked about.
        recalled: what a recall found.
        inside: whether the message is where it looked.
    """
    places = [place for place, each in enumerate(recalled.candidates, 1) if each.message.rowid == message.rowid]
    candidate = recalled.candidates[places[0] - 1] if places else None
    return {
        "in_scope": inside,
        "content_words": recalled.query_words,
        "degraded": list(recalled.degraded),
        "candidates": len(recalled.candidates),
        "recalled": candidate is not None and candidate.passed,
        "place": places[0] if places else None,
        "candidate": _plain(candidate) if candidate is not None else None,
    }


def _plain(candidate: Candidate) -> dict[str, Any]:
    """A candidate's numbers, without any text."""
    shown = attrs.asdict(candidate, recurse=False, filter=lambda field, _: field.name not in ("message", "text"))
    return {name: value.value if name == "decision" else value for name, value in shown.items()}


async def try_query_offline(found: Found, database: Path, config: EngineConfig, query: str) -> dict[str, Any]:
    """Like ``try_query`` without a server: by full text only, because no model is loaded for it."""
    async with open_readers(database, 1) as readers:
        clock = SystemClock()
        recall = Recall(readers, Embedder(clock, enabled=False), config.auto_rag, clock)
        asked = await try_query(found, recall, query)
    return {**asked, "degraded": ["no_server", *asked["degraded"]]}
