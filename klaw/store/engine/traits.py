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


def _forms(words: str) -> frozenset[str]:
    """Words whose stem others share: «годится» has that of «год», «семья» that of «семь»."""
    return frozenset(words.split())


_TIMES = _stems("""
yesterday today tomorrow tonight ago next since recently just week weekend month year morning evening night monday
tuesday wednesday thursday friday saturday sunday january february april june july august september october
november december summer winter autumn
вчера позавчера сегодня завтра послезавтра назад недавно неделя выходные месяц понедельник вторник
четверг пятница суббота воскресенье январь февраль март апрель июнь июль август сентябрь октябрь ноябрь
декабрь утро вечер ночь зима весна осень
""")
_TIME_FORMS = _forms("""
last march год года году годом годе годы годов годам годами годах лет лето лета лету летом лете скоро
среда среды среду средам май мая маю маем мае
""")
_NUMBERS = _stems("""
one two three four five six seven eight nine ten eleven twelve dozen couple hundred thousand million once twice half
several few
один одна одно два двух две три трёх четыре четырёх пять шесть восемь девять десять тысяча миллион пара дважды трижды
полтора половина несколько много
""")
_NUMBER_FORMS = _forms("семь семи сто ста")
_FIRST = _forms("""
i my mine me we our
я мой моя моё мое мои моего моей моему моих моим моими мою мне меня мной мы наш наша наше наши нашего нашей нашу наших
""")
_MAY = re.compile(r"\bMay\b|\b(?:in|of|last|next|since|by) may\b|\bmay \d")
"""The month, not the verb."""
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
    of_time = not forms.isdisjoint(_TIMES) or not words.isdisjoint(_TIME_FORMS)
    if of_time or _MAY.search(said) or (numeric and _CLOCK.search(said)):
        found |= TIME
    if numeric or not forms.isdisjoint(_NUMBERS) or not words.isdisjoint(_NUMBER_FORMS):
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
