"""Chats with long answers, made of the conversations of bench_recall: beside short messages of the user stand answers
of an assistant of 300, 1,000 and 2,000 characters.

Of a dialogue every other turn stays as it is, said by the user; the turns between become answers: such a turn stands,
without its speaker's name, somewhere among turns of other conversations that share words with it. Of a conversation of
paragraphs every other one is an answer as it stands, the others are said by the user sentence by sentence. So half of
the evidence is in the user's messages and half in the answers. What is made depends on the conversation's name only.

Evidence then is a message and the text in it, its *passage*. Of a long text that is the sentence with most of the
question's letters: nobody can put the whole of it into 400 tokens.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import log
from typing import Any, TypeAlias

from klaw.domain.message import SESSION_PAUSE_S

SIZES = (300, 1_000, 2_000)
SEPARATORS = (" ", "\n\n", "\n- ")
"""Answers of models are prose, paragraphs or lists."""
TRIED = 12
"""So many places of other conversations are looked at for what goes into an answer."""
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


def lengthen(conversation: Json, others: Sequence[Json]) -> Json:
    """The same conversation with long answers, whose other sentences are of ``others``. Its questions have
    ``passages``, pairs of a message's id and a text, and as ``category`` where these stand: in ``questions`` (the
    user's messages), in answers of a size, or in ``both``."""
    chance = random.Random(conversation["name"])
    turns = conversation["messages"]
    paragraphs = is_of_paragraphs(conversation)
    filler = _Filler([each for each in others if _may_fill(each, conversation)], chance)
    made: list[Json] = []
    texts: dict[str, list[tuple[str, str]]] = {}
    places: dict[str, str] = {}
    for session in _sessions(turns):
        answers = chance.random() < 0.5
        for turn in session:
            content = turn["content"]
            if answers:
                place, content, told = ("answers", content, [content]) if paragraphs else filler.answer(content)
            else:
                place, told = "questions", _SENTENCE_END.split(content) if paragraphs else [content]
            contents = [content] if answers else told
            texts[turn["id"]] = []
            for number, text in enumerate(contents):
                own = f"{turn['id']}.{number}" if number else turn["id"]
                made.append({**turn, "id": own, "role": "assistant" if answers else "user", "content": text})
                places[own] = place
                texts[turn["id"]].append((own, told[number]))
            answers = not answers
    found = with_passages({**conversation, "messages": made}, texts)
    for question in found["questions"]:
        where = {places[own] for own in question["evidence"]}
        question["category"] = where.pop() if len(where) == 1 else "both"
    return {**found, "name": f"long-{conversation['name']}"}


def with_passages(conversation: Json, texts: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> Json:
    """A conversation whose questions have ``passages``. ``texts``: what a piece of evidence became, as ids of messages
    and the text in each; None: itself."""
    turns = conversation["messages"]
    told = texts if texts is not None else {turn["id"]: [(turn["id"], turn["content"])] for turn in turns}
    weights = _weights([turn["content"] for turn in turns])
    questions = []
    for question in conversation["questions"]:
        passages = [_passage(told[each], question["query"], weights) for each in question["evidence"] if each in told]
        questions.append({**question, "evidence": sorted({own for own, _ in passages}), "passages": passages})
    return {**conversation, "questions": questions}


def is_of_paragraphs(conversation: Json) -> bool:
    turns = conversation["messages"]
    return bool(sum(len(turn["content"]) for turn in turns) >= PARAGRAPH_CHARACTERS * len(turns))


def _may_fill(other: Json, conversation: Json) -> bool:
    is_other = other["name"] != conversation["name"] and not is_of_paragraphs(other)
    return is_other and other.get("language") == conversation.get("language")


class _Filler:
    """Turns of other conversations, each used once while there are enough."""

    def __init__(self, others: Sequence[Json], chance: random.Random) -> None:
        contents = [_SPEAKER.sub("", turn["content"]) for other in others for turn in other["messages"]]
        self._texts = [" ".join(content.split()) for content in contents if content.strip()]
        self._words = [_long_words(text) for text in self._texts]
        counts = Counter(word for each in self._words for word in each)
        self._weights = {word: log(len(self._texts) / count) for word, count in counts.items()}
        self._unused = set(range(len(self._texts)))
        self._chance = chance

    def answer(self, content: str) -> tuple[str, str, list[str]]:
        """Its size as a word, an answer with a turn's text in it, and that text."""
        own = _SPEAKER.sub("", content).strip()
        size = self._chance.choice(SIZES)
        pieces: list[str] = []
        while (missing := size - len(own) - sum(map(len, pieces))) > 0 and self._texts:
            pieces += self._run(own, missing)
        pieces.insert(self._chance.randint(0, len(pieces)), own)
        separator = self._chance.choice(SEPARATORS)
        text = separator.join(pieces)
        return str(size), f"- {text}" if separator.endswith("- ") else text, [own]

    def _run(self, own: str, characters: int) -> list[str]:
        """Turns that follow each other, where one has most of a text's rarer words among some that are looked at."""
        if not self._unused:
            self._unused = set(range(len(self._texts)))
        wanted = _long_words(own)
        tried = self._chance.sample(sorted(self._unused), min(TRIED, len(self._unused)))
        at = max(tried, key=lambda each: sum(self._weights[word] for word in wanted & self._words[each]))
        found: list[str] = []
        while characters > 0 and at in self._unused:
            self._unused.remove(at)
            found.append(self._texts[at])
            characters -= len(self._texts[at])
            at += 1
        return found


def _long_words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.casefold()) if len(word) > 3}


def _sessions(turns: Sequence[Json]) -> Iterator[Sequence[Json]]:
    times = [datetime.fromisoformat(turn["ts"]).timestamp() for turn in turns]
    cuts = [at for at in range(1, len(turns)) if times[at] - times[at - 1] > SESSION_PAUSE_S]
    for begin, end in zip([0, *cuts], [*cuts, len(turns)], strict=True):
        yield turns[begin:end]


def _weights(texts: Sequence[str]) -> Mapping[str, float]:
    counts = Counter(gram for text in texts for gram in _grams(text))
    return {gram: log(len(texts) / count) for gram, count in counts.items()}


def _grams(text: str) -> set[str]:
    plain = " ".join(re.findall(r"\w+", text.casefold()))
    return {plain[at : at + _GRAM] for at in range(len(plain) - _GRAM + 1)}


def _passage(told: Sequence[tuple[str, str]], query: str, weights: Mapping[str, float]) -> tuple[str, str]:
    """Of what a piece of evidence became, the message and the text in it that a question is about."""
    if len(told) == 1 and len(told[0][1]) <= PASSAGE_CHARACTERS:
        return told[0]
    asked = _grams(query)

    def value(sentence: tuple[str, str]) -> float:
        return sum(weights.get(gram, 0.0) for gram in asked & _grams(sentence[1]))

    return max(((own, sentence) for own, text in told for sentence in _SENTENCE_END.split(text)), key=value)


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
