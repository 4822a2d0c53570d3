"""Token estimate: characters / 3.5 for Latin text, characters / 2 for other scripts (architecture.md, section 5)."""

import math

LATIN_CHARACTERS_PER_TOKEN = 3.5
OTHER_CHARACTERS_PER_TOKEN = 2.0
PER_MESSAGE = 4
"""What role markers and separators of a chat template cost for each message."""

_LATIN_END = "\u0250"
"""First character after Latin Extended-B; below it are ASCII and the accented letters of European languages."""


def estimate(text: str) -> int:
    """Estimated number of tokens of a text, at least 1 for a text that is not empty."""
    if not text:
        return 0
    latin = len(text) if text.isascii() else sum(character < _LATIN_END for character in text)
    return math.ceil(latin / LATIN_CHARACTERS_PER_TOKEN + (len(text) - latin) / OTHER_CHARACTERS_PER_TOKEN)
