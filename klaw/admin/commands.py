"""The commands of the admin socket: each reads the running parts and answers with plain JSON values.

No answer holds message content: receipts name messages by seq and id. ``why`` names a few words of one message,
``search`` shows pieces of those it finds, tasks and runs are shown with what they ask for and what came of it, facts
with what they say.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from klaw.admin.requests import Reindex, Request
from klaw.operations.perform import OPERATOR, Call, perform
from klaw.store.rebuild.actor import Reindexer
from klaw.store.rebuild.values import Options


@attrs.frozen(kw_only=True)
class Sources:
    """The running parts that the commands read."""

    parts: Mapping[str, Any]
    """By the names that handlers of operations use."""
    reindexer: Reindexer


class Commands:
    """Carries out requests. Stateless, so any number may run at once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def run(self, request: Request | Call) -> dict[str, Any]:
        """Carry out a request. The caller bounds it by the request's ``deadline_s``.

        Raises:
            BadRequest: it names something that does not exist.
            KlawError, trio.TooSlowError: a part did not answer.

        Cancellation: commands only read, but for ``log``, which is done at once, ``reindex``, whose work is the
        reindexer's and goes on, and changes of tasks, runs and facts, which may or may not be made.
        """
        if isinstance(request, Call):
            return await perform(request, OPERATOR, self._sources.parts)
        return await self._reindex(request)

    async def _reindex(self, request: Reindex) -> dict[str, Any]:
        reindexer = self._sources.reindexer
        if request.action == "start":
            options = Options(accept_differences=request.accept_differences, embed_again=request.embed_again)
            await reindexer.start(options)
        elif request.action == "cancel":
            await reindexer.cancel()
        return attrs.asdict(reindexer.status)
