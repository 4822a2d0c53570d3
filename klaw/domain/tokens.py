"""Token estimate: characters / 3.5 for Latin text, characters / 2 for other scripts."""

import math
import re
from bisect import bisect_right

LATIN_CHARACTERS_PER_TOKEN = 3.5
OTHER_CHARACTERS_PER_TOKEN = 2.0
PER_MESSAGE = 4
"""What a chat template costs for each message."""

_OTHER = re.compile("[^\u0000-\u024f]+")
"""What is not Latin: up to Latin Extended-B are ASCII and the accented letters of European languages."""


def estimate(text: str) -> int:
    """Estimated number of tokens of a text, at least 1 for a text that is not empty."""
    if not text:
        return 0
    latin = len(text) if text.isascii() else len(_OTHER.sub("", text))
    return math.ceil(latin / LATIN_CHARACTERS_PER_TOKEN + (len(text) - latin) / OTHER_CHARACTERS_PER_TOKEN)


def fitting(text: str, most: int) -> int:
    """How many characters of the beginning of a text have at most so many tokens; at least 1."""
    sizes = range(2, min(len(text), int(most * LATIN_CHARACTERS_PER_TOKEN) + 1) + 1)
    return bisect_right(sizes, most, key=lambda size: estimate(text[:size])) + 1
