"""Forgetting with proof: a message, a topic, a fact, a task or a person goes from the logs, the database, its indexes
and what was made of it, and a search for its bytes shows what still holds it. One forgetting at a time.

Actor ``memory.compactor``: at its start it finishes the large forgettings that a kill interrupted; then it rids the
database's files of what users forgot. SQLite overwrites what is deleted, but the write-ahead log still has it, and now
and then a page keeps a copy. So soon after a forgetting the log is emptied into the database, and seldom the file is
rebuilt, during which nobody can write: no user can keep the others waiting by forgetting. ``klaw forget`` does both at
once, for its report. It also forgets temporary chats when their time is over, or was, and commands after a day.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, from_iso, iso
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.backup.folder import listed
from klaw.domain.forget import Thing
from klaw.domain.message import TEMPORARY_S, Message
from klaw.domain.names import ChatId, UserId, name_of
from klaw.errors import StorageError
from klaw.memory.forget import take_out
from klaw.store.engine import connect
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.forget import execute, finding, logs, proof, quotes, reach
from klaw.store.forget.effects import FileMade
from klaw.store.forget.execute import ForgetResult, Forgetting, merged
from klaw.store.forget.finding import NothingToForget
from klaw.store.forget.proof import HoldingFile
from klaw.store.forget.quotes import PersonTraces, QuotesFound
from klaw.store.forget.reach import ForgetTarget, Reach
from klaw.store.kinds import chats, forgotten, messages, runs

ACTOR_NAME = "memory.compactor"
MOST_LISTED = 100
"""Messages that stay and name a forgotten person, as they are listed."""
EMPTY_EVERY_S = 60.0
"""The write-ahead log is emptied at most once in so long."""
ANEW_EVERY_S = 6 * 3_600.0
"""The file is rebuilt at most once in so long."""
SETTLE_S = 5.0
"""What is forgotten within so long is compacted together."""
MOST_SHOWN = 1_000
"""Chats whose question is remembered; the oldest gives way."""
READINGS = 5
"""How often what goes is read until nothing has changed since."""
LOOK_EVERY_S = 3_600.0
"""So often somebody looks at least for temporary chats whose time is over."""
NOTED_AT_ONCE = 50
"""Entries that one transaction notes as finished."""

log = structlog.get_logger("klaw.forget")


@attrs.frozen(kw_only=True)
class Preview:
    """What a forgetting would do, or did."""

    reach: Reach
    things: tuple[Thing, ...] = ()
    """What goes and what stays, in words."""
    files: tuple[FileMade, ...] = ()
    """Files of the workspace that tools wrote, also those that no longer exist."""
    again: tuple[Message, ...] = ()
    """The first of the messages that say it too and stay."""
    held: tuple[HoldingFile, ...] = ()
    """Files that hold it; for the operator, who alone may know what a file that all users share holds."""
    aside: tuple[HoldingFile, ...] = ()
    """Databases and other files of before; for the operator."""
    naming: tuple[Message, ...] = ()
    """The first of the messages that name a forgotten person and stay."""

    @property
    def named(self) -> PersonTraces | None:
        return self.reach.wanted.named


@attrs.frozen(kw_only=True)
class CleanedLogs:
    """What is left of something that was taken out of the database."""

    lines: int
    """Lines of logs that were rewritten."""
    vacuumed: bool = False
    """The database file was rebuilt, because its free space still held the text."""
    held: tuple[HoldingFile, ...] = ()
    aside: tuple[HoldingFile, ...] = ()


@attrs.frozen(kw_only=True)
class Proof(CleanedLogs):
    before: Preview
    entry: int
    after: QuotesFound
    still_named: Mapping[str, int] = attrs.field(factory=dict)
    """How many rows of each kind still name a forgotten person."""


@attrs.frozen
class ShownPreview:
    """What a chat was shown, and can confirm."""

    wanted: ForgetTarget
    with_facts: bool
    until: float
    """Unix seconds."""


@attrs.define(eq=False)
class Forgetter:
    """Looks and forgets.

    Args:
        data_dir, workspace: folders that are searched.
        files: threads for searching.
        reindexing: whether a reindex is reading the logs.
        changed: called after messages changed: their vectors, topics and summaries are to be made again.
        stop_run: ends a run that is under way, and returns when it is over.
        backups: the folder with those that are made without naming another one.
    """

    writer: Writer
    readers: Readers
    data_dir: Path
    workspace: Path
    clock: Clock
    files: Threads
    reindexing: Callable[[], bool]
    changed: Callable[[], None]
    stop_run: Callable[[UserId, str], Awaitable[None]]
    backups: Path
    compactor: Nudge = attrs.field(factory=Nudge, init=False)
    """Says to the actor that something was forgotten."""
    _alone: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _empty_at: float = attrs.field(default=float("-inf"), init=False)
    _commands_at: float = attrs.field(default=float("-inf"), init=False)
    _shown: dict[ChatId, ShownPreview] = attrs.field(factory=dict, init=False)

    async def find(self, text: str, user: UserId, *, with_messages: bool = False) -> ForgetTarget:
        """See ``finding.find``."""
        return await self.readers.run(finding.find, text, user, with_messages=with_messages)

    async def again(self, shown: ForgetTarget) -> ForgetTarget:
        """What was shown, as it is now: with a chat goes what was said in it meanwhile. Raises NoSuchChat."""
        return await self.find(f"chat:{name_of(shown.deleted[0][0])}", shown.user) if shown.deleted else shown

    def note_shown(self, chat: ChatId, wanted: ForgetTarget, *, with_facts: bool, until: float) -> None:
        """Remember what a chat was shown; a restart forgets it, and then it has to be asked again."""
        while len(self._shown) >= MOST_SHOWN:
            del self._shown[next(iter(self._shown))]
        self._shown[chat] = ShownPreview(wanted, with_facts, until)

    def take_shown(self, chat: ChatId, now: float) -> ShownPreview | None:
        """What a chat was shown last: once, and not after its time."""
        shown = self._shown.pop(chat, None)
        return shown if shown is not None and shown.until >= now else None

    # -- looking and doing -----------------------------------------------------------------------------------------

    async def preview(self, wanted: ForgetTarget, *, with_facts: bool = False, everywhere: bool = False) -> Preview:
        """What would go. Changes nothing. For ``with_facts`` see ``Reach``; ``everywhere`` is for the operator: also
        which files hold it, by their bytes, whosever they are."""
        found = await self.readers.run(reach.plan, wanted, with_facts=with_facts)
        own = frozenset(found.rowids)
        named = wanted.named.messages if wanted.named is not None else ()
        staying = [rowid for rowid in named if rowid not in own][:MOST_LISTED]
        gone = await self.readers.run(runs.by_ids, wanted.user, found.runs)
        of_runs = await self.files.run(finding.of_runs, self.data_dir, gone)
        files = tuple({each.path: each for each in (*found.effects.files, *of_runs)}.values())
        look = partial(finding.things, with_facts=with_facts)
        things = await self.files.run(look, self.workspace, wanted.user, files)
        return Preview(
            reach=found,
            things=(*await self.readers.run(proof.things_of, found), *things),
            files=files,
            again=tuple(await self.readers.run(messages.by_rowids, found.quotes.again[:MOST_LISTED])),
            held=await self._search(wanted.user, found.quotes.finder.pieces) if everywhere else (),
            aside=await self.files.run(self._aside) if everywhere else (),
            naming=tuple(await self.readers.run(messages.by_rowids, staying)),
        )

    async def forget(self, wanted: ForgetTarget, *, with_facts: bool = False, everywhere: bool = False) -> Proof:
        """Forget it, and look for what still says it. Without ``everywhere`` only the user's own rows and logs are
        read, and the database's files are compacted later, for all users together. Arguments are as for ``preview``.

        Raises:
            NothingToForget: a reindex is running, so nothing was changed.
            StorageError: it is not there any more, so nothing was changed; or the logs could not be cleaned, which the
                next start does.

        Cancellation: nothing is done, or what was taken out of the database so far is, and the next start does the
        rest: of many messages also the database.
        """
        async with self._alone:
            if self.reindexing():
                raise NothingToForget("a reindex is running: wait for its end, or stop it; nothing was changed")
            before = await self.preview(wanted, with_facts=with_facts, everywhere=everywhere)
            for run in before.reach.runs:  # what it would still say is made of it
                await self.stop_run(wanted.user, run)
            # First: when a kill comes behind it, the message is there without its files, and never the other way round.
            await self._remove_files(before)
            found, done = await self._take_out(iso(self.clock.now()), before.reach)
            cleaned = await self._finish([done], done.finder.pieces, everywhere=everywhere)
            after = partial(quotes.look, own=done.entry.messages, asked=done.entry.asked)
            names = wanted.named.names if wanted.named is not None else ()
            return Proof(
                **attrs.asdict(cleaned, recurse=False),
                before=attrs.evolve(before, reach=found),  # with what changed since it was made
                entry=done.entry.entry,
                after=await self.readers.run(after, wanted.user, found.texts),
                still_named=(await self.readers.run(quotes.look_for_names, wanted.user, names)).counts if names else {},
            )

    async def _take_out(self, at: str, found: Reach) -> tuple[Reach, ForgetResult]:
        """Take it out of the database, of many messages a part at a time, so that nobody has to wait for long. After a
        kill in between, the next start goes on."""
        wanted = found.wanted
        for _ in range(READINGS):  # reading again in the writer would keep everybody else waiting
            if await self.readers.run(reach.is_current, found):
                break
            found = await self.readers.run(reach.plan, wanted, with_facts=found.with_facts)
        most = 1 if len(wanted.rowids) >= take_out.MANY else take_out.AT_ONCE
        found, done = await self.writer.run(execute.forget, found, at, most=most)
        log.info("forget_began", count=_size(done) + len(found.asked[most:]))
        rest = await take_out.rest(self.writer, self.readers, wanted.user, found.asked[most:], at)
        return found, attrs.evolve(done, entries=(*done.entries, *rest))

    async def _finish(self, done: Sequence[ForgetResult], pieces: Sequence[str], *, everywhere: bool) -> CleanedLogs:
        """Clean the logs and the files of what was taken out, of each user, and look for pieces of text that are still
        there. Raises StorageError: the logs could not be cleaned; the next start does it."""
        clean = partial(take_out.clean_logs, self.writer, self.readers, self.files, self.data_dir)
        lines = sum([await clean(each) for each in done])
        held, vacuumed = await self._compact(done[0].entry.user, pieces) if everywhere else ((), False)
        for each in done:
            numbers = [one.entry for one in each.entries]
            for first in range(0, len(numbers), NOTED_AT_ONCE):
                noted = numbers[first : first + NOTED_AT_ONCE]
                await self.writer.run(execute.note_forgotten, each.entry.user, noted, each.entry.time)
        self.changed()
        if not everywhere:
            await self._empty_now_and_then()
            self.compactor.nudge()
        log.info("forgotten", count=sum(map(_size, done)), files=len(held))
        return CleanedLogs(lines=lines, vacuumed=vacuumed, held=held)

    async def resume(self) -> None:
        """Finish the large forgettings that a kill interrupted; small ones the start has finished. Raises StorageError:
        the logs could not be cleaned; the next start tries again."""
        async with self._alone:
            for begun in await self.readers.run(logs.interrupted, large=True):
                first = begun[0]
                log.info("forget_resumed", count=len(first.asked))
                left = await self.readers.run(forgotten.left, first.user, first.asked)
                rest = await take_out.rest(self.writer, self.readers, first.user, left, first.time)
                entry = merged([*begun, *rest])
                found = await self.readers.run(logs.look_again, entry)
                await self.writer.run(execute.redact_again, entry, found)
                done = ForgetResult(entries=(*begun, *rest), finder=found.finder)
                await self._finish([done], found.finder.pieces, everywhere=False)

    async def clean_after(
        self, done: Sequence[ForgetResult], pieces: Sequence[str], *, everywhere: bool
    ) -> CleanedLogs:
        """Clean the logs of what somebody took out of the database, such as a knowledge base; like ``_finish``."""
        async with self._alone:
            cleaned = await self._finish(done, pieces, everywhere=everywhere)
            return attrs.evolve(cleaned, aside=await self.files.run(self._aside) if everywhere else ())

    async def _remove_files(self, before: Preview) -> None:
        remove = partial(finding.remove, with_facts=before.reach.with_facts)
        try:
            await self.files.run(remove, self.workspace, before.reach.user, before.files)
        except OSError as error:
            raise StorageError(f"a file cannot be removed ({error_class(error)}): nothing was forgotten") from error

    async def _empty_now_and_then(self) -> None:
        """The write-ahead log still has what was deleted; but nobody may keep the others waiting by forgetting."""
        if trio.current_time() >= self._empty_at:
            self._empty_at = trio.current_time() + EMPTY_EVERY_S
            await self.files.run(connect.checkpoint, self.data_dir / "klaw.db")
            await self.writer.run_alone(logs.compact_database, vacuum=False)

    async def compact_files(self, *, vacuum: bool) -> None:
        """Rid the database's files of what was forgotten: never beside a forgetting, never twice at once. Raises
        StorageError: it could not be done; it is still owed."""
        async with self._alone:
            if not self.reindexing() and not await self.writer.run_alone(logs.compact_database, vacuum=vacuum):
                raise StorageError("another process reads an older state of the database")

    async def expire(self) -> float:
        """Forget the temporary chats whose time is over, and old commands. Returns in how many seconds to look again.
        Cancellation is safe, as for ``forget``."""
        wait_s = LOOK_EVERY_S if await self._forget_commands() else EMPTY_EVERY_S
        for user, chat, last_seq, used_at in await self.readers.run(chats.temporary):
            left_s = from_iso(used_at) + TEMPORARY_S - self.clock.now()
            if left_s > 0:
                return min(left_s, wait_s)
            if (user, chat, last_seq, used_at) not in await self.readers.run(chats.temporary):
                continue  # it is kept, or somebody went on in it
            try:
                await self.forget(await self.readers.run(finding.whole_chat, user, chat, last_seq))
            except (NothingToForget, StorageError) as error:  # a reindex runs, or it changed meanwhile
                log.warning("not_expired", error=error_class(error))
                wait_s = EMPTY_EVERY_S
        return wait_s

    async def _forget_commands(self) -> bool:
        """Once a day forget older commands with their answers; what they did stays. False: that is not finished."""
        async with self._alone:
            if self.reindexing() or self.clock.now() < self._commands_at:
                return True
            at = self.clock.now()
            try:
                last, found, more = await self.readers.run(chats.old_commands, iso(at - TEMPORARY_S))
                for user, rowids in found.items():
                    gone = Forgetting(messages=tuple(rowids), asked=())
                    done = await self.writer.run(execute.journal, user, gone, iso(at), QuotesFound())
                    await self._finish([done], (), everywhere=False)
                await self.writer.run(chats.note_commands, last)
            except StorageError as error:
                log.warning("commands_not_forgotten", error=error_class(error))
                return False
            self._commands_at = at + (0 if more else TEMPORARY_S)
            return not more

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=1)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """Finish what was interrupted; then compact after nudges, and forget temporary chats, until cancelled."""
        task_status.started()
        vitals.doing("finishing a forgetting")
        try:
            await self.resume()
        except StorageError as error:
            log.warning("not_resumed", error=error_class(error))
        anew_at = look_at = trio.current_time()
        owed = False
        while True:
            if trio.current_time() >= look_at:
                vitals.doing("forgetting temporary chats")
                look_at = trio.current_time() + await self.expire()
            vitals.doing("idle")
            until = min(look_at, anew_at) if owed else look_at
            nudged = await self.compactor.wait_for_news(max(0.0, until - trio.current_time()))
            owed = nudged or owed
            if not nudged and not (owed and trio.current_time() >= anew_at):
                continue  # to look again
            await trio.sleep(SETTLE_S)
            vacuum = trio.current_time() >= anew_at
            vitals.doing("compacting the database")
            try:
                await self.compact_files(vacuum=vacuum)
            except StorageError as error:
                log.warning("not_compacted", error=error_class(error))
                self.compactor.nudge()  # else it would wait until the file is rebuilt again
            else:
                owed = owed and not vacuum
                anew_at = trio.current_time() + ANEW_EVERY_S if vacuum else anew_at
            await trio.sleep(EMPTY_EVERY_S)

    async def _compact(self, user: UserId, pieces: Sequence[str]) -> tuple[tuple[HoldingFile, ...], bool]:
        """Empty the write-ahead log, and rebuild the database where it still holds a piece. Returns the files that hold
        one, and whether it was rebuilt."""
        await self._compact_now(vacuum=False)
        held = await self._search(user, pieces)
        if all(each.kind != "database" for each in held):
            return held, False
        await self._compact_now(vacuum=True)
        return await self._search(user, pieces), True

    async def _compact_now(self, *, vacuum: bool) -> None:
        if not await self.writer.run_alone(logs.compact_database, vacuum=vacuum):
            self.compactor.nudge()

    def _aside(self) -> tuple[HoldingFile, ...]:
        found = [HoldingFile(path=str(each.root), count=0, kind="backup") for each in listed(self.backups)]
        return (*proof.aside(self.data_dir), *found)

    async def _search(self, user: UserId, pieces: Sequence[str]) -> tuple[HoldingFile, ...]:
        return await self.files.run(_search, self.data_dir, self.workspace, user, tuple(pieces))


def _size(done: ForgetResult) -> int:
    return len(done.entry.messages) + len(done.entry.facts) + len(done.entry.people)


def _search(data_dir: Path, workspace: Path, user: UserId, pieces: Sequence[str]) -> tuple[HoldingFile, ...]:
    inside = workspace.is_relative_to(data_dir)
    held = proof.search(data_dir, user, pieces, skip=[workspace] if inside else [])
    theirs = proof.search(workspace, user, pieces, shared=True) if workspace.is_dir() else []
    return (*held, *(attrs.evolve(each, path=f"{workspace.name}/{each.path}") for each in theirs))
