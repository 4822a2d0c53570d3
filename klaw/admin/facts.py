"""Facts by the admin socket: what the ``fact_…`` commands answer.

The answers hold what the facts say: they go to the terminal of whoever asks, who is the server's own user, and never
into a log.
"""

from typing import Any, assert_never

from klaw.admin.answers import check_user
from klaw.admin.fact_requests import FactAdd, FactDelete, FactEdit, FactHistory, FactList, FactUndo, OfFacts
from klaw.admin.fields import problems_in
from klaw.admin.requests import BadRequest
from klaw.domain.fact import DEFAULT_IMPORTANCE, Fact, FactId, FactSource, InvalidFact, Origin, fact_text, is_category
from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import NoSuchFact, Problem
from klaw.memory.facts import CannotUndo, Facts, Known, NoOlder, Saved
from klaw.store.readers import Readers
from klaw.store.sql import facts as sql

DEFAULT_LIMIT = 50
_EDITED = ("text", "category", "importance")
_ADDED = (*_EDITED, "replaces")


async def run_on_facts(facts: Facts, readers: Readers, request: OfFacts) -> dict[str, Any]:
    """Carry out a request.

    Raises:
        BadRequest: ``bad_args``; ``bad_fact`` with every wrong field; ``unknown_fact``, ``fact_exists``,
            ``cannot_undo``.
        StorageError: the store refused or failed.
        ActorStopped: the store is gone.

    Cancellation: a change may or may not be made.
    """
    user = check_user(request.user) if request.user is not None else UserId(LOCAL_USER)
    try:
        match request:
            case FactList():
                return await list_facts(readers, user, request)
            case FactAdd():
                return await _add(facts, user, _read(request.fields, _ADDED, needed="text"))
            case FactEdit():
                changed = await facts.edit(user, FactId(request.fact), **_read(request.fields, _EDITED))
                return {"fact": fact_json(_written(changed))}
            case FactDelete():
                return {"removed": fact_json(await facts.remove(user, FactId(request.fact)))}
            case FactHistory():
                return await _history(readers, user, FactId(request.fact))
            case FactUndo():
                return await _undo(facts, user, request)
            case _:
                assert_never(request)
    except NoSuchFact:
        raise BadRequest("unknown_fact", "fact: there is none of this id, or it is history already") from None
    except CannotUndo as error:
        raise BadRequest("cannot_undo", str(error)) from None


def fact_json(fact: Fact) -> dict[str, Any]:
    """A fact as plain JSON values."""
    return {
        "id": fact.id,
        "text": fact.text,
        "category": fact.category,
        "importance": fact.importance,
        "source": fact.source.value,
        "origin": fact.origin.value,
        "chat": fact.chat,
        "message": fact.message,
        "turn": fact.turn,
        "topic": fact.topic,
        "day": fact.day,
        "created_at": fact.created_at,
        "updated_at": fact.updated_at,
        "superseded_by": fact.superseded_by,
    }


async def list_facts(readers: Readers, user: UserId, request: FactList) -> dict[str, Any]:
    """A page of a user's facts. Raises BadRequest (``bad_args``), StorageError."""
    if request.category is not None and not is_category(request.category):
        raise BadRequest("bad_args", f"args.category: {_CATEGORY}")
    limit, page = request.limit or DEFAULT_LIMIT, request.page or 1
    found = await readers.run(
        sql.of_user, user, category=request.category, limit=limit, offset=min(limit * (page - 1), 2**53)
    )
    total = await readers.run(sql.count, user, category=request.category)
    return {
        "user": user,
        "category": request.category,
        "count": total,
        "facts": [fact_json(fact) for fact in found],
        "next": page + 1 if limit * page < total else None,
    }


async def _add(facts: Facts, user: UserId, fields: dict[str, Any]) -> dict[str, Any]:
    replaces = fields.get("replaces")
    outcome = await facts.save(
        user,
        fields["text"],
        category=fields.get("category", "other"),
        importance=fields.get("importance", DEFAULT_IMPORTANCE),
        source=FactSource.USER,
        origin=Origin.USER,
        replaces=FactId(replaces) if replaces is not None else None,
    )
    match outcome:
        case Saved():
            return {"fact": fact_json(outcome.fact), "added": True}
        case Known():
            return {"fact": fact_json(outcome.fact), "added": False}
        case NoOlder():
            raise _bad([Problem("replaces", "there is no fact of this id, or it is history already")])


async def _history(readers: Readers, user: UserId, fact: FactId) -> dict[str, Any]:
    past = await readers.run(sql.history, user, fact)
    if not past:
        raise NoSuchFact
    changes = [
        {"entry": each.entry, "at": each.at, "fact": fact_json(each.fact) if each.fact is not None else None}
        for each in past
    ]
    return {"user": user, "id": fact, "changes": changes}


async def _undo(facts: Facts, user: UserId, request: FactUndo) -> dict[str, Any]:
    undone = await facts.undo(user, FactId(request.fact), to=request.entry)
    if isinstance(undone, Known):
        raise _exists(undone)
    return {
        "id": request.fact,
        "fact": fact_json(undone.fact) if undone.fact is not None else None,
        "revived": [fact_json(each) for each in undone.revived],
    }


def _written(outcome: Saved | Known) -> Fact:
    if isinstance(outcome, Known):
        raise _exists(outcome)
    return outcome.fact


def _exists(known: Known) -> BadRequest:
    return BadRequest("fact_exists", f"nothing was changed: the fact {known.fact.id} says the same")


# -- fields ------------------------------------------------------------------------------------------------------------

_CATEGORY = "must have 1 to 32 of a-z, 0-9, _ and -, and begin with a letter"


def _read(fields: dict[str, Any], known: tuple[str, ...], *, needed: str | None = None) -> dict[str, Any]:
    """Check raw fields. Raises BadRequest (``bad_fact``) that names every wrong one."""
    if problems := problems_in(fields, known, _wrong, needed=needed):
        raise _bad(problems)
    return fields


def _wrong(field: str, value: Any) -> str | None:
    match field:
        case "importance":
            fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100
            return None if fits else "must be a whole number from 0 to 100"
        case "category":
            return None if isinstance(value, str) and is_category(value) else _CATEGORY
        case "text":
            return _wrong_text(value)
        case _:
            return None if isinstance(value, str) and 1 <= len(value) <= 64 else "must be the id of a fact"


def _wrong_text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be a text"
    try:
        fact_text(value)
    except InvalidFact as error:
        return str(error).removeprefix("text: ")
    return None


def _bad(problems: list[Problem]) -> BadRequest:
    return BadRequest("bad_fact", "; ".join(map(str, problems)), problems)
