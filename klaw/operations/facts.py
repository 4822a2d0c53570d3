"""What is remembered about a user: facts, and core memory beside them. The answers hold it, so they never go into a
log."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import attrs

from klaw.convert import Bounds, Check
from klaw.domain import core_memory
from klaw.domain.fact import DEFAULT_IMPORTANCE, MAX_TEXT, FactId, FactSource, Origin, fact_text, is_category
from klaw.domain.imported import ORIGIN
from klaw.domain.text import cut, one_line
from klaw.errors import CoreUnreadable, NoSuchFact
from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts, Parts

if TYPE_CHECKING:
    from klaw.memory.facts.facts import KnownFact
    from klaw.operations.answers.memory import (
        FactChange,
        FactHistory,
        FactPage,
        Memory,
        OneFact,
        RemovedFact,
        UndoneFact,
    )

T = TypeVar("T")
SHOWN_FACTS = 20
"""At a glance, each of at most ``MAX_LINE`` characters."""
MAX_LINE = 200

NOUN = op.Noun(
    "facts", "list, add, change and remove what is remembered about a user (docs/topics.md)", invalid="bad_fact"
)
MEMORY = op.Noun("memory", "show core memory and the most important facts")


def _category(name: str) -> str:
    if not is_category(name):
        raise ValueError("must have 1 to 32 of a-z, 0-9, _ and -, and begin with a letter")
    return name


Text = Annotated[str, Check(op.without_field(fact_text), Bounds(1, MAX_TEXT))]
Category = Annotated[str, Check(_category), Bounds(1, 32, r"[a-z][a-z0-9_-]*")]
Importance = Annotated[int, Bounds(0, 100)]

_CATEGORY = "identity, preference, person, project, event and so on"
_IMPORTANCE = "0 to 100; from 90 on it is part of every prompt, unless a program saved it over MCP"


@attrs.frozen(kw_only=True)
class FactList(op.Paged):
    category: Category | None = op.argument(f"only this one: {_CATEGORY}", metavar="NAME")


@attrs.frozen(kw_only=True)
class NewFact:
    text: Text = op.required("one statement that makes sense alone", words=True, stdin=True)
    category: Category = op.argument(_CATEGORY, default="other", metavar="NAME")
    importance: Importance = op.argument(_IMPORTANCE, default=DEFAULT_IMPORTANCE, metavar="N")
    replaces: Annotated[str, Bounds(1, 64)] | None = op.argument(
        "the fact that it corrects and replaces", metavar="FACT"
    )


@attrs.frozen(kw_only=True)
class FactAdd(op.OfUser):
    fields: NewFact = op.argument("the fact", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class OfFact(op.OfUser):
    fact: op.Name = op.required("its id as the list shows it, or the beginning of the id", id_of="fact")


@attrs.frozen(kw_only=True)
class FactFields:
    text: Text | None = op.argument("the new text", stdin=True)
    category: Category | None = op.argument(_CATEGORY, metavar="NAME")
    importance: Importance | None = op.argument(_IMPORTANCE, metavar="N")


@attrs.frozen(kw_only=True)
class FactEdit(OfFact):
    fields: Annotated[FactFields, Check(op.something, Bounds(1))] = op.argument("what to change", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class FactUndo(OfFact):
    entry: op.Whole | None = op.argument("go back to this entry of its history", metavar="N")


# -- how they are shown -----------------------------------------------------------------------------------------------


def _table(answer: dict[str, Any], again: Callable[..., str]) -> op.Lines:
    if not answer["facts"]:
        return ["no more facts" if answer["count"] else "no facts: `klaw facts add TEXT` adds one"]
    is_from = any(each["imported"] for each in answer["facts"])
    rows = [["fact", "imp", "category", "changed", *(["from"] if is_from else []), "text"]]
    for each in answer["facts"]:
        head = [each["id"], str(each["importance"]), each["category"], op.minute(each["updated_at"])]
        rows.append([*head, *([_imported(each) or "-"] if is_from else []), each["text"]])
    return [op.Table(rows, right=frozenset({1})), *op.more(answer, again)]


def _imported(fact: dict[str, Any]) -> str | None:
    """The import that brought it, as forgetting knows it."""
    return f"{ORIGIN}{fact['imported']}" if fact["imported"] else None


def fact_lines(answer: dict[str, Any]) -> op.Lines:
    """A fact with all that is known of it."""
    fact = answer["fact"]
    later = fact["superseded_by"]
    rows = [
        ("fact", fact["id"]),
        ("text", fact["text"]),
        ("category", fact["category"]),
        ("importance", str(fact["importance"])),
        ("source", f"{fact['source']}, in the words of: {fact['origin']}"),
        ("saved by", fact["client"]),
        ("brought by", _imported(fact)),
        ("topic", fact["topic"]),
        ("day", fact["day"]),
        ("changed", op.minute(fact["updated_at"])),
        ("history", f"{later} took its place" if later is not None else None),
    ]
    return [*([] if answer.get("added", True) else ["known already, nothing was written"]), op.details(rows)]


def _removed(answer: dict[str, Any]) -> op.Lines:
    fact = answer["removed"]
    return [f"removed {fact['id']}: {fact['text']}", f"to undo this: klaw facts undo {fact['id']}"]


def _history(answer: dict[str, Any]) -> op.Lines:
    head = ["entry", "at", "from", "imp", "category", "text"]
    return [op.Table([head, *map(_change, answer["changes"])], right=frozenset({0, 3}))]


def _change(change: dict[str, Any]) -> list[str]:
    fact, head = change["fact"], [str(change["entry"]), op.minute(change["at"])]
    if fact is None:
        return [*head, "-", "-", "-", "(removed)"]
    drawn = f"day {fact['day']}" if fact["day"] else f"topic {fact['topic']}" if fact["topic"] else fact["source"]
    drawn = _imported(fact) or drawn
    past = f" ({fact['superseded_by']} took its place)" if fact["superseded_by"] is not None else ""
    return [*head, drawn, str(fact["importance"]), fact["category"], fact["text"] + past]


def _undone(answer: dict[str, Any]) -> op.Lines:
    back = [f"valid again: {each['id']}: {each['text']}" for each in answer["revived"]]
    return [*(fact_lines(answer) if answer["fact"] is not None else [f"removed {answer['id']}"]), *back]


# -- the operations ---------------------------------------------------------------------------------------------------


def _written(outcome: "T | KnownFact") -> T:
    """What was done. Raises OperationError when nothing was changed."""
    from klaw.memory.facts.facts import KnownFact

    if isinstance(outcome, KnownFact):
        raise op.OperationError("fact_exists", f"nothing was changed: the fact {outcome.fact.id} says the same")
    return outcome


def _author(caller: Caller) -> dict[str, Any]:
    """Whose statement it is that the caller writes down. What a program says is a model's, which may have read anything
    before."""
    if caller.client is None:
        return {"source": FactSource.USER, "origin": Origin.USER}
    return {"source": FactSource.TOOL, "origin": Origin.TOOL, "client": caller.client}


@NOUN.operation("fact_list", FactList, cli="list", show=_table, offline=True, mcp="list")
async def list_facts(asked: FactList, caller: Caller, parts: DatabaseParts) -> "FactPage":
    """List the facts, the most important first.

    What is known of the user at a glance; to find something use search.
    """
    from klaw.store.kinds import facts

    of, limit = asked.category, asked.limit
    found = await parts.readers.run(facts.of_user, caller.user, category=of, limit=limit, offset=asked.offset)
    total = await parts.readers.run(facts.count, caller.user, category=of)
    return {"user": caller.user, "category": of, "count": total, "facts": found, "next": asked.following(total)}


@NOUN.operation("fact_add", FactAdd, cli="add", show=fact_lines, changes=True, mcp="save")
async def add(asked: FactAdd, caller: Caller, parts: Parts) -> "OneFact":
    """Add a statement, unless it is known already.

    Save what the user tells of themselves and their world and what shall last, with names instead of he or she and
    dates instead of tomorrow; not what can be looked up. Only after this has answered may you say that you remember it.
    """
    from klaw.memory.facts.facts import FactSaved, NoOlder

    new = asked.fields
    replaces = FactId(new.replaces) if new.replaces is not None else None
    done = await parts.memory.facts.save(
        caller.user, new.text, category=new.category, importance=new.importance, replaces=replaces, **_author(caller)
    )
    if isinstance(done, NoOlder):
        raise op.OperationError(
            "bad_fact", "there is no fact with this id, or it was replaced before", field="replaces"
        )
    return {"fact": done.fact, "added": isinstance(done, FactSaved)}


@NOUN.operation("fact_edit", FactEdit, cli="edit", show=fact_lines, changes=True, mcp="correct")
async def edit(asked: FactEdit, caller: Caller, parts: Parts) -> "OneFact":
    """Change a fact; what is not given stays as it is.

    For a fact that is wrong or out of date. search and list tell its id; its history stays.
    """
    changes = {**attrs.asdict(asked.fields), **_author(caller)}
    return {"fact": _written(await parts.memory.facts.edit(caller.user, FactId(asked.fact), **changes)).fact}


@NOUN.operation("fact_delete", OfFact, cli="delete", show=_removed, changes=True)
async def delete(asked: OfFact, caller: Caller, parts: Parts) -> "RemovedFact":
    """Remove a fact; its history stays, so that this can be undone."""
    return {"removed": await parts.memory.facts.remove(caller.user, FactId(asked.fact))}


@NOUN.operation("fact_history", OfFact, cli="history", show=_history)
async def history(asked: OfFact, caller: Caller, parts: Parts) -> "FactHistory":
    """Show all versions of a fact, the oldest first."""
    from klaw.store.kinds import facts

    past = await parts.readers.run(facts.history, caller.user, FactId(asked.fact))
    if not past:
        raise NoSuchFact
    changes: list[FactChange] = [{"entry": each.entry, "at": each.time, "fact": each.value} for each in past]
    return {"user": caller.user, "id": asked.fact, "changes": changes}


@NOUN.operation("fact_undo", FactUndo, cli="undo", show=_undone, changes=True)
async def undo(asked: FactUndo, caller: Caller, parts: Parts) -> "UndoneFact":
    """Undo the newest change of a fact, also its removal or its creation."""
    done = _written(await parts.memory.facts.undo(caller.user, FactId(asked.fact), to=asked.entry))
    return {"id": asked.fact, "fact": done.fact, "revived": done.revived}


# -- all that is remembered, at a glance -----------------------------------------------------------------------------


def _shown(answer: dict[str, Any]) -> op.Lines:
    if answer["core_error"] is not None:
        core = [f"Core memory: {answer['core_error']}."]
    elif not answer["core"]:
        core = ["Core memory is empty."]
    else:
        core = ["Core memory, part of every prompt:", *(f"  {line}" for line in answer["core"].split("\n"))]
    facts = answer["facts"]
    if not facts:
        return [*core, "No facts are known."]
    rows = [
        [each["id"], f"{each['importance']:>3}", f"{each['category']}: {cut(one_line(each['text']), MAX_LINE)}"]
        for each in facts
    ]
    return [*core, "Facts, the most important first:", op.Table(rows), *op.also(answer, "facts", "klaw facts list")]


_SLASH = op.Slash(word="/memory", help="show what is remembered about you: core memory and the most important facts")


@MEMORY.operation("memory", op.OfUser, cli="", show=_shown, offline=True, slash=_SLASH)
async def memory(_asked: op.OfUser, caller: Caller, parts: DatabaseParts) -> "Memory":
    """Show core memory and the most important facts."""
    from klaw.store.kinds import facts
    from klaw.store.kinds.core_memory import read_core

    document, error = None, None
    try:
        document = await parts.readers.run(read_core, caller.user)
    except CoreUnreadable as problem:
        error = str(problem)
    return {
        "user": caller.user,
        "core": core_memory.render(document) if document else "",
        "core_error": error,
        "facts": await parts.readers.run(facts.of_user, caller.user, limit=SHOWN_FACTS),
        "count": await parts.readers.run(facts.count, caller.user),
    }
