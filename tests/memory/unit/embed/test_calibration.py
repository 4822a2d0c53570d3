"""Measuring what unrelated texts look like to a model: which pairs count, what is refused, and what it gives for e5."""

import json
from pathlib import Path

import numpy as np
import pytest

from klaw.errors import ModelError
from klaw.memory.embed import calibration
from klaw.memory.embed.calibration import Talk, built_in, measure, of_messages, read_talk
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import PassageText


def test_the_built_in_texts_give_what_conversations_gave(embedding_model_dir: Path) -> None:
    """0.76 to 0.80 was measured with e5 on ten conversations; each language by itself lies in that range, too."""
    model = EmbeddingModel.load(embedding_model_dir, threads=2)
    english, russian = (measure(model.embed, [talk]).mean for talk in built_in())
    both = measure(model.embed, built_in())
    model.close()
    assert 0.76 < english < 0.80
    assert 0.76 < russian < 0.80
    assert both.mean == pytest.approx(0.78, abs=0.015)
    assert 0.02 < both.deviation < 0.05
    assert both.pairs == both.queries * both.messages / 2


def test_related_pairs_are_not_counted() -> None:
    talk = Talk(messages=tuple("abcdefghij" * 2), queries=tuple("abcdefghij"), related=frozenset())
    everything = measure(_one_hot, [talk])
    assert everything.mean == pytest.approx(0.1)
    related = frozenset((query, message) for query in range(10) for message in (query, query + 10))
    apart = measure(_one_hot, [Talk(messages=talk.messages, queries=talk.queries, related=related)])
    assert (apart.mean, apart.pairs) == (0.0, 180)


def _one_hot(texts, _kind):
    return np.eye(128, dtype=np.float32)[[ord((text if isinstance(text, str) else text.text)[-1]) for text in texts]]


def test_passages_are_measured_as_they_are_embedded() -> None:
    seen = []

    def embed(texts, kind):
        seen.append((kind, list(texts)))
        return _one_hot(texts, kind)

    measure(embed, [Talk(messages=tuple("abcdefghij"), queries=tuple("klmnopqrst"))])
    read_after = zip("bcdefghij", "abcdefghi", strict=True)
    assert seen[1] == ("passage", [PassageText("a"), *(PassageText(text, before) for text, before in read_after)])


def test_messages_alone_ask_themselves_but_not_their_neighbours() -> None:
    talk = of_messages([f"Сообщение {number}" for number in range(30)])
    assert talk.queries == talk.messages
    assert {(5, 3), (5, 7), (5, 5)} <= talk.related
    assert (5, 8) not in talk.related
    asking = of_messages([f"Где {number}?" if number % 2 else f"Там {number}" for number in range(30)])
    assert all(query.endswith("?") for query in asking.queries)
    assert len(asking.queries) == 15
    assert (0, 1) in asking.related, "the first question is the second message"


def test_many_texts_are_thinned_out() -> None:
    talk = of_messages([chr(97 + number % 26) for number in range(5_000)])
    found = measure(_one_hot, [talk])
    assert (found.queries, found.messages) == (calibration.MAX_QUERIES, calibration.MAX_MESSAGES)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_vectors_that_are_no_numbers_are_refused(value: float) -> None:
    with pytest.raises(ModelError, match="not numbers"):
        measure(lambda texts, _kind: np.full((len(texts), 4), value, np.float32), built_in())


def test_too_few_texts_are_refused() -> None:
    with pytest.raises(ModelError, match=r"too few texts: 9 pairs .* at least 100"):
        measure(_one_hot, [Talk(messages=("a", "b", "c"), queries=("a", "b", "c"))])
    with pytest.raises(ModelError, match="too few texts: 0 pairs"):
        measure(_one_hot, [])


def test_texts_are_read_from_lines_and_from_conversations(tmp_path: Path) -> None:
    lines = tmp_path / "mine.txt"
    lines.write_text("\ufeffПривет, как дела?\n\n  hello \nhello\n", "utf-8")
    assert read_talk(lines).messages == ("Привет, как дела?", "hello")
    talk = tmp_path / "talk.json"
    messages = [{"id": f"m{at}", "role": "user", "content": text} for at, text in enumerate(("один", "two"))]
    talk.write_text(json.dumps({"messages": messages}), "utf-8")
    assert read_talk(talk).messages == read_talk(talk).queries == ("один", "two")
    talk.write_text(json.dumps({"messages": messages, "questions": [{"query": "which?", "evidence": ["m1", "m9"]}]}))
    assert read_talk(talk) == Talk(messages=("один", "two"), queries=("which?",), related=frozenset({(0, 1)}))


@pytest.mark.parametrize(
    ("content", "problem"),
    {
        "no messages": ('{"questions": []}', "messages: .*"),
        "empty": ('{"messages": []}', "messages: must have at least 1 entries"),
        "content": ('{"messages": [{"content": "a"}, {"content": 5}]}', r"messages\[1\]\.content: must be a text"),
        "item": ('{"messages": ["a"]}', r"messages\[0\]: must be an object"),
        "query": ('{"messages": [{"content": "a"}], "questions": [{}]}', r"questions\[0\]\.query: .*"),
        "evidence": (
            '{"messages": [{"content": "a"}], "questions": [{"query": "a", "evidence": 1}]}',
            r"questions\[0\]\.evidence: must be a list",
        ),
        "cut": ('{"messages": [', "looks like JSON but is not"),
    }.values(),
)
def test_a_wrong_conversation_is_refused_with_its_field(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "talk.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=rf"talk\.json: {problem}"):
        read_talk(path)


def test_unreadable_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.txt: cannot be read"):
        read_talk(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ModelError, match=r"latin\.txt: is not UTF-8"):
        read_talk(tmp_path / "latin.txt")
