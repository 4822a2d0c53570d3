"""Recall tells of each candidate how well its words meet the question's, where both have codes."""

from pathlib import Path

import pytest

from klaw.store.engine.transaction import Transaction
from tests.support.memory.recalling import recalling

SAID = [
    "The spare key of the garden house lies under the third flower pot.",
    "Запасной ключ от дачи лежит под третьим цветочным горшком.",
    "My sister Anna is allergic to peanuts and walnuts.",
    "Моя сестра Аня не переносит арахис и грецкий орех.",
]
QUESTIONS = [("Where does the spare key of the garden house lie?", 1), ("Где лежит запасной ключ от дачи?", 2)]


def drop(tx: Transaction, rowid: int) -> None:
    tx.connection.execute("DELETE FROM token_codes WHERE rowid = ?", (rowid,))


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
async def test_the_message_that_answers_has_the_highest_score(
    tmp_path: Path, embedding_model_dir: Path, question: str, answer: int
) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say([question], chat="other")
        said = await here.say(SAID)
        found = await here.ask(question)
        scores = {each.message.seq: each.token_score for each in found.candidates}
        assert None not in scores.values()
        assert max(scores, key=lambda seq: scores[seq] or 0) == answer
        assert "tokens" in found.timings_ms
        assert found.degraded == ()

        await here.store.writer.run(drop, said[answer - 1].rowid)  # as of a message of an earlier version
        again = await here.ask(question)
        assert {each.message.seq: each.token_score for each in again.candidates} == pytest.approx(
            {**scores, answer: None}, abs=1e-6
        )
