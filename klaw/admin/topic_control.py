"""The ``topics_…`` commands of the admin socket that change topics, and their history.

The answers hold summaries: they go to the terminal of whoever asks, who is the server's own user, and never into a log.
"""

from typing import Any, assert_never

import attrs

from klaw.actor.clock import iso
from klaw.admin.answers import check_chat, check_user
from klaw.admin.kinds import MAX_WHOLE, Fields
from klaw.admin.requests import BadRequest
from klaw.admin.topic_requests import (
    OfTopicControl,
    TopicsHistory,
    TopicsMerge,
    TopicsRebuild,
    TopicsSplit,
    TopicsUndo,
)
from klaw.domain.names import LOCAL_USER, ChatId, UserId, user_of
from klaw.domain.text import has_forbidden
from klaw.domain.topic import Topic, TopicId
from klaw.memory.recall.dates import BadTime, read_since
from klaw.memory.topics.control import TopicControl, TopicRefused
from klaw.store.sql import messages, topic_changes
from klaw.store.sql.topic_changes import TopicChange

DEFAULT_LIMIT = 20
MAX_CUTS = 200
MAX_NAME = 200
MOST_TOLD = 100
"""Topics of one answer: a user may have ten thousand, and the rest is counted."""


async def run_topic_control(control: TopicControl, request: OfTopicControl) -> dict[str, Any]:
    """Carry out a request.

    Raises:
        BadRequest: ``bad_args``, ``unknown_topic``, ``unknown_chat``, ``topics_refused``, ``topic_changed``,
            ``no_model``, ``topics_off``, ``nothing_to_rebuild``, ``cannot_undo``.
        StorageError, ActorStopped: the store refused, or is gone.

    Cancellation: a change may or may not be made.
    """
    user = check_user(request.user) if request.user is not None else UserId(LOCAL_USER)
    try:
        match request:
            case TopicsMerge():
                ids, summary = _merged(request.fields)
                return {"topic": topic_json(await control.merge(user, ids, summary))}
            case TopicsSplit():
                made = await control.split(user, request.topic, _cuts(request.fields))
                return {"ended": request.topic, "topics": [topic_json(each) for each in made]}
            case TopicsRebuild():
                return await _rebuild(control, user, request)
            case TopicsHistory():
                return await _history(control, user, request)
            case TopicsUndo():
                done = await control.undo(user, request.entry)
                return {
                    "undone": done.undone,
                    "entry": done.entry,
                    "count": len(done.topics),
                    "topics": [topic_json(each) for each in done.topics[:MOST_TOLD]],
                    "ended": list(done.ended[:MOST_TOLD]),
                    "ended_count": len(done.ended),
                }
            case _:
                assert_never(request)
    except TopicRefused as error:
        named = f"args.{error.field}: " if error.field is not None else ""
        raise BadRequest(error.code, f"{named}{error}") from None


def topic_json(topic: Topic) -> dict[str, Any]:
    return attrs.asdict(topic)


async def _rebuild(control: TopicControl, user: UserId, request: TopicsRebuild) -> dict[str, Any]:
    chat: ChatId | None = None
    if request.chat is not None:
        chat = check_chat(request.chat)
        if user_of(chat) != user:
            raise BadRequest("bad_args", "args.chat: is not the user's")
        if await control.readers.run(messages.session, chat) is None:
            raise BadRequest("unknown_chat", "args.chat: there is no such chat")
    since = None
    if request.since is not None:
        try:
            since = iso(read_since(request.since, control.clock.now()))
        except BadTime as error:
            raise BadRequest("bad_args", f"args.since: {error}") from None
    found = await control.in_scope(user, chat, since)
    entries = [] if request.dry_run else await control.rebuild(user, chat, since)
    return {
        "user": user,
        "chat": chat,
        "since": since,
        "dropped": not request.dry_run,
        "entries": entries,
        "messages": sum(topic.messages for topic in found),
        "count": len(found),
        "topics": [topic_json(topic) for topic in found[:MOST_TOLD]],
    }


async def _history(control: TopicControl, user: UserId, request: TopicsHistory) -> dict[str, Any]:
    topic = TopicId(request.topic) if request.topic is not None else None
    found = await control.readers.run(topic_changes.of_user, user, topic=topic, limit=request.limit or DEFAULT_LIMIT)
    return {"user": user, "changes": [_change(each) for each in found]}


def _change(change: TopicChange) -> dict[str, Any]:
    return {
        "entry": change.entry,
        "at": change.at,
        "chat": change.chat,
        "op": change.op,
        "by": change.by,
        "before": [
            {"id": each.id, "summary": each.summary, "messages": len(each.members)}
            for each in change.before[:MOST_TOLD]
        ],
        "before_count": len(change.before),
        "after": list(change.after[:MOST_TOLD]),
        "after_count": len(change.after),
        "undoes": change.undoes,
        "undone_by": change.undone_by,
    }


# -- fields ------------------------------------------------------------------------------------------------------------


def _merged(fields: Fields) -> tuple[list[int], str | None]:
    _only(fields, "topics", "summary")
    ids = fields.get("topics")
    if not isinstance(ids, list) or any(
        not isinstance(each, int) or isinstance(each, bool) or not 1 <= each <= MAX_WHOLE for each in ids
    ):
        raise BadRequest("bad_args", "args.topics: must be a list of numbers of topics")
    summary = fields.get("summary")
    if summary is not None and (not isinstance(summary, str) or has_forbidden(summary)):
        raise BadRequest("bad_args", "args.summary: must be a text without NUL or lone surrogates")
    return ids, summary


def _cuts(fields: Fields) -> list[str]:
    _only(fields, "at")
    at = fields.get("at", [])
    if (
        not isinstance(at, list)
        or len(at) > MAX_CUTS
        or any(not isinstance(each, str) or not 1 <= len(each) <= MAX_NAME or has_forbidden(each) for each in at)
    ):
        raise BadRequest("bad_args", f"args.at: must be a list of at most {MAX_CUTS} names of messages")
    return at


def _only(fields: Fields, *known: str) -> None:
    if set(fields) - set(known):
        raise BadRequest("bad_args", f"args.fields: has the fields {', '.join(known)} only")
