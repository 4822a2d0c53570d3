"""Making one summary of one chat: read what is uncovered, choose, ask the model, store. State is in the store only.

Each has a Markdown copy for people: ``summaries/<chat>/<number>.md`` in the data folder. A missing copy is made again
at start; one that was made by hand, or changed, is left alone."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import attrs
import structlog

from klaw.actor.clock import Clock, iso
from klaw.actor.failure import error_class
from klaw.actor.supervisor import Vitals
from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.config.schema import EngineConfig
from klaw.context.inputs import Budget
from klaw.domain import tokens
from klaw.domain.message import Message
from klaw.domain.names import ChatId
from klaw.domain.summary import NewSummary, Summary, SummaryState, ToolNote
from klaw.errors import (
    ActorStopped,
    ConfigError,
    KlawError,
    NoSummary,
    SourceForgotten,
    StorageError,
    StorageFull,
    SummaryOutdated,
)
from klaw.llm.ask_json import ask_json
from klaw.llm.client import TokenCorrection
from klaw.llm.errors import ContextTooLong, ProviderError
from klaw.llm.types import ChatMessage, JsonSchema, Route
from klaw.memory.background_llm import Asker
from klaw.memory.summaries import asking
from klaw.memory.summaries.asking import SummaryModel
from klaw.memory.summaries.choosing import Rules, SummaryChunk, choose, evicted, joined, weight, words_for
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import chats, messages, summaries
from klaw.store.kinds.summaries import UnsummarisedPart, copy_path


def path_of(data_dir: Path, summary: Summary) -> Path:
    return data_dir / copy_path(summary.chat, summary.number)


def _copy_of(summary: Summary) -> bytes:
    return (
        f"# Summary {summary.number} of {' '.join(summary.chat.split())}\n\n"
        f"Messages {summary.first_seq} to {summary.last_seq} of segment {summary.segment + 1},"
        f" written {summary.created_at} by {summary.model}.\n\n{summary.text}\n"
    ).encode()


def settle(data_dir: Path, summaries: Iterable[Summary]) -> None:
    """Write the copies that are missing and remove those of superseded summaries; what fails is logged. Blocks."""
    for summary in summaries:
        path = path_of(data_dir, summary)
        try:
            if summary.state is SummaryState.SUPERSEDED:
                with suppress(FileNotFoundError):
                    path.unlink()
            elif not path.exists():
                safe_open.replace(data_dir, copy_path(summary.chat, summary.number), _copy_of(summary))
        except OSError as error:
            log.warning("summary_copy_failed", error=error_class(error))


MAX_ROWS = 1_000
"""Messages of a segment that are looked at; older ones without a summary are found by search."""
MAX_ROOM, LEAST_ROOM = 8_000, 128
"""Estimated tokens of messages in one prompt: a summary of more would say little of each."""
PROMPT_TOKENS = 500

log = structlog.get_logger("klaw.summarizer")


Made: TypeAlias = Literal["made", "nothing", "forgotten"]
"""Stored; nothing to summarise, or the segment ended meanwhile; what it was made of was forgotten: make it again."""


@attrs.frozen
class SummaryFailed:
    """No summary was made. ``until``: do not try before this moment (Unix seconds); None: after the usual pause."""

    code: str
    until: float | None = None


@attrs.frozen(kw_only=True)
class SummaryMaker:
    """Makes summaries, one at a time. ``files``: for their copies below ``data_dir``."""

    config: EngineConfig
    writer: Writer
    readers: Readers
    asker: Asker
    correction: TokenCorrection
    files: Threads
    data_dir: Path
    clock: Clock

    @property
    def rules(self) -> Rules:
        return Rules(config=self.config.summaries, sliding_window=self.config.context.sliding_window)

    async def make(self, chat: ChatId, failures: int, vitals: Vitals) -> Made | SummaryFailed:
        """Make the next summary of a chat, if one is due. Each of the ``failures`` in a row until now halves what one
        prompt holds. Raises ActorStopped; StorageError: the store cannot be read."""
        found = await self.readers.run(summaries.uncovered, chat, MAX_ROWS)
        if found is None:
            return "nothing"
        try:
            route = self.asker.llm.router.route(task="summarization")
            bound = await self.readers.run(chats.bound, found.session.user, chat) is not None
            chunk = self._choose(found, route, failures, bound=bound)
            if chunk is None:
                return "nothing"
            limited = await self._limited(found, chunk)
            return limited or await self._make(found, chunk, route, vitals)
        except ActorStopped:
            raise
        except (ProviderError, NoSummary, ConfigError, StorageFull) as error:
            return self._failed(error)
        except SourceForgotten:
            log.info("summary_dropped", reason="something was forgotten")
            return "forgotten"
        except SummaryOutdated:
            session = await self.readers.run(messages.session, chat)
            if session is None or session.segment != found.session.segment:
                log.info("summary_dropped", reason="the segment is over")
                return "nothing"
            return SummaryFailed("outdated")
        except StorageError as error:
            log.error("summary_not_stored", error=error_class(error))
            return SummaryFailed("storage")

    def _choose(self, found: UnsummarisedPart, route: Route, failures: int, *, bound: bool) -> SummaryChunk | None:
        if not self.config.summarises:
            return None
        rules = self.rules
        if bound:  # the window of a chat that is answered from knowledge bases is shorter
            most = max(1, min(rules.sliding_window, 2 * self.config.kb.pairs))
            rules = attrs.evolve(rules, sliding_window=most)
        return choose(
            found.history,
            found.live,
            usable=self._usable(found.session.model),
            room=self._room(route, rules, failures),
            rules=rules,
            cut=len(found.history) >= MAX_ROWS,
            follows=bool(found.live) and found.live[-1].last_seq == found.covered_to,
        )

    def _usable(self, model: str | None) -> int:
        config = self.config
        name = model or config.routing.default
        return Budget(
            context_tokens=self.asker.llm.registry.context_tokens(name),
            reply_reserve_tokens=config.context.reply_reserve_tokens,
            correction=self.correction.of(name),
        ).usable

    def _room(self, route: Route, rules: Rules, failures: int) -> int:
        """Estimated tokens of messages that a prompt holds; less after failures, which the length may have caused."""
        answer = rules.part_tokens * asking.ANSWER_FACTOR
        budget = Budget(
            context_tokens=route.context_tokens, reply_reserve_tokens=answer, correction=self.correction.of(route.name)
        )
        room = budget.usable - PROMPT_TOKENS - rules.config.max_tokens * 2
        return max(LEAST_ROOM, min(room, MAX_ROOM) >> min(failures, 4))

    async def _limited(self, found: UnsummarisedPart, chunk: SummaryChunk) -> SummaryFailed | None:
        limit, user = self.config.summaries.daily_tokens, found.session.user
        if not limit:
            return None
        now = self.clock.now()
        day = iso(now)[:10]
        used = await self.readers.run(summaries.tokens_since, user, day)
        needed = min(weight(chunk.messages), MAX_ROOM) + PROMPT_TOKENS + self.rules.part_tokens
        return SummaryFailed("limit_tokens", until=next_day(now)) if used + needed > limit else None

    async def _make(self, found: UnsummarisedPart, chunk: SummaryChunk, route: Route, vitals: Vitals) -> Made:
        rules = self.rules
        async with self.asker.charged("summary", found.session.user, found.session.chat) as asker:
            model = SummaryModel(asker=asker, route=route, correction=self.correction, vitals=vitals)
            text = await self._text(found, chunk, model, rules)
            notes = await self._notes(chunk.messages, model)
        assert asker.charge is not None
        spent = asker.charge.meter.spent
        made = NewSummary(
            user=found.session.user,
            chat=found.session.chat,
            segment=found.session.segment,
            first_seq=chunk.first_seq,
            last_seq=chunk.last_seq,
            text=text,
            tokens=tokens.estimate(text),
            model=model.model,
            # The same: so the store knows that it is charged.
            created_at=asker.charge.at or iso(self.clock.now()),
            prompt_tokens=spent.prompt_tokens,
            completion_tokens=spent.completion_tokens,
        )
        vitals.doing("storing a summary")
        stored = await self.writer.run(
            summaries.put,
            made,
            supersedes=() if chunk.base is None else (chunk.base.number,),
            evicts=evicted(found.live, chunk.base, made.tokens, rules),
            notes=notes,
            as_of=found.as_of,
        )
        past = [] if chunk.base is None else [attrs.evolve(chunk.base, state=SummaryState.SUPERSEDED)]
        await self.files.run(settle, self.data_dir, [stored, *past])
        log.info("summary_made", count=len(chunk.messages), tokens=stored.tokens)
        return "made"

    async def _text(self, found: UnsummarisedPart, chunk: SummaryChunk, model: SummaryModel, rules: Rules) -> str:
        shown = asking.transcript(chunk.messages)
        beside = [summary for summary in found.live if chunk.base is None or summary.number != chunk.base.number]
        room = self._room(model.route, rules, 0)
        try:
            return await model.summarise(
                asking.split(shown, room),
                base=chunk.base.text if chunk.base else "",
                earlier=joined(beside),
                max_tokens=rules.part_tokens,
                words=words_for(rules.part_tokens, shown),
            )
        except ContextTooLong:
            # The next attempt's prompt is shorter, and so are those of turns with this model.
            planned = int(model.route.context_tokens / self.correction.of(model.route.name))
            refused = min(tokens.estimate(shown), room) + PROMPT_TOKENS
            self.correction.overflowed(model.route.name, refused=refused, usable=planned)
            raise

    async def _notes(self, chosen: tuple[Message, ...], model: SummaryModel) -> tuple[ToolNote, ...]:
        """Notes on the tool calls, if they are wanted. Without them there is still a summary."""
        wanted = asking.calls(chosen) if self.config.summaries.tool_calls else []
        if not wanted:
            return ()

        async def say(messages: tuple[ChatMessage, ...], schema: JsonSchema) -> str:
            return (await model.ask(messages, asking.NOTE_TOKENS * len(wanted), schema)).text

        try:
            prompt, read = asking.notes_prompt(wanted), partial(asking.notes_of, wanted=wanted)
            noted = await ask_json(say, prompt, "tool_notes", asking.Notes, read)
        except ProviderError as error:
            log.warning("tool_notes_failed", error=error_class(error), count=len(wanted))
            return ()
        return noted or ()

    def _failed(self, error: KlawError) -> SummaryFailed:
        code = "storage_full" if isinstance(error, StorageFull) else error.code or "config"
        log.warning("summary_failed", code=code, error=error_class(error))
        return SummaryFailed(code)


def next_day(now: float) -> float:
    """The next midnight UTC, when daily limits are renewed. Unix seconds."""
    return (now // 86_400 + 1) * 86_400
