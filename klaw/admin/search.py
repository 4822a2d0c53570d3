"""``search``: what matches a query in what a user and the assistant said, in facts and in memory files. The server and
the command without one both go through ``run_search``.

Its answer holds pieces of messages: it goes to the terminal of whoever asks, which is the server's own user, and never
into a log.
"""

from typing import Any

import attrs

from klaw.actor.clock import iso
from klaw.admin.answers import check_chat, check_user
from klaw.admin.requests import BadRequest, Search
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER, UserId, user_of
from klaw.domain.search import SearchPage, kind_of
from klaw.memory.recall.dates import BadTime, read_since, read_until
from klaw.memory.search.search import DEFAULT_LIMIT, MemorySearch
from klaw.memory.search.search_order import BadCursor, Cursor, read_cursor
from klaw.store.readers import Readers
from klaw.store.sql import messages
from klaw.store.sql.history_search import HistoryFilters


async def run_search(search: MemorySearch, readers: Readers, request: Search) -> dict[str, Any]:
    """Carry out a request.

    Raises:
        BadRequest: ``bad_args``; ``unknown_chat``.
        StorageError: the database cannot be read.

    Cancellation: nothing is changed.
    """
    page = _page(request)
    filters = check_search(request, page.asked_at if isinstance(page, Cursor) else search.now())
    if filters.chat is not None and await readers.run(messages.session, filters.chat) is None:
        raise BadRequest("unknown_chat", "args.chat: there is no such chat")
    found = await search.search(request.query, filters, limit=request.limit or DEFAULT_LIMIT, page=page)
    return describe(found, filters)


def _page(request: Search) -> int | Cursor:
    try:
        return read_cursor(request.page) if request.page is not None else 1
    except BadCursor as error:
        raise BadRequest("bad_args", f"args.page: {error}") from None


def check_search(request: Search, now: float) -> HistoryFilters:
    """Whose messages may be found, and which. ``now`` (Unix seconds) is what relative times are counted from.

    Raises:
        BadRequest: a name or a time breaks its rule, or two of them disagree.
    """
    user = check_user(request.user) if request.user is not None else None
    chat = None
    if request.chat is not None:
        chat = check_chat(request.chat if ":" in request.chat else f"{user or LOCAL_USER}:{request.chat}")
        if user is not None and user_of(chat) != user:
            raise BadRequest("bad_args", "args.user: is not the user of that chat")
        user = user_of(chat)
    since = until = None
    try:
        since = read_since(request.since, now) if request.since is not None else None
    except BadTime as error:
        raise BadRequest("bad_args", f"args.since: {error}") from None
    try:
        until = read_until(request.until, now) if request.until is not None else None
    except BadTime as error:
        raise BadRequest("bad_args", f"args.until: {error}") from None
    if since is not None and until is not None and since >= until:
        raise BadRequest("bad_args", "args.until: must be later than since")
    return HistoryFilters(
        user=user or UserId(LOCAL_USER),
        chat=chat,
        since=iso(since) if since is not None else None,
        until=iso(until) if until is not None else None,
        role=Role(request.role) if request.role is not None else None,
    )


def describe(page: SearchPage, filters: HistoryFilters) -> dict[str, Any]:
    """The answer as plain JSON values."""
    return {
        "user": filters.user,
        "chat": filters.chat,
        "since": filters.since,
        "until": filters.until,
        "role": filters.role,
        **attrs.asdict(page, filter=lambda field, _value: field.name != "results"),
        "results": [{"kind": kind_of(each), **attrs.asdict(each)} for each in page.results],
    }
