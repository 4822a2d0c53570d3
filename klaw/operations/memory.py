"""What is remembered about a user, at a glance: core memory and the most important facts."""

from typing import TYPE_CHECKING, Any

from klaw.domain import core_memory
from klaw.domain.names import UserId
from klaw.errors import CoreUnreadable
from klaw.operations.facts import as_json
from klaw.operations.operation import Lines, Noun, OfUser, Slash, Table, also

if TYPE_CHECKING:
    from klaw.store.engine.database import Readers

SHOWN_FACTS = 20
MAX_LINE = 200
"""Characters of a fact that are shown."""

NOUN = Noun("memory", "show core memory and the most important facts")


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
    rows = [[each["id"], f"{each['importance']:>3}", f"{each['category']}: {_short(each['text'])}"] for each in facts]
    return [*core, "Facts, the most important first:", Table(rows), *also(answer, "facts", "klaw facts list")]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"


_SLASH = Slash(word="/memory", help="show what is remembered about you: core memory and the most important facts")


@NOUN.operation("memory", OfUser, cli="", show=_shown, offline=True, slash=_SLASH)
async def show(user: UserId, readers: "Readers") -> dict[str, Any]:
    """Show core memory and the most important facts."""
    from klaw.store.kinds import facts
    from klaw.store.kinds.core_memory import read_core

    document, error = None, None
    try:
        document = await readers.run(read_core, user)
    except CoreUnreadable as problem:
        error = str(problem)
    found = await readers.run(facts.of_user, user, limit=SHOWN_FACTS)
    return {
        "user": user,
        "core": core_memory.render(document) if document else "",
        "core_error": error,
        "facts": [as_json(each) for each in found],
        "count": await readers.run(facts.count, user),
    }
