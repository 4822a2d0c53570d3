"""Token estimate: characters / 3.5 for Latin text, characters / 2 for other scripts."""

import math
import re

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
