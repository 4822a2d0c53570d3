"""Forgetting with proof: a message, a topic, a fact or a person goes from the logs, the database, its indexes and what
was made of it, and a search for its bytes shows what still holds it.

No actor: admin requests and chats call it. One forgetting at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.threads import Threads
from klaw.domain.fact import FactId
from klaw.domain.message import Message, Role
from klaw.domain.names import ChatId, InvalidName, UserId, chat_id, user_of
from klaw.domain.person import PersonId, normal_name
from klaw.domain.topic import TopicId
from klaw.errors import KlawError
from klaw.store import forget_logs
from klaw.store.forget_cleaner import Cleaner
from klaw.store.forget_logs import Held
from klaw.store.forget_records import Forgot
from klaw.store.readers import Readers
from klaw.store.sql import facts, forgetting, messages, naming, people, topics, whereabouts
from klaw.store.sql.forget_scope import Extra, Scope
from klaw.store.sql.naming import Named
from klaw.store.sql.whereabouts import Target
from klaw.store.writer import Writer

MOST_LISTED = 100
"""Messages that stay and name a forgotten person, as they are listed."""
ROUNDS = 5
"""Searches for lines that were written while the logs were cleaned."""

log = structlog.get_logger("klaw.forget")


class NothingToForget(KlawError):
    """What was named is not there, or cannot be forgotten. The text says why."""


@attrs.frozen(kw_only=True)
class Wanted:
    """What is to be forgotten, by its numbers."""

    user: UserId
    rowids: tuple[int, ...] = ()
    facts: tuple[FactId, ...] = ()
    extra: Extra = attrs.field(factory=Extra)
    named: Named | None = None
    """Of a person: what names it."""


@attrs.frozen(kw_only=True)
class Preview:
    """What a forgetting would do, or did."""

    scope: Scope
    quotes: dict[str, int]
    """Rows by table that quote it, the texts' own rows included, and what is kept on purpose and says it."""
    held: tuple[Held, ...]
    """Files that hold it now."""
    named: Named | None = None
    """Of a person: what names it."""
    naming: tuple[Message, ...] = ()
    """Of a person: messages that name it and stay, the first of them."""


@attrs.frozen(kw_only=True)
class Proof:
    """What a forgetting did."""

    before: Preview
    entry: int
    """Its number in the memory journal."""
    lines: int
    """Lines of logs that were rewritten."""
    vacuumed: bool
    """Whether the database file was made anew, because its free space still held the text."""
    held: tuple[Held, ...]
    """Files that still hold it."""
    still_named: Mapping[str, int] = attrs.field(factory=dict)
    """Of a person: how many rows of each kind still name it."""


