"""What a query says of itself: what it asks for, of whom, of when; whether it is a command or small talk. Pure."""

import re
from datetime import date

import attrs

from klaw.domain.days import Period, find_periods, local_day
from klaw.memory.recall.stopwords import MAX_CHARACTERS, content_words, is_about_us, is_light, search_words
from klaw.store.engine.tokenizer import stem, words

_COMMAND = re.compile(
    r"""\W*(?:please\s+|can\ you\s+|could\ you\s+|пожалуйста,?\s+)?
    (?:tell\ me\ an?\b|tell\ us\ an?\b|write\b|compose\b|translate\b|sing\b|generate\b|calculate\b|compute\b|convert\b
      |define\b|spell\b|count\b|rhyme\b|draw\b|explain\b|summari[sz]e\b
      |what\ time\ is\ it\b|what(?:'s|\ is)\ the\ (?:time|date)\b(?!\ of)|what\ day\ is\ (?:it|today)\b
      |расскажи\ (?:анекдот|шутку|сказку|что-нибудь)|напиши\b|сочини\b|переведи\b|спой\b|придумай\b|посчитай\b
      |вычисли\b|сгенерируй\b|нарисуй\b|объясни\b|который\ (?:сейчас\ )?час\b
      |сколько\ (?:сейчас\ )?времени\W*$|как(?:ое|ой)\ сегодня\ (?:число|день))""",
    re.VERBOSE | re.IGNORECASE,
)
_SUM = re.compile(r"\d\s*[+*×÷^]\s*\d|\d\s+[-−/]\s+\d|\d\s?%\s(?:of|от)\s\d")


def is_command(query: str) -> bool:
    """Whether a query tells the model to do something that needs nothing from the conversation, as far as words show.
    One that speaks of the user or of the conversation ("write to my sister about …") is not a command."""
    if is_sum(query):
        return True
    match = _COMMAND.match(query)
    return match is not None and not is_about_us(query, match.end())


def is_sum(query: str) -> bool:
    """Whether a query has something to calculate: its numbers then say nothing about the conversation."""
    return _SUM.search(query) is not None


MAX_WORDS = 64
"""Content words of a query that full text looks for; a longer query is cut."""
MAX_READ_CHARACTERS = 8_000
"""Only the beginning of a longer query (a pasted text) is read. Reading takes too long for the event loop."""
MAX_NAMES_CHARACTERS = 2_000
"""Only the beginning of a longer query is looked through for names."""


@attrs.frozen(kw_only=True)
class Query:
    """A question, read."""

    words: tuple[str, ...]
    """Its content words, as written."""
    content_stems: frozenset[str]
    stems: frozenset[str]
    """The stems of all its words: names may be among them."""
    command: bool
    """It tells the model to do something that needs nothing from the conversation."""
    periods: tuple[Period, ...]
    """The days that it names."""


def read_query(text: str, now: float, latest: date | None) -> Query:
    """Read a query of any length. "Yesterday" is counted from ``now`` (Unix seconds), in local time; ``latest`` is when
    something was last said in the scope, None where nothing was."""
    text = text[:MAX_READ_CHARACTERS]
    today = local_day(now)
    asked = _asked(text)
    return Query(
        words=tuple(asked),
        content_stems=frozenset(stem(word) for word in asked),
        stems=frozenset(stem(word) for word in words(text[:MAX_NAMES_CHARACTERS])),
        command=is_command(text),
        periods=find_periods(text, today=today, latest=latest or today),
    )


def _asked(text: str) -> list[str]:
    """The words that a query asks with; none for small talk."""
    asked = content_words(text, MAX_WORDS)
    if is_sum(text):
        asked = [word for word in asked if not word.isdecimal()]
    return [] if is_light(text, map(stem, asked)) else asked


def read_search_words(text: str) -> list[str]:
    """The words that a search which somebody asked for looks for, as written, each stem once: content words and emoji,
    or else whatever words there are."""
    said: dict[str, str] = {}
    for word in search_words(text[:MAX_CHARACTERS]):
        said.setdefault(stem(word), word)
    content = {stem(word) for word in content_words(text, MAX_WORDS)}
    telling = [word for form, word in said.items() if form in content or not any(map(str.isalnum, word))]
    return (telling or list(said.values()))[:MAX_WORDS]
