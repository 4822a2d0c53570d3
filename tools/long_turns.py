"""Conversations with long answers, made of those of bench_recall: an assistant writes 1,500 characters and more.

Of a session every first turn stays a short one of the user, and those after it become one message of the assistant, of
about N characters. Conversations of paragraphs (long messages) are joined to answers without turns between them.
Evidence then is a message and the text in it, its *passage*. Of a long paragraph that is the sentence with most of the
question's letters: nobody can put the whole of it into 400 tokens.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import log
from typing import Any, TypeAlias

from klaw.domain.message import SESSION_PAUSE_S

PARAGRAPH_CHARACTERS = 500
"""Messages of this mean length are paragraphs."""
PASSAGE_CHARACTERS = 300
"""Of longer evidence one sentence is looked for."""
FOUND_SHARE = 0.6
"""A passage is shown when so much of it is."""
_GRAM = 4
_SPEAKER = re.compile(r"^([^\W\d_][\w .'’-]{0,40}):\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")
_LEFT_OUT = re.compile(r"\s*…\s*")

Json: TypeAlias = dict[str, Any]


def lengthen(conversation: Json, characters: int) -> Json:
    """The same conversation in long messages; its questions have ``passages``: pairs of a message's id and a text."""
    turns = conversation["messages"]
    alone = sum(len(turn["content"]) for turn in turns) / len(turns) < PARAGRAPH_CHARACTERS
    made: list[Json] = []
    texts: dict[str, tuple[str, str]] = {}
    for number, group in enumerate(_groups(turns, characters, alone=alone)):
        own = f"L{number}"
        told = [_told(turn["content"]) if len(group) > 1 else turn["content"] for turn in group]
        role = "user" if alone and len(group) == 1 else "assistant"
        made.append({"id": own, "role": role, "ts": group[0]["ts"], "content": "\n".join(told)})
        texts.update((turn["id"], (own, text)) for turn, text in zip(group, told, strict=True))
    weights = _weights([turn["content"] for turn in turns])
    questions = []
    for question in conversation["questions"]:
        found = [texts[each] for each in question["evidence"] if each in texts]
        passages = [(own, _passage(text, question["query"], weights)) for own, text in found]
        questions.append({**question, "evidence": sorted({own for own, _ in found}), "passages": passages})
    return {**conversation, "messages": made, "questions": questions}


def _groups(turns: Sequence[Json], characters: int, *, alone: bool) -> Iterator[Sequence[Json]]:
    for session in _sessions(turns) if alone else [turns]:
        at = 0
        while at < len(session):
            if alone:
                yield session[at : at + 1]
                at += 1
            end, size = at, 0
            while end < len(session) and size < characters:
                size += len(session[end]["content"])
                end += 1
            if end > at:
                yield session[at:end]
            at = end


def _sessions(turns: Sequence[Json]) -> Iterator[Sequence[Json]]:
    times = [datetime.fromisoformat(turn["ts"]).timestamp() for turn in turns]
    cuts = [at for at in range(1, len(turns)) if times[at] - times[at - 1] > SESSION_PAUSE_S]
    for begin, end in zip([0, *cuts], [*cuts, len(turns)], strict=True):
        yield turns[begin:end]


def _told(content: str) -> str:
    """A turn in somebody else's answer: the name stays, but not as that of the message's speaker."""
    return _SPEAKER.sub(r"– \1: ", content)


def _weights(texts: Sequence[str]) -> Mapping[str, float]:
    counts = Counter(gram for text in texts for gram in _grams(text))
    return {gram: log(len(texts) / count) for gram, count in counts.items()}


def _grams(text: str) -> set[str]:
    plain = " ".join(re.findall(r"\w+", text.casefold()))
    return {plain[at : at + _GRAM] for at in range(len(plain) - _GRAM + 1)}


def _passage(text: str, query: str, weights: Mapping[str, float]) -> str:
    if len(text) <= PASSAGE_CHARACTERS:
        return text
    asked = _grams(query)

    def value(sentence: str) -> float:
        return sum(weights.get(gram, 0.0) for gram in asked & _grams(sentence))

    return max(_SENTENCE_END.split(text), key=value)


def is_shown(content: str, shown: str, passage: str) -> bool:
    """Whether an excerpt of a message shows a passage of it: most of it, or its longest sentence. By places, so that
    the same words elsewhere count nothing."""
    seen: set[int] = set()
    after = 0
    for piece in filter(None, _LEFT_OUT.split(shown)):
        found = content.find(piece, after)
        if found >= 0:
            after = found + len(piece)
            seen.update(range(found, after))
    begin = content.find(passage)
    return any(
        len(seen.intersection(range(first, first + len(text)))) >= FOUND_SHARE * len(text)
        for text, first in ((passage, begin), _longest_sentence(passage, begin))
    )


def _longest_sentence(passage: str, begin: int) -> tuple[str, int]:
    longest = max(_SENTENCE_END.split(passage), key=len)
    return longest, begin + passage.find(longest)
