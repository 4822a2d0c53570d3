"""Which stored answers were given passages of which documents: noted with the turn, made again from the logs, gone with
what is forgotten."""

from pathlib import Path
from typing import Any

import attrs

from klaw.domain.context_used import KEY, ContextUsed
from klaw.domain.knowledge import BaseId, DocumentId, SourceId, UsedPassage
from klaw.domain.message import Role
from klaw.domain.names import UserId, chat_id
from klaw.store.kinds import messages
from klaw.store.store import Store
from tests.support.forgetting import forgetter, lose_database
from tests.support.reindexing import differing, run
from tests.support.stores import new, running_store
from tests.support.turns import record

ANNA = UserId("anna")


def used(number: int, document: str | None, *, cited: bool) -> UsedPassage:
    return UsedPassage(
        number=number,
        base=BaseId("b"),
        source=SourceId("s"),
        document=DocumentId(document) if document else None,
        name="x.pdf",
        text="тайное слово",
        cited=cited,
    )


async def answered(store: Store, chat: str, *passages: UsedPassage) -> None:
    (asked,) = await store.writer.run(messages.append, [new("Какой срок?", user="anna", chat=chat)])
    told = ContextUsed(query="q", bases=(BaseId("b"),), passages=passages)
    turn = attrs.evolve(record(asked.message), receipt={"version": 2, KEY: told.written()})
    answer = new("Год [1].", user="anna", chat=chat, role=Role.ASSISTANT, turn=turn.id)
    await store.writer.run(messages.append, [answer], turn)


async def noted(store: Store) -> list[Any]:
    query = "SELECT document_id, base_id, chat_id, seq, cited FROM kb_used ORDER BY chat_id, seq, document_id"
    return await store.readers.run(lambda connection: connection.execute(query).fetchall())


async def test_uses_are_noted_rebuilt_and_forgotten(tmp_path: Path) -> None:
    main, other = chat_id(ANNA, "main"), chat_id(ANNA, "other")
    async with running_store(tmp_path) as store:
        graph = used(4, None, cited=True)
        await answered(
            store, "main", used(1, "d1", cited=True), used(2, "d1", cited=False), used(3, "d2", cited=False), graph
        )
        await answered(store, "main", used(1, "d2", cited=True))
        await answered(store, "other", used(1, "d1", cited=True))
        await answered(store, "other")
        all_of_them = [
            ("d1", "b", main, 2, 1),
            ("d2", "b", main, 2, 0),
            ("d2", "b", main, 4, 1),
            ("d1", "b", other, 2, 1),
        ]
        assert await noted(store) == all_of_them
    assert differing(run(tmp_path)) == set()
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        assert await noted(store) == all_of_them
        forget = forgetter(store, tmp_path)
        await forget.forget(await forget.find("chat:main", ANNA), with_facts=False, everywhere=False)
        assert await noted(store) == [("d1", "b", other, 2, 1)]
    assert differing(run(tmp_path)) == set()
    async with running_store(tmp_path) as store:
        assert await noted(store) == [("d1", "b", other, 2, 1)]
