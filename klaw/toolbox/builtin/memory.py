"""The memory tools: search all that is kept, save a fact, read and change core memory.

No tool ever saves a fact as the user's own words. A fact gets the origin ``assistant`` (the model wrote it down out of
the conversation), and ``tool`` once the turn has read anything from outside; that, and any change of core memory in
such a turn, needs the user's permission (``executor.permission_asked``). Runs do not change core memory at all.
"""

from collections.abc import Callable
from typing import Annotated, Literal

from klaw.actor.clock import iso
from klaw.convert import Bounds
from klaw.core import Core
from klaw.domain import core_memory
from klaw.domain.core_memory import Document
from klaw.domain.days import read_since, read_until
from klaw.domain.fact import DEFAULT_IMPORTANCE, MAX_TEXT, FactId, FactSource, Origin
from klaw.domain.message import Role
from klaw.domain.names import chat_id
from klaw.domain.search import AnyResult, Kind, SearchResult
from klaw.errors import CoreNotChanged, CoreUnreadable, InvalidName, InvalidValue, NoSuchFact, ToolRefused
from klaw.memory.parts import MemoryParts
from klaw.memory.search.format_results import show
from klaw.store.kinds import core_memory as stored_core_memory
from klaw.store.kinds.chats import is_temporary
from klaw.store.kinds.core_memory import read_core
from klaw.store.kinds.tasks import days_zone
from klaw.store.search.history_search import HistoryFilters
from klaw.toolbox.spec import Permission, ToolContext, ToolFailure, ToolSpec, tool

MAX_QUERY = 1_000
MAX_RESULTS = 30

_Query = Annotated[str, "in words; those of the time it was said find best", Bounds(at_least=1, at_most=MAX_QUERY)]
_Since = Annotated[str | None, "not before: 2026-05-01, 7d, yesterday"]
_Until = Annotated[str | None, "not after: 2026-05-31, today"]
_Results = Annotated[int, "most results", Bounds(at_least=1, at_most=MAX_RESULTS)]


def _in_chat(context: ToolContext) -> bool:
    return context.run is None


def memory_tools(core: Core, memory: MemoryParts) -> tuple[ToolSpec, ...]:
    return *_search_tools(core, memory), _save_tool(memory), *_core_tools(core)


def _search_tools(core: Core, memory: MemoryParts) -> tuple[ToolSpec, ...]:
    async def search(
        context: ToolContext,
        query: str,
        kinds: frozenset[Kind] | None,
        chat: str | None,
        role: str | None,
        since: str | None,
        until: str | None,
        limit: int,
    ) -> str:
        now = memory.search.now(), await core.readers.run(days_zone, context.user)
        begin, end = _moment("since", since, read_since, *now), _moment("until", until, read_until, *now)
        if begin is not None and end is not None and begin >= end:
            raise ToolRefused("until: must be later than since")
        try:
            within = chat_id(context.user, chat) if chat else None
            if context.temporary:
                within = context.chat
            elif within is not None and await core.readers.run(is_temporary, within):
                raise ToolRefused("chat: this one is temporary, and searched only from inside")
            filters = HistoryFilters(
                user=context.user,
                chat=within,
                since=iso(begin) if begin is not None else None,
                until=iso(end) if end is not None else None,
                role=Role(role) if role else None,
            )
        except InvalidName as error:
            raise ToolRefused(f"chat: {error}") from error
        page = await memory.search.search(query, filters, limit=limit + _OWN_QUESTION, kinds=kinds)
        found = [each for each in page.results if not _is_asked(context, each)][:limit]
        shows_topics = core.config.topics.inject != "off" and kinds is None
        return show(page, found, page.topics if shows_topics else (), page.people)

    @tool(permission=Permission.READ)
    async def memory_search(
        context: ToolContext, query: _Query, since: _Since = None, until: _Until = None, limit: _Results = 8
    ) -> str | ToolFailure:
        """Search all that is remembered about this user: saved facts, people, topics of earlier talk, MEMORY.md
        and memory/*.md, and everything that was ever said in any chat. Use it before answering about the past, about
        people, or about preferences."""
        return await search(context, query, None, None, None, since, until, limit)

    @tool(permission=Permission.READ)
    async def history_search(
        context: ToolContext,
        query: _Query,
        chat: Annotated[str | None, "name of one chat; all chats without it", Bounds(at_most=64)] = None,
        role: Annotated[Literal["user", "assistant"] | None, "who said it"] = None,
        since: _Since = None,
        until: _Until = None,
        limit: _Results = 8,
    ) -> str | ToolFailure:
        """Search the messages of this user's chats only, by chat, speaker and time; also those from before /new."""
        return await search(context, query, frozenset({"message"}), chat, role, since, until, limit)

    return memory_search, history_search


