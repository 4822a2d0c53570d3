"""Who speaks in a message whose text says so: "Anna: …", as group chats, bridges and imported logs write it. Pure."""

import re
from functools import lru_cache

from klaw.store.tokenizer import stem, words

_SPEAKER = re.compile(r"[^\W\d_][\w .'’-]{0,40}:\s+")


def speaker_prefix(text: str) -> str:
    """The name in front of a text with its colon and space; empty when there is none."""
    match = _SPEAKER.match(text)
    return match[0] if match else ""


def speaker_stems(text: str) -> frozenset[str]:
    """Stems of the name's words."""
    return _stems(speaker_prefix(text))


@lru_cache(maxsize=1024)
def _stems(prefix: str) -> frozenset[str]:
    return frozenset(stem(word) for word in words(prefix))