@attrs.frozen
class Forgetter:
    """Looks and forgets.

    Args:
        writer, readers: of the store.
        data_dir, workspace: folders that are searched.
        clock: for the journal.
        files: threads for searching.
        reindexing: whether a reindex is reading the logs.
        changed: called after messages changed: their vectors, topics and summaries are to be made again.
    """

    writer: Writer
    readers: Readers
    data_dir: Path
    workspace: Path
    clock: Clock
    files: Threads
    reindexing: Callable[[], bool]
    changed: Callable[[], None]
    _alone: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    # -- naming it -------------------------------------------------------------------------------------------------

    async def find(self, text: str, user: UserId, *, with_messages: bool = False) -> Wanted:
        """What somebody means: ``topic:12``, ``fact:ID``, ``person:ID`` or ``person:NAME``, a message's id, or its chat
        and number (``main#12``); a name alone means a person when there is no such message.

        Args:
            text: what was said.
            user: whose.
            with_messages: of a person, also all messages that name it.

        Raises:
            NothingToForget: there is no such thing of this user's, or it is Klaw's own line.
        """
        kind, colon, rest = text.partition(":")
        if colon and kind == "topic":
            return await self._topic(rest, user)
        if colon and kind == "fact":
            history = await self.readers.run(facts.history, user, FactId(rest))
            if not history:
                raise NothingToForget("there is no such fact")
            return Wanted(user=user, facts=(FactId(rest),))
        if colon and kind == "person":
            return await self._person(rest, user, with_messages=with_messages)
        found = await self.readers.run(whereabouts.find, _message_target(text, user))
        if not found and "#" not in text and await self._who(text, user):
            return await self._person(text, user, with_messages=with_messages)
        if len(found) != 1:
            raise NothingToForget("there is no such message")
        if found[0].role is Role.SYSTEM:
            raise NothingToForget("this is forgotten already, or a line of Klaw's own: there is nothing of yours in it")
        return Wanted(user=user, rowids=(found[0].rowid,))

    async def newest(self, chat: ChatId, count: int) -> Wanted:
        """The newest messages of a chat that were said in it. Raises NothingToForget."""
        session = await self.readers.run(messages.session, chat)
        start = session.segment_start if session is not None else 1
        found = await self.readers.run(messages.newest_of_segment, chat, start, count)
        if not found:
            raise NothingToForget("there are no messages in this segment")
        return Wanted(user=user_of(chat), rowids=tuple(message.rowid for message in found))

    async def _topic(self, number: str, user: UserId) -> Wanted:
        topic = TopicId(int(number)) if number.isdecimal() and len(number) < 19 else TopicId(0)
        rowids = await self.readers.run(topics.members, user, topic)
        if not rowids:
            raise NothingToForget("there is no such topic")
        return Wanted(user=user, rowids=tuple(rowids))

    async def _who(self, text: str, user: UserId) -> list[PersonId]:
        """The people of this id or this name, and the person who each of them turned out to be."""
        past = await self.readers.run(people.history, user, PersonId(text))
        named = await self.readers.run(people.by_names, user, [text]) if normal_name(text) else []
        ids = [PersonId(text)] if past else [each.id for each in named]
        found = [(await self.readers.run(people.resolve, user, each), each) for each in ids]
        return [now.id if now is not None else each for now, each in found]

    async def _person(self, text: str, user: UserId, *, with_messages: bool) -> Wanted:
        who = await self._who(text, user)
        if len(who) > 1:
            raise NothingToForget(f"several people have this name: {', '.join(f'person:{each}' for each in who)}")
        named = await self.readers.run(naming.look, user, who[0]) if who else None
        if named is None:
            raise NothingToForget("there is no such person")
        if not named.names:
            raise NothingToForget("this person is forgotten already")
        extra = Extra(people=named.people)
        if with_messages:
            extra = attrs.evolve(
                extra, topics=named.topics, summaries=named.summaries, turns=named.turns, runs=named.runs
            )
            others = {kind: number for kind, number in named.others.items() if kind not in ("receipts", "runs")}
            named = attrs.evolve(named, others=others)
        rowids = named.messages if with_messages else ()
        return Wanted(user=user, rowids=rowids, facts=tuple(named.facts), extra=extra, named=named)

    # -- looking and doing -----------------------------------------------------------------------------------------

    async def preview(self, wanted: Wanted, *, with_facts: bool = False) -> Preview:
        """What would go, and which files hold it. Changes nothing."""
        scope, quotes = await self.readers.run(
            forgetting.look, wanted.user, wanted.rowids, wanted.facts, with_facts=with_facts, extra=wanted.extra
        )
        staying = wanted.named.messages[:MOST_LISTED] if wanted.named is not None and not wanted.rowids else ()
        return Preview(
            scope=scope,
            quotes=quotes,
            held=await self._search(scope.user, scope.pieces),
            named=wanted.named,
            naming=tuple(await self.readers.run(messages.by_rowids, staying)),
        )

    async def forget(self, wanted: Wanted, *, with_facts: bool = False) -> Proof:
        """Forget it, and search for what still holds it.

        Raises:
            NothingToForget: a reindex is running, so nothing was changed.
            StorageError: it is not there any more, so nothing was changed; or the logs could not be cleaned, which the
                next start does.

        Cancellation: nothing is done, or it is out of the database and the next start finishes the logs.
        """
        async with self._alone:
            if self.reindexing():
                raise NothingToForget("a reindex is running: wait for its end, or stop it; nothing was changed")
            before = await self.preview(wanted, with_facts=with_facts)
            at = iso(self.clock.now())
            done = await self.writer.forget(
                wanted.user, wanted.rowids, wanted.facts, at, with_facts=with_facts, extra=wanted.extra
            )
            log.info("forget_began", count=_size(done))
            lines = await self._clean(done)
            held, vacuumed = await self._compact(done)
            await self.writer.note_forgotten(wanted.user, done.entry.entry, at)
            self.changed()
            log.info("forgotten", count=_size(done), files=len(held))
            names = wanted.named.names if wanted.named is not None else ()
            return Proof(
                before=before,
                entry=done.entry.entry,
                lines=lines,
                vacuumed=vacuumed,
                held=held,
                still_named=await self.readers.run(naming.count, wanted.user, names) if names else {},
            )

    async def _clean(self, done: Forgot) -> int:
        lines = 0
        for own in (False, True):
            if own:  # after this round a start does not know any more what else to look for
                await self.files.run(forget_logs.remove_copies, self.data_dir, done.entry, done.pieces)
            cleaner = Cleaner(done.entry, done.pieces, own, done.lines)
            for _ in range(ROUNDS):
                paths = await self.files.run(forget_logs.logs_with, self.data_dir, cleaner)
                changed = await self.writer.clean_logs(cleaner, paths) if paths else 0
                lines += changed
                if not changed:
                    break
        return lines

    async def _compact(self, done: Forgot) -> tuple[tuple[Held, ...], bool]:
        await self.writer.compact_database(vacuum=False)
        held = await self._search(done.entry.user, done.pieces)
        if not any(each.path.startswith("klaw.db") and each.kind == "database" for each in held):
            return held, False
        await self.writer.compact_database(vacuum=True)
        return await self._search(done.entry.user, done.pieces), True

    async def _search(self, user: UserId, pieces: Sequence[str]) -> tuple[Held, ...]:
        return await self.files.run(_search, self.data_dir, self.workspace, user, tuple(pieces))


def _size(done: Forgot) -> int:
    return len(done.entry.messages) + len(done.entry.facts) + len(done.entry.people)


def _search(data_dir: Path, workspace: Path, user: UserId, pieces: Sequence[str]) -> tuple[Held, ...]:
    inside = workspace.is_relative_to(data_dir)
    held = forget_logs.search(data_dir, user, pieces, skip=[workspace] if inside else [])
    if workspace.is_dir():
        held += [
            attrs.evolve(each, path=f"{workspace.name}/{each.path}", kind="file")
            for each in forget_logs.search(workspace, user, pieces, shared=True)
        ]
    return tuple(held)


def _message_target(text: str, user: UserId) -> Target:
    named, mark, number = text.rpartition("#")
    if not mark:
        return Target(id=text, user=user)
    if not number.isdecimal() or len(number) > 18:
        raise NothingToForget("after # stands the number of a message: 1, 2, 3 …")
    try:
        chat = chat_id(user, named.removeprefix(f"{user}:"))
    except InvalidName as error:
        raise NothingToForget(f"the chat: {error}") from None
    return Target(seq=int(number), chat=chat)
