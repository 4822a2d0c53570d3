"""Forgetting with proof: a message, a topic, a fact, a task or a person goes from the logs, the database, its indexes
and what was made of it, and a search for its bytes shows what still holds it.

No actor: admin requests and chats call it. One forgetting at a time.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.backup.folder import listed
from klaw.domain.forget import Thing
from klaw.domain.names import ChatId, UserId, name_of
from klaw.errors import StorageError
from klaw.memory.forget import finding, take_out
from klaw.memory.forget.finding import NothingToForget, of_runs
from klaw.memory.forget.values import Cleaned, Preview, Proof, Shown
from klaw.store.engine import connect, log_rewrite
from klaw.store.engine.database import Readers
from klaw.store.engine.log_rewrite import LogRewrite
from klaw.store.engine.writer import Writer
from klaw.store.forget import applying, forgetting, quoting
from klaw.store.forget import logs as forget_logs
from klaw.store.forget.cleaner import Cleaner
from klaw.store.forget.derived import FileMade
from klaw.store.forget.entry import Forgot, merged
from klaw.store.forget.logs import Held
from klaw.store.forget.scope import Scope, Wanted
from klaw.store.forget.things import things_of
from klaw.store.kinds import messages, runs

MOST_LISTED = 100
"""Messages that stay and name a forgotten person, as they are listed."""
EMPTY_EVERY_S = 60.0
"""Between two forgettings of users after which the write-ahead log is emptied at once; ``memory.compactor`` does the
rest."""
MOST_SHOWN = 1_000
"""Chats whose question is remembered; the oldest gives way."""
LOGS_AT_ONCE = 8
"""That are exchanged while everybody waits."""
LOOKS = 5
"""Looks at what belongs to it, until nothing has changed since."""
ROUNDS = 5
"""Searches for lines that were written while the logs were cleaned."""

NOTED_AT_ONCE = 50
"""Entries that one transaction notes as finished."""
CLOSE_S = 10.0
"""For removing drafts, while the writer may be at it."""

log = structlog.get_logger("klaw.forget")


async def _nothing_runs(_user: UserId, _run: str) -> None:
    pass


@attrs.define(eq=False)
class Forgetter:
    """Looks and forgets.

    Args:
        writer, readers: of the store.
        data_dir, workspace: folders that are searched.
        clock: for the journal.
        files: threads for searching.
        reindexing: whether a reindex is reading the logs.
        changed: called after messages changed: their vectors, topics and summaries are to be made again.
        stop_run: ends a run that is under way, and returns when it is over.
        compact: called when the database's files are to be rid of what was forgotten, by and by.
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
    compact: Callable[[], None] = lambda: None
    stop_run: Callable[[UserId, str], Awaitable[None]] = _nothing_runs
    backups: Path | None = None
    _alone: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _empty_at: float = attrs.field(default=float("-inf"), init=False)
    _shown: dict[ChatId, Shown] = attrs.field(factory=dict, init=False)

    async def find(self, text: str, user: UserId, *, with_messages: bool = False) -> Wanted:
        """What somebody means; see ``finding.find``."""
        return await finding.find(
            self.readers, text, user, data_dir=self.data_dir, files=self.files, with_messages=with_messages
        )

    async def newest(self, chat: ChatId, count: int) -> Wanted:
        """The newest messages of a chat that were said in it. Raises NothingToForget."""
        return await finding.newest(self.readers, chat, count)

    async def again(self, shown: Wanted) -> Wanted:
        """What was shown, as it is now: with a chat goes what was said in it meanwhile. Raises NoSuchChat."""
        return await self.find(f"chat:{name_of(shown.deleted[0][0])}", shown.user) if shown.deleted else shown

    def note_shown(self, chat: ChatId, wanted: Wanted, *, with_facts: bool, until: float) -> None:
        """Remember what a chat was shown; a restart forgets it, and then it has to be asked again."""
        while len(self._shown) >= MOST_SHOWN:
            del self._shown[next(iter(self._shown))]
        self._shown[chat] = Shown(wanted, with_facts, until)

    def take_shown(self, chat: ChatId, now: float) -> Shown | None:
        """What a chat was shown last, once, and not after its time."""
        shown = self._shown.pop(chat, None)
        return shown if shown is not None and shown.until >= now else None

    # -- looking and doing -----------------------------------------------------------------------------------------

    async def preview(self, wanted: Wanted, *, with_facts: bool = False, everywhere: bool = False) -> Preview:
        """What would go. Changes nothing.

        Args:
            wanted: see ``find``.
            with_facts: also facts that were made of it, and people known by nothing else.
            everywhere: for the operator: also which files hold it, by their bytes, whosever they are.
        """
        look = await self.readers.run(applying.look, wanted, with_facts=with_facts)
        scope, looked = look.scope, look.looked
        own = frozenset(scope.rowids)
        named = wanted.named.messages if wanted.named is not None else ()
        staying = [rowid for rowid in named if rowid not in own][:MOST_LISTED]
        files, things = await self._files(scope)
        return Preview(
            look=look,
            things=(*await self.readers.run(things_of, scope), *things),
            files=files,
            again=tuple(await self.readers.run(messages.by_rowids, looked.again[:MOST_LISTED])),
            held=await self._search(wanted.user, looked.pieces) if everywhere else (),
            aside=await self.files.run(self._aside) if everywhere else (),
            named=wanted.named,
            naming=tuple(await self.readers.run(messages.by_rowids, staying)),
        )

    async def forget(self, wanted: Wanted, *, with_facts: bool = False, everywhere: bool = False) -> Proof:
        """Forget it, and look for what still says it.

        Args:
            wanted, with_facts, everywhere: see ``preview``. Without ``everywhere`` only the user's own rows and logs
                are read, and the database's files are compacted later, for all users together.

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
            for run in before.scope.runs:  # what it would still say is made of it
                await self.stop_run(wanted.user, run)
            # First: when a kill comes behind it, the message is there without its files, and never the other way round.
            await self._remove_files(before)
            at = iso(self.clock.now())
            done, entries = await self._take_out(wanted, at, before, with_facts=with_facts)
            lines, held, vacuumed = await self._finish(done, entries, everywhere=everywhere)
            names = wanted.named.names if wanted.named is not None else ()
            return Proof(
                before=before,
                entry=done.entry.entry,
                lines=lines,
                after=await self.readers.run(
                    quoting.look, wanted.user, before.scope.texts, done.entry.messages, done.entry.asked
                ),
                vacuumed=vacuumed,
                held=held,
                still_named=await self.readers.run(quoting.count_naming, wanted.user, names) if names else {},
            )

    async def _take_out(
        self, wanted: Wanted, at: str, before: Preview, *, with_facts: bool
    ) -> tuple[Forgot, Sequence[int]]:
        """Take it out of the database, of many messages a part at a time, so that nobody has to wait for long. Returns
        what was done as if it were one entry, and the numbers of all. A kill in between: the next start goes on."""
        run, look = self.writer.run, before.look
        for _ in range(LOOKS):  # whoever looks again in the writer keeps all others waiting
            if await self.readers.run(applying.is_current, wanted, look):
                break
            look = await self.readers.run(applying.look, wanted, with_facts=with_facts)
        done = await run(
            forgetting.forget,
            wanted,
            at,
            with_facts=with_facts,
            look=look,
            most=1 if len(wanted.rowids) >= take_out.MANY else take_out.AT_ONCE,
        )
        log.info("forget_began", count=_size(done) + len(done.rest))
        entries = [done.entry, *await take_out.rest(self.writer, self.readers, wanted.user, done.rest, at)]
        entry = merged(entries)
        lines = await self.readers.run(applying.lines, entry) if entry.used else done.lines
        return attrs.evolve(done, entry=entry, lines=lines), [each.entry for each in entries]

    async def _finish(
        self, done: Forgot, entries: Sequence[int], *, everywhere: bool
    ) -> tuple[int, tuple[Held, ...], bool]:
        """Clean the logs and the files of what was taken out. Returns how many lines were rewritten, what still holds
        it, and whether the database was rebuilt."""
        lines = await self._clean(done)
        held, vacuumed = await self._compact(done) if everywhere else ((), False)
        for first in range(0, len(entries), NOTED_AT_ONCE):
            noted = entries[first : first + NOTED_AT_ONCE]
            await self.writer.run(forgetting.note_forgotten, done.entry.user, noted, done.entry.time)
        self.changed()
        if not everywhere:
            await self._empty_now_and_then()
            self.compact()
        log.info("forgotten", count=_size(done), files=len(held))
        return lines, held, vacuumed

    async def resume(self) -> None:
        """Finish the large forgettings that a kill interrupted; small ones the start has finished.

        Raises:
            StorageError: the logs could not be cleaned; the next start tries again.
        """
        async with self._alone:
            for begun in await self.readers.run(forgetting.interrupted):
                first = begun[0]
                log.info("forget_resumed", count=len(first.asked))
                rest = await self.readers.run(applying.left, first)
                entries = [*begun, *await take_out.rest(self.writer, self.readers, first.user, rest, first.time)]
                entry = merged(entries)
                texts = await self.readers.run(forgetting.texts_of, self.data_dir, entry)
                looked = await self.readers.run(quoting.look, first.user, texts, entry.messages, entry.asked)
                lines = await self.writer.run(forgetting.redact, entry, looked)
                done = Forgot(entry=entry, pieces=looked.pieces, own=(), lines=lines)
                await self._finish(done, [each.entry for each in entries], everywhere=False)

    async def clean_after(self, done: Sequence[Forgot], at: str, pieces: Sequence[str], *, everywhere: bool) -> Cleaned:
        """Clean the logs of what somebody took out of the database, such as a knowledge base, and look for what of it
        is still there.

        Args:
            done: what was taken out, for each user.
            at: the time of the forgetting.
            pieces: texts to look for.
            everywhere: see ``preview``.

        Raises:
            StorageError: the logs could not be cleaned; the next start does it.
        """
        async with self._alone:
            lines = 0
            for each in done:
                written = await self.readers.run(applying.lines, each.entry)
                lines += await self._clean(attrs.evolve(each, lines=written))
            sought = attrs.evolve(done[0], pieces=tuple(pieces))
            held, vacuumed = await self._compact(sought) if everywhere else ((), False)
            for each in done:
                await self.writer.run(forgetting.note_forgotten, each.entry.user, [each.entry.entry], at)
            if not everywhere:
                await self._empty_now_and_then()
                self.compact()
            log.info("forgotten", count=len(done), files=len(held))
            aside = await self.files.run(self._aside) if everywhere else ()
            return Cleaned(lines=lines, vacuumed=vacuumed, held=held, aside=aside)

    async def _files(self, scope: Scope) -> tuple[tuple[FileMade, ...], list[Thing]]:
        """The files that tools wrote, also in runs, and those of them that are there."""
        gone = await self.readers.run(runs.by_ids, scope.user, scope.runs)
        written = {each.path: each for each in scope.files}
        written |= {each.path: each for each in await self.files.run(of_runs, self.data_dir, scope.user, gone)}
        files = tuple(written.values())
        look = partial(finding.things, with_facts=scope.with_facts)
        return files, await self.files.run(look, self.workspace, scope.user, files)

    async def _remove_files(self, before: Preview) -> None:
        scope = before.scope
        remove = partial(finding.remove, with_facts=scope.with_facts)
        try:
            await self.files.run(remove, self.workspace, scope.user, before.files)
        except OSError as error:
            raise StorageError(f"a file cannot be removed ({error_class(error)}): nothing was forgotten") from error

    async def _empty_now_and_then(self) -> None:
        """The write-ahead log still has what was deleted; but nobody may keep the others waiting by forgetting."""
        if trio.current_time() >= self._empty_at:
            self._empty_at = trio.current_time() + EMPTY_EVERY_S
            await self.files.run(connect.checkpoint, self.data_dir / "klaw.db")
            await self.writer.run_alone(forgetting.compact_database, vacuum=False)

    async def compact_files(self, *, vacuum: bool) -> None:
        """Rid the database's files of what was forgotten: never beside a forgetting, never twice at once.

        Raises:
            StorageError: it could not be done; it is still owed.
        """
        async with self._alone:
            if not self.reindexing() and not await self.writer.run_alone(forgetting.compact_database, vacuum=vacuum):
                raise StorageError("another process reads an older state of the database")

    async def _clean(self, done: Forgot) -> int:
        lines = 0
        for own in (False, True):
            if own:  # after this round a start does not know any more what else to look for
                await self.files.run(forget_logs.remove_copies, self.data_dir, done.entry, done.pieces)
            cleaner = Cleaner(done.entry, done.pieces, own=own, lines=done.lines)
            for _ in range(ROUNDS):
                paths = await self.files.run(forget_logs.logs_with, self.data_dir, cleaner)
                changed = 0
                for first in range(0, len(paths), LOGS_AT_ONCE):
                    changed += await self._clean_logs(cleaner, paths[first : first + LOGS_AT_ONCE])
                lines += changed
                if not changed:
                    break
        return lines

    async def _clean_logs(self, cleaner: Cleaner, paths: Sequence[str]) -> int:
        """Rewrite logs while others are served. Returns how many lines changed."""
        waiting = rewrites = await self.writer.run_alone(forgetting.begin_cleaning, cleaner, paths)
        try:
            while waiting:
                with forgetting.left_to_the_next_start():
                    for each in waiting:
                        while each.left > log_rewrite.STEP_BYTES:
                            await self.files.run(each.step)
                await self.files.run(forgetting.take_in, waiting)
                waiting = await self.writer.run_alone(forgetting.exchange_logs, waiting)
            await self.files.run(forgetting.sync_folders, rewrites)
            return sum(each.changed for each in rewrites)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self.files.run(_close, rewrites)

    async def _compact(self, done: Forgot) -> tuple[tuple[Held, ...], bool]:
        await self.writer.run_alone(forgetting.compact_database, vacuum=False)
        held = await self._search(done.entry.user, done.pieces)
        if not any(each.path.startswith("klaw.db") and each.kind == "database" for each in held):
            return held, False
        await self.writer.run_alone(forgetting.compact_database, vacuum=True)
        return await self._search(done.entry.user, done.pieces), True

    def _aside(self) -> tuple[Held, ...]:
        made = listed(self.backups) if self.backups is not None else []
        found = [Held(path=str(each.root), count=0, kind="backup") for each in made]
        return (*forget_logs.aside(self.data_dir), *found)

    async def _search(self, user: UserId, pieces: Sequence[str]) -> tuple[Held, ...]:
        return await self.files.run(_search, self.data_dir, self.workspace, user, tuple(pieces))


def _close(rewrites: Sequence[LogRewrite]) -> None:
    for each in rewrites:
        each.close()


def _size(done: Forgot) -> int:
    return len(done.entry.messages) + len(done.entry.facts) + len(done.entry.people)


def _search(data_dir: Path, workspace: Path, user: UserId, pieces: Sequence[str]) -> tuple[Held, ...]:
    inside = workspace.is_relative_to(data_dir)
    held = forget_logs.search(data_dir, user, pieces, skip=[workspace] if inside else [])
    if workspace.is_dir():
        held += [
            attrs.evolve(each, path=f"{workspace.name}/{each.path}")
            for each in forget_logs.search(workspace, user, pieces, shared=True)
        ]
    return tuple(held)
