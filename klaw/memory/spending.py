"""What work in the background spends, kept for good: ``klaw usage`` shows it by source, and the daily limits know of it
also after a restart.

Failed attempts count as far as anything is known of them: an answer that could not be used whole, one that broke off
with an estimate. What a provider never told of is not counted.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.failure import error_class
from klaw.domain.names import ChatId, UserId
from klaw.errors import KlawError
from klaw.llm.client import LlmClient, Meter
from klaw.store.kinds import usage as stored_usage
from klaw.store.writer import Writer

WRITE_S = 5.0
"""Longest wait for the note while everything ends."""

log = structlog.get_logger("klaw.spending")


@attrs.define
class Charge:
    """One piece of work."""

    meter: Meter
    at: str = ""
    """When its spending was noted, ISO-8601 UTC; empty: nothing was spent."""


@attrs.frozen
class Spending:
    """Notes what pieces of work spend.

    Args:
        llm: whose calls they are.
        writer: of the store.
        clock: says when it was.
    """

    llm: LlmClient
    writer: Writer
    clock: Clock

    @asynccontextmanager
    async def of(self, source: str, user: UserId, chat: ChatId | None = None) -> AsyncIterator[Charge]:
        """A piece of work: calls of ``Charge.meter`` are noted in the end, however it ends.

        Args:
            source: what it is for: ``topics``, ``facts``, ``reranker``, ``summary`` …
            user, chat: whose it is; a chat where there is one.

        Cancellation: what was spent until then is noted, for which it waits up to 5 s.
        """
        charge = Charge(self.llm.meter())
        try:
            yield charge
        finally:
            models = charge.meter.record().get("models")
            if models:
                charge.at = iso(self.clock.now())
                with trio.move_on_after(WRITE_S, shield=True) as scope:
                    try:
                        await self.writer.run(stored_usage.note_spent, source, user, chat, models, charge.at)
                    except KlawError as error:  # the daily limit has it; only a restart would forget it
                        log.warning("spending_not_noted", error=error_class(error), name=source)
                if scope.cancelled_caught:  # it may be stored all the same
                    log.warning("spending_not_noted", error="TooSlow", name=source)
