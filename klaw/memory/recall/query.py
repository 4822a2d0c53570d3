"""What recall reads in a query before it searches. Pure."""

from datetime import UTC, date, datetime

import attrs

from klaw.memory.recall.dates import Period, find_periods
from klaw.memory.recall.gate import is_command, is_sum
from klaw.memory.recall.stopwords import MAX_CHARACTERS, content_words, is_light, search_words
from klaw.store.search.tokenizer import stem, words

MAX_WORDS = 64
"""Content words of a query that full text looks for; a longer query is cut."""
MAX_READ_CHARACTERS = 8_000
"""Of a longer query (a pasted text) only the beginning is read. Reading takes too long for the event loop."""
MAX_NAMES_CHARACTERS = 2_000
"""Of a longer query only the beginning is looked through for names."""


@attrs.frozen(kw_only=True)
class Query:
    """A question, read."""

    words: tuple[str, ...]
    """Its content words, as written."""
    content_stems: frozenset[str]
    stems: frozenset[str]
    """Of all its words: names may be among them."""
    command: bool
    """It tells the model to do something that needs nothing from the conversation."""
    periods: tuple[Period, ...]
    """The days that it names."""


def read_query(text: str, now: float, latest: date | None) -> Query:
    """Read a query.

    Args:
        text: as the user wrote it; any length.
        now: Unix seconds; "yesterday" is counted from there, in UTC as all of Klaw's times.
        latest: when something was last said in the scope; None where nothing was.
    """
    text = text[:MAX_READ_CHARACTERS]
    today = datetime.fromtimestamp(now, UTC).date()
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
    """The words that a search which somebody asked for looks for, as written, each stem once.

    Content words and emoji; when there are none of these, whatever words there are.
    """
    said: dict[str, str] = {}
    for word in search_words(text[:MAX_CHARACTERS]):
        said.setdefault(stem(word), word)
    content = {stem(word) for word in content_words(text, MAX_WORDS)}
    telling = [word for form, word in said.items() if form in content or not any(map(str.isalnum, word))]
    return (telling or list(said.values()))[:MAX_WORDS]
