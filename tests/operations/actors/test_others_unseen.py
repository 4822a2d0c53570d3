"""What a user is told does not depend on what others do (26.B1): no counts, amounts or names of theirs."""

from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from klaw.app.app import App
from klaw.domain import usage
from klaw.domain.usage import NANO, UsageSum
from klaw.knowledge.indexer import Indexer
from klaw.knowledge.scan import SourceState
from klaw.operations.operation import OperationError, Scope
from klaw.operations.perform import operations
from klaw.store.kinds import messages
from tests.operations.actors.test_kb_forget import answer
from tests.support.admin import ANNA, BORIS
from tests.support.kb import Doors, fill
from tests.support.stores import new
from tests.support.turns import record


@pytest.fixture
async def app(app: App) -> App:
    await app.knowledge.stop()
    return app


async def library(app: App) -> tuple[str, dict[str, Any], str]:
    """A base of Anna's that Boris may read."""
    anna = Doors(app, ANNA)
    base = await anna.create("Garden")
    await anna("kb_share", base=base, member=BORIS)
    source = (await anna.add_file(base, "garden.txt", b"Plums grow here."))["source"]
    document = await fill(app, source, "garden.txt", "Plums grow here.")
    return base, source, document.id


async def work(app: App, user: str, *, chat: str = "main") -> None:
    """A turn that cost something."""
    asked = new("What grows in the garden?", user=user, chat=chat, at=app.core.clock.now())
    (stored,) = await app.core.writer.run(messages.append, [asked])
    spent = UsageSum(calls=1, prompt_tokens=70, cost_nano=NANO // 10)
    turn = attrs.evolve(record(stored.message), usage=usage.record({"cloud/model": spent}))
    await app.core.writer.run(messages.append, [], turn)
    app.llm.budget.charge(spent)


async def told(app: App, base: str, source: str) -> dict[str, Any]:
    """All that Anna can ask without changing anything."""
    anna, found = Doors(app, ANNA), {}
    given: dict[str, dict[str, Any]] = {
        "kb_show": {"base": base}, "kb_sources": {"base": base}, "kb_documents": {"base": base},
        "kb_search": {"base": base, "query": "garden plums"}, "search": {"query": "garden"},
        "fetch": {"what": "main#1"},
        "why": {"message": "main#1"}, "receipt": {"chat": "main", "why": "main#1"}, "chats_export": {"chat": "main"},
        "chats_summaries": {"chat": "main"}, "kb_chat": {}, "topics_search": {"query": "garden"},
        "person_find": {"text": "Boris"},
        "kb_delete": {"base": base}, "kb_remove": {"source": source}, "forget": {"what": "main#1"},
        "chats_delete": {"chat": "main"}, "kb_check": {},
    }  # fmt: skip
    for name, operation in sorted(operations().items()):
        arguments = attrs.fields(operation.arguments)
        needs = [each.name for each in arguments if each.default is attrs.NOTHING]
        if name in given or (operation.scope is Scope.OWN and not operation.changes and not needs):
            found[name] = await anna(name, **given.get(name, {}))
            found[name].pop("timings_ms", None)
    return found


async def test_what_others_do_makes_no_difference_to_what_a_user_is_told(app: App) -> None:
    base, source, document = await library(app)
    await work(app, ANNA)
    await answer(app, ANNA, base, source["id"], document)
    before = await told(app, base, source["id"])
    for chat in ("main", "secret"):
        await work(app, BORIS, chat=chat)
        await answer(app, BORIS, base, source["id"], document)
    boris = Doors(app, BORIS)
    await boris("fact_add", fields={"text": "The garden has a hole in its fence"})
    await boris.create("Boris's garden")
    assert len(before) > 20
    assert await told(app, base, source["id"]) == before


async def test_an_operator_is_told_how_many_answers_of_others_go(app: App) -> None:
    base, source, document = await library(app)
    await answer(app, BORIS, base, source["id"], document)
    assert (await Doors(app, "")("kb_delete", base=base, user=ANNA))["cited_by_others"] == 1
    removed = await Doors(app, ANNA)("kb_remove", source=source["id"], dry_run=False)
    assert (removed["cited_by_others"], removed["lines"]) == (None, None)


ASKING = [
    ("fact_history", "fact", "fact"), ("fact_delete", "fact", "fact"), ("fact_undo", "fact", "fact"),
    ("fetch", "what", "fact:fact"), ("forget", "what", "fact:fact"), ("forget", "what", "message"),
    ("forget", "what", "chat:chat"), ("chats_delete", "chat", "chat"), ("chats_export", "chat", "chat"),
    ("person_show", "person", "person"), ("person_history", "person", "person"), ("fetch", "what", "person:person"),
    ("fetch", "what", "message"), ("why", "message", "message"), ("receipt", "turn", "turn"),
    ("kb_show", "base", "base"),
    ("kb_delete", "base", "base"), ("kb_leave", "base", "base"), ("kb_check", "base", "base"),
    ("kb_remove", "source", "source"), ("kb_refresh", "source", "source"), ("kb_open", "document", "document"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "argument", "what"), ASKING)
async def test_what_others_have_is_answered_like_what_nobody_has(app: App, name: str, argument: str, what: str) -> None:
    boris = Doors(app, BORIS)
    await work(app, BORIS, chat="secret")
    base = await boris.create("Secret")
    source = (await boris.add_file(base, "secret.txt"))["source"]
    said = (await boris("why", message="secret#1"))["message"]["id"]
    there = {
        "fact": (await boris("fact_add", fields={"text": "The garden has a fence"}))["fact"]["id"],
        "person": (await boris("person_add", fields={"name": "Vera"}))["person"]["id"],
        "message": said, "chat": "secret", "base": base, "source": source["id"],
        "turn": (await boris("receipt", chat="secret"))["id"],
        "document": (await fill(app, source, "secret.txt", "A secret.")).id,
    }  # fmt: skip
    kind, mark, of = what.rpartition(":")

    async def refused(given: str) -> tuple[str, str]:
        with pytest.raises(OperationError) as caught:
            await Doors(app, ANNA)(name, **{argument: f"{kind}{mark}{given}"})
        return caught.value.code, str(caught.value).replace(given, "…")

    nobody = there[of][:-6] + ("zzzzzz" if of == "chat" else "000000")
    assert await refused(there[of]) == await refused(nobody)


def test_what_everybody_is_told_of_the_server_does_not_count() -> None:
    def told(*states: SourceState) -> Any:
        found: Any = SimpleNamespace(
            _scanner=SimpleNamespace(states=dict(enumerate(states))),
            _pages=SimpleNamespace(states={}),
            _watches=SimpleNamespace(failed=False),
            _storage_full=False,
            _waiting_since=None,
            _clock=SimpleNamespace(now=lambda: 0.0),
        )
        return Indexer.problems(found)

    one = SourceState(code="missing")
    assert told(one) == told(one, one, SourceState(code="ok")) != {}
