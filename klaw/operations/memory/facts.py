"""What is remembered about a user: facts, and core memory. The answers hold it, so they never go into a log."""

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar

import attrs

from klaw.convert import Bounds
from klaw.domain import core_memory
from klaw.domain.fact import Category, Fact, FactId, FactSource, Origin
from klaw.domain.text import cut, one_line
from klaw.errors import CoreUnreadable, NoSuchFact
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Lines, Table
from klaw.operations.record_fields import changes, own_fields
from klaw.operations.records import Records

if TYPE_CHECKING:
    from klaw.memory.facts.facts import KnownFact

T = TypeVar("T")
SHOWN_FACTS = 20
MAX_LINE = 200

NOUN = op.Noun(
    "facts", "list, add, change and remove what is remembered about a user (docs/topics.md)", invalid="bad_fact"
)
MEMORY = op.Noun("memory", "show core memory and the most important facts")


@attrs.frozen(kw_only=True)
class FactList(op.PagedArguments):
    category: Category | None = op.argument(
        "only this one: identity, preference, person, project, event and so on", metavar="NAME"
    )


@attrs.frozen(kw_only=True)
class Replacing:
    replaces: Annotated[str, Bounds(1, 64)] | None = op.argument(
        "the fact that it corrects and replaces", metavar="FACT"
    )


FACTS = Records(NOUN, Fact, "fact", "facts", kind=lambda: stored.facts.FACT, adding=Replacing, unknown=NoSuchFact)


def fact_lines(answer: dict[str, Any]) -> Lines:
    known = [] if answer.get("added", True) else ["known already, nothing was written"]
    return [*known, *FACTS.one_lines(answer)]


def _written(outcome: "T | KnownFact") -> T:
    """What was done. Raises OperationError: nothing was changed."""
    from klaw.memory.facts.facts import KnownFact

    if isinstance(outcome, KnownFact):
        raise op.OperationError("fact_exists", f"nothing was changed: the fact {outcome.fact.id} says the same")
    return outcome


def _author(caller: Caller) -> dict[str, Any]:
    """Whose statement it is. What a program says is a model's, which may have read anything before."""
    if caller.client is None:
        return {"source": FactSource.USER, "origin": Origin.USER}
    return {"source": FactSource.TOOL, "origin": Origin.TOOL, "client": caller.client}


@FACTS.handler("list", arguments=FactList, more={"category": str | None}, offline=True, mcp="list")
async def list_facts(asked: FactList, caller: Caller, parts: DatabaseParts) -> dict[str, Any]:
    """List the facts, the most important first.

    What is known of the user at a glance; to find something use search.
    """
    of, limit, user = asked.category, asked.limit, caller.user
    found = await parts.readers.run(stored.facts.of_user, user, category=of, limit=limit, offset=asked.offset)
    total = await parts.readers.run(stored.facts.count, user, category=of)
    return {"user": user, "category": of, "count": total, "facts": found, "next": asked.following(total)}


@FACTS.handler("add", show=fact_lines, more={"added": NotRequired[bool]}, mcp="save")
async def add(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Add a statement, unless it is known already.

    Save what the user tells of themselves and their world and what shall last, with names instead of he or she and
    dates instead of tomorrow; not what can be looked up. Only after this has answered may you say that you remember it.
    """
    from klaw.memory.facts.facts import FactSaved, NoOlder

    replaces, new = asked.fields.replaces, own_fields(Fact, asked.fields)
    done = await parts.memory.facts.save(caller.user, **new, replaces=replaces, **_author(caller))
    if isinstance(done, NoOlder):
        raise op.OperationError(
            "bad_fact", "there is no fact with this id, or it was replaced before", field="replaces"
        )
    return {"fact": done.fact, "added": isinstance(done, FactSaved)}


@FACTS.handler("edit", show=fact_lines, mcp="correct")
async def edit(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Change a fact; what is not given stays as it is.

    For a fact that is wrong or out of date. search and list tell its id; its history stays.
    """
    changed = changes(Fact, asked.fields)
    done = await parts.memory.facts.edit(caller.user, FactId(asked.fact), **changed, **_author(caller))
    return {"fact": _written(done).fact}


@FACTS.handler("delete")
async def delete(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Remove a fact; its history stays, so that this can be undone."""
    return {"removed": await parts.memory.facts.remove(caller.user, FactId(asked.fact))}


FACTS.declare("history")


@FACTS.handler("undo")
async def undo(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Undo the newest change of a fact, also its removal or its creation."""
    done = _written(await parts.memory.facts.undo(caller.user, FactId(asked.fact), to=asked.entry))
    return {"id": asked.fact, "fact": done.fact, "revived": done.revived}


# -- all that is remembered, at a glance -----------------------------------------------------------------------------


def _shown(answer: dict[str, Any]) -> Lines:
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
    return [*core, "Facts, the most important first:", Table(rows), *op.also(answer, "facts", "klaw facts list")]


class MemoryAnswer(TypedDict):
    user: str
    core: str
    core_error: str | None
    facts: list[Fact]
    count: int


_SLASH = op.Slash(word="/memory", help="show what is remembered about you: core memory and the most important facts")


@MEMORY.operation("memory", op.OfUser, cli="", show=_shown, offline=True, slash=_SLASH)
async def memory(_asked: op.OfUser, caller: Caller, parts: DatabaseParts) -> MemoryAnswer:
    """Show core memory and the most important facts."""
    document, error = None, None
    try:
        document = await parts.readers.run(stored.core_memory.read_core, caller.user)
    except CoreUnreadable as problem:
        error = str(problem)
    return {
        "user": caller.user,
        "core": core_memory.render(document) if document else "",
        "core_error": error,
        "facts": await parts.readers.run(stored.facts.of_user, caller.user, limit=SHOWN_FACTS),
        "count": await parts.readers.run(stored.facts.count, caller.user),
    }
