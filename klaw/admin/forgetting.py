"""``forget`` and the ``topics_…`` commands of the admin socket.

Answers about forgetting hold numbers and names of files, and of a person its names and the facts that name it. Those
about topics hold what was said: they go to the terminal
of whoever asks, who is the server's own user, and never into a log.
"""

from typing import Any

import attrs

from klaw.admin.answers import check_chat, check_user
from klaw.admin.forget_requests import Forget, TopicsList, TopicsShow
from klaw.admin.requests import BadRequest
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.memory.forget.finding import NothingToForget
from klaw.memory.forget.forget import Forgetter, Preview
from klaw.store.forget_logs import Held
from klaw.store.readers import Readers
from klaw.store.sql import topics

DEFAULT_LIMIT = 20


async def run_forget(forgetter: Forgetter, request: Forget) -> dict[str, Any]:
    """Forget, or (``dry_run``) say what would go and what holds it.

    Raises:
        BadRequest: ``nothing_to_forget``, ``bad_args``.
        StorageError: see ``Forgetter.forget``.
    """
    user = _user(request.user)
    try:
        wanted = await forgetter.find(request.what, user, with_messages=request.with_messages)
        if request.dry_run:
            before = await forgetter.preview(wanted, with_facts=request.with_facts, everywhere=True)
            return {"forgotten": False, **preview_json(before)}
        proof = await forgetter.forget(wanted, with_facts=request.with_facts, everywhere=True)
    except NothingToForget as error:
        raise BadRequest("nothing_to_forget", f"args.what: {error}") from None
    return {
        "forgotten": True,
        **preview_json(proof.before),
        "entry": proof.entry,
        "lines": proof.lines,
        "vacuumed": proof.vacuumed,
        "still_held": [_held_json(each) for each in proof.held],
        "still_named": dict(proof.still_named),
    }


def preview_json(before: Preview) -> dict[str, Any]:
    """What goes, and where it is."""
    scope = before.scope
    return {
        "user": scope.user,
        "messages": [
            {"chat": each.chat, "seq": each.seq, "id": each.id} for each in scope.own if each.rowid not in scope.shown
        ],
        "facts": list(scope.facts),
        "kept_facts": list(scope.kept_facts),
        "topics": list(scope.topics),
        "summaries": [f"{chat}#{number}" for chat, number in scope.summaries],
        "things": [attrs.asdict(each) for each in before.things],
        "people": list(scope.people),
        "kept_people": list(scope.kept_people),
        "named": _named_json(before),
        "rows": {name: len(rows) for name, rows in before.looked.rows.items() if rows}
        | {name: count for name, count in before.looked.kept.items() if count},
        "again": [{"chat": each.chat, "seq": each.seq, "id": each.id} for each in before.again],
        "searched": bool(before.looked.pieces),
        "held": [_held_json(each) for each in before.held],
        "aside": [{"path": each.path, "remedy": each.remedy} for each in before.aside],
    }


def _held_json(held: Held) -> dict[str, Any]:
    return {**attrs.asdict(held), "remedy": held.remedy}


def _named_json(before: Preview) -> dict[str, Any] | None:
    """Of a person: what names it."""
    named = before.named
    if named is None:
        return None
    return {
        "names": list(named.names),
        "namesakes": list(named.namesakes),
        "facts": [{"id": fact, "text": text} for fact, text in named.facts.items()],
        "messages": len(named.messages),
        "staying": [{"chat": each.chat, "seq": each.seq, "id": each.id} for each in before.naming],
        "topics": list(named.topics),
        "summaries": [f"{chat}#{number}" for chat, number in named.summaries],
        "others": dict(named.others),
    }


async def run_topics(readers: Readers, request: TopicsList | TopicsShow) -> dict[str, Any]:
    """List a user's topics, or show one. Raises BadRequest (``unknown_topic``, ``bad_args``)."""
    user = _user(request.user)
    if isinstance(request, TopicsList):
        chat = check_chat(request.chat) if request.chat is not None else None
        limit = request.limit or DEFAULT_LIMIT
        found = await readers.run(topics.of_user, user, chat=chat, limit=limit)
        return {
            "user": user,
            "count": await readers.run(topics.count, user),
            "topics": [topic_json(topic) for topic in found],
        }
    number = request.topic
    topic = TopicId(int(number)) if number.isdecimal() and len(number) < 19 else TopicId(0)
    found_topic = await readers.run(topics.get, user, topic)
    if found_topic is None:
        into = await readers.run(topics.resolve, user, topic)
        hint = f"; topic {into} took it in" if into is not None else ""
        raise BadRequest("unknown_topic", f"args.topic: there is no such topic{hint}")
    said = await readers.run(topics.read, user, topic)
    return {
        "topic": topic_json(found_topic),
        "messages": [
            {"seq": each.seq, "role": each.role, "type": each.type, "at": each.created_at, "content": each.content}
            for each in said
        ],
    }


def topic_json(topic: Topic) -> dict[str, Any]:
    return attrs.asdict(topic)


def _user(name: str | None) -> UserId:
    return check_user(name) if name is not None else UserId(LOCAL_USER)
