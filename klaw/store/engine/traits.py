"""What can be told of a message beside its words, as bits of one number: whether it has a time, a number, a name,
speaks of who says it, asks, is short. English and Russian. A trigger makes it whenever a text is stored or changed
(migration 024), so that ranking (``memory.recall``) reads no texts. Pure.
"""

import re
from typing import Any

import apsw

from klaw.domain import tokens
from klaw.domain.text import speaker_prefix
from klaw.store.engine.tokenizer import stem

TIME, NUMBER, NAME, FIRST_PERSON, ASKS, SHORT = (1 << bit for bit in range(6))
FUNCTION = "klaw_traits"
"""Name in SQL."""

READ_CHARACTERS = 4_000
"""The beginning of a longer message is looked at."""
SHORT_WORDS, SHORT_TOKENS = 6, 20
"""No more are short; estimated tokens, for scripts without spaces."""


def _stems(words: str) -> frozenset[str]:
    return frozenset(map(stem, words.split()))


_TIMES = _stems("""
yesterday today tomorrow tonight ago last next since recently just week weekend month year morning evening night monday
tuesday wednesday thursday friday saturday sunday january february march april may june july august september october
november december summer winter autumn
вчера позавчера сегодня завтра послезавтра назад недавно скоро неделя выходные месяц год года лет понедельник вторник
среда четверг пятница суббота воскресенье январь февраль март апрель май июнь июль август сентябрь октябрь ноябрь
декабрь утро утром вечер вечером ночь ночью лето летом зима зимой весна весной осень осенью
""")
_NUMBERS = _stems("""
one two three four five six seven eight nine ten eleven twelve dozen couple hundred thousand million once twice half
several few
один одна одно два две три четыре пять шесть семь восемь девять десять сто тысяча миллион пара дважды трижды полтора
половина несколько много
""")
_FIRST = frozenset(
    """
i my mine me we our
я мой моя моё мое мои моего моей моему моих моим моими мою мне меня мной мы наш наша наше наши нашего нашей нашу наших
""".split()  # noqa: SIM905
)
_WORD = re.compile(r"[^\W\d_]+")
_NUMERIC = re.compile(r"\d")
_CLOCK = re.compile(r"(?<!\d)(?:(?:19|20)\d\d(?!\d)|\d\d?(?::\d\d)? ?[ap]\.?m\b|\d\d?:\d\d(?!\d))", re.IGNORECASE)
_NAME = re.compile(r" (?<=[\w,;)(] )[A-ZÀ-ÖØ-ÞА-ЯЁ][a-zß-öø-ÿа-яё]")
"""A capital that begins no sentence."""


def traits_of(text: str) -> int:
    """The traits of a text, without those of a speaker's name in front of it (``Anna: ``)."""
    said = text[:READ_CHARACTERS]
    said = said[len(speaker_prefix(said)) :]
    words = set(_WORD.findall(said.casefold()))
    forms = set(map(stem, words))
    found = 0
    numeric = _NUMERIC.search(said) is not None
    if not forms.isdisjoint(_TIMES) or (numeric and _CLOCK.search(said)):
        found |= TIME
    if numeric or not forms.isdisjoint(_NUMBERS):
        found |= NUMBER
    if _NAME.search(said):
        found |= NAME
    if not words.isdisjoint(_FIRST):
        found |= FIRST_PERSON
    if "?" in said or "？" in said:
        found |= ASKS
    if len(text) < READ_CHARACTERS and len(said.split()) <= SHORT_WORDS and tokens.estimate(said) <= SHORT_TOKENS:
        found |= SHORT
    return found


def _traits(*texts: Any) -> int:
    return traits_of(str(texts[0]))


def register(connection: apsw.Connection) -> None:
    """Make the function known to a connection; every connection that writes messages needs it."""
    connection.create_scalar_function(FUNCTION, _traits, 1, deterministic=True)
