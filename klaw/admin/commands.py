"""The commands of the admin socket: each reads the running parts and answers with plain JSON values.

No answer holds message content: receipts name messages by seq and id. ``why`` names a few words of one message,
``search`` shows pieces of those it finds, tasks and runs are shown with what they ask for and what came of it, facts
with what they say.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from klaw.actor.supervisor import Supervisor
from klaw.admin import recalled, trial, why
from klaw.admin.answers import check_chat, check_receipt, turn_json, turn_summary
from klaw.admin.requests import (
    BadRequest,
    Chat,
    Receipt,
    Reindex,
    Request,
    Why,
)
from klaw.admin.short_ids import lengthened
from klaw.agent.workspace import Workspace
from klaw.chats.service import Chats
from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.context.pinned_facts import standing
from klaw.memory.coverage import Coverage
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.recall import Recall
from klaw.operations.perform import OPERATOR, Call, perform
from klaw.store import message_location, overview
from klaw.store.engine.database import Readers
from klaw.store.kinds import facts, messages, turns
from klaw.store.rebuild.actor import Reindexer
from klaw.store.rebuild.values import Options


@attrs.frozen(kw_only=True)
class Sources:
    """The running parts that the commands read."""

    parts: Mapping[str, Any]
    """By the names that handlers of operations use."""
    supervisor: Supervisor
    readers: Readers
    reindexer: Reindexer
    chats: Chats
    embedder: Embedder
    recall: Recall
    coverage: Coverage
    config: EngineConfig
    paths: Paths


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
        return await self._run(request)

    async def _run(self, request: Request) -> dict[str, Any]:
        request = await lengthened(self._sources.readers, request)
        match request:
            case Chat():
                return await self._chat(request)
            case Receipt():
                return await self._receipt(request)
            case Why():
                return await self._why(request)
            case Reindex():
                return await self._reindex(request)

    # -- commands --------------------------------------------------------------------------------------------------

    async def _chat(self, request: Chat) -> dict[str, Any]:
        sources, chat = self._sources, check_chat(request.chat)
        session = await sources.readers.run(messages.session, chat)
        if session is None:
            raise BadRequest("unknown_chat", "args.chat: there is no such chat")
        last = await sources.readers.run(turns.last, chat)
        reports = (report for report in sources.supervisor.report() if report.name == f"chat {chat}")
        actor = next(reports, None)
        return {
            "session": attrs.asdict(session),
            "now": sources.chats.chat_status(chat),
            "pending": await sources.readers.run(overview.count_pending, chat),
            "actor": attrs.asdict(actor) if actor else None,
            "coverage": sources.coverage.chat(chat),
            "last_turn": turn_summary(last) if last else None,
        }

    async def _receipt(self, request: Receipt) -> dict[str, Any]:
        readers = self._sources.readers
        turn = await readers.run(overview.find_turn, *check_receipt(request))
        answer = turn_json(turn)
        if turn is None or request.why is None:
            return answer
        message = why.choose(await readers.run(message_location.find, recalled.check_message(request.why, turn)))
        told = recalled.explain_message(turn, message)
        if recalled.needs_search(told):
            stored = await readers.run(overview.stored_recall, turn)
            embedder, settings = self._sources.embedder, self._sources.config.auto_rag
            told = recalled.with_search(told, await recalled.search_again(readers, embedder, settings, stored, message))
        return {**answer, "why": told}

    async def _why(self, request: Why) -> dict[str, Any]:
        sources, target = self._sources, why.check_why(request)
        message = why.choose(await sources.readers.run(message_location.find, target))
        fixed = await Workspace(sources.paths.workspace, sources.paths.data_dir).fetch(message.user)
        kept = await sources.readers.run(facts.standing, message.user)
        fixed = attrs.evolve(fixed, core_memory=standing(fixed.core_memory, kept).text)
        about = await sources.readers.run(
            message_location.locate,
            message,
            why.words_of(message),
            turns=why.TURNS,
            window_rows=sources.config.window_rows,
            summarised=sources.config.summaries.enabled,
        )
        found = why.combine(message, about, sources.config, fixed)
        asked = await trial.try_query(found, sources.recall, request.query) if request.query is not None else None
        return why.describe(found, sources.config, asked)

    async def _reindex(self, request: Reindex) -> dict[str, Any]:
        reindexer = self._sources.reindexer
        if request.action == "start":
            options = Options(accept_differences=request.accept_differences, embed_again=request.embed_again)
            await reindexer.start(options)
        elif request.action == "cancel":
            await reindexer.cancel()
        return attrs.asdict(reindexer.status)
