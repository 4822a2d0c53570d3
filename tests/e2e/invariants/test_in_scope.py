"""Invariant in-scope: recall sees the current segment of the current chat of the user, and nothing else."""

import pytest

from tests.support.inside import inside, kept
from tests.support.llm_server import serve_llm
from tests.support.server import write_home

FILLER = (
    "The weather was mild and the tram came on time.",
    "Сегодня на ужин будет суп с фасолью и немного хлеба.",
    "We repainted the fence behind the barn last weekend.",
    "Надо бы наконец вымыть окна на балконе до праздников.",
    "The bicycle needs a new chain before the summer tour.",
)
CASES = (
    ("The alarm code of the office is 48151 and it changes in March.", "What is the alarm code of the office?"),
    ("Код сигнализации в офисе — 48151, в марте его поменяют.", "Какой код сигнализации в офисе?"),
)


@pytest.mark.parametrize(("fact", "question"), CASES, ids=["english", "russian"])
async def test_in_scope_recalls_nothing_of_other_users_chats_and_segments(
    tmp_path, embedding_model_dir, fact, question
):
    """The fact, and the question itself, word by word, stand everywhere but in the segment: nothing is recalled.
    Said in the segment, the fact is."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, models=embedding_model_dir.parent, context={"slidingWindow": 4})
        async with inside(home) as here:
            await here.until(lambda: here.app.memory.embedder.status.state == "ready")
            for user, chat in (("anna", "main"), ("boris", "main"), ("boris", "other"), ("local", "main")):
                await here.ask(fact, chat, user)
                await here.ask(question, chat, user)
            await here.send("/new", "main", "boris")
            for text in FILLER:
                await here.ask(text, "main", "boris")
            await here.embedded()
            turn = await here.ask(question, "main", "boris")
            recall = turn.receipt["recall"]
            assert recall["guard"] == "search", "it did look"
            assert kept(turn) == []
            own = await here.app.chats.session("boris", "main")
            assert all(each["seq"] >= own.segment_start for each in recall["candidates"])

            said = await here.send(fact, "main", "boris")
            for text in FILLER:
                await here.ask(text, "main", "boris")
            await here.embedded()
            turn = await here.ask(question, "main", "boris")
            assert said in kept(turn), "the same words in the segment itself are recalled"
            found = next(each for each in turn.receipt["recall"]["candidates"] if each["seq"] == said)
            assert found["vector_rank"] is not None, "by vector"
            assert found["text_rank"] is not None, "and by full text"
    contexts = [request.messages for request in llm.requests if request.last_user == question]
    assert any(fact in str(context) for context in contexts)