def _save_tool(memory: MemoryParts) -> ToolSpec:
    @tool(permission=Permission.WRITE)
    async def memory_save(
        context: ToolContext,
        text: Annotated[
            str,
            "one statement that makes sense alone: names instead of he or she, dates instead of tomorrow",
            Bounds(at_least=1, at_most=MAX_TEXT),
        ],
        category: Literal[
            "identity", "preference", "person", "project", "event", "place", "health", "work", "other"
        ] = "other",
        importance: Annotated[
            int, "90 and more: must never be forgotten", Bounds(at_least=0, at_most=100)
        ] = DEFAULT_IMPORTANCE,
        replaces: Annotated[str | None, "id of the saved fact that this one corrects", Bounds(at_most=64)] = None,
    ) -> str | ToolFailure:
        """Save a fact about the user or their world for good. Save what the user tells you, not what you look up, and
        not what is saved already. Only after this tool has answered "saved" may you say that you remember it."""
        try:
            fact, added = await memory.facts.save(
                context.user,
                text,
                category=category,
                importance=importance,
                source=FactSource.TOOL,
                origin=Origin.TOOL if context.trail.outside else Origin.ASSISTANT,
                replaces=FactId(replaces) if replaces else None,
                chat=context.chat,
                turn=context.turn or context.run,
            )
        except InvalidValue as error:
            return ToolFailure(f"Not saved: {error}.")
        except NoSuchFact:
            return ToolFailure("Not saved: replaces: this user has no such fact. memory_search shows their ids.")
        if added:
            return f"saved as {fact.id}"
        return (
            f"Known already, as {fact.id}: {fact.text}\nNothing was written. If that one is wrong or says less, save a"
            f" text that says it all, with replaces={fact.id}."
        )

    return memory_save


def _core_tools(core: Core) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.READ, when=lambda context: not context.temporary)
    async def memory_core_get(context: ToolContext) -> Document | ToolFailure:
        """Read core memory: the few lines about the user that stand at the beginning of every conversation."""
        try:
            return await core.readers.run(read_core, context.user)
        except CoreUnreadable as error:
            return ToolFailure(f"{error}.")

    async def change(context: ToolContext, section: str, key: str | None, value: str | None) -> Document:
        now = iso(core.clock.now())
        try:
            return await core.writer.run(stored_core_memory.change, context.user, section, key, value, now)
        except (CoreNotChanged, CoreUnreadable) as error:
            raise ToolRefused(f"Nothing was changed: {error}") from error

    @tool(permission=Permission.WRITE, when=_in_chat)
    async def memory_core_update(
        context: ToolContext,
        section: Annotated[str, "such as user, preferences, people", Bounds(at_least=1, at_most=core_memory.MAX_NAME)],
        key: Annotated[str, "for instance name", Bounds(at_least=1, at_most=core_memory.MAX_NAME)],
        value: Annotated[str, "one line", Bounds(at_least=1, at_most=core_memory.MAX_VALUE)],
    ) -> str:
        """Write one entry of core memory, a new one or over the one of that key. Only for few things that matter in
        every conversation: who the user is, how they want to be answered. For all else use memory_save."""
        changed = await change(context, section, key, value)
        return f"saved; core memory is now:\n{core_memory.render(changed)}"

    @tool(permission=Permission.WRITE, when=_in_chat)
    async def memory_core_delete(
        context: ToolContext,
        section: Annotated[str, "its name", Bounds(at_least=1, at_most=core_memory.MAX_NAME)],
        key: Annotated[
            str | None, "one entry; the whole section without it", Bounds(at_most=core_memory.MAX_NAME)
        ] = None,
    ) -> str | ToolFailure:
        """Delete one entry, or a whole section, of core memory."""
        left = await change(context, section, key, None)
        return f"deleted; core memory is now:\n{core_memory.render(left) or '(empty)'}"

    return memory_core_get, memory_core_update, memory_core_delete


def _moment(name: str, text: str | None, read: Callable[..., float], *now: object) -> float | None:
    try:
        return read(text, *now) if text else None
    except InvalidValue as error:
        raise ToolRefused(f"{name}: {error}") from error


_OWN_QUESTION = 5
"""More results than wanted are asked for: messages that the turn answers are left out of them."""


def _is_asked(context: ToolContext, result: AnyResult) -> bool:
    """Whether it is what the turn answers, or was said since."""
    first = context.before_seq
    return (
        first is not None and isinstance(result, SearchResult) and result.chat == context.chat and result.seq >= first
    )
