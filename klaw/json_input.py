"""JSON from outside: its values are counted before any of them is made. Pure."""

import json
import re
from typing import Any, NoReturn

MOST_VALUES = 100_000
"""More than any input needs; parsing so many holds all other threads for at most a tenth of a second."""

_STRING_OR_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{,])', re.DOTALL)


def read_json(data: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises ValueError, which quotes the text, for other text and for more than
    ``MOST_VALUES``, RecursionError for one that is nested too deep."""
    if sum(map(data.count, (b"[", b"{", b","))) > MOST_VALUES:  # some of which may stand in texts
        left = MOST_VALUES
        for found in _STRING_OR_SIGN.finditer(data):
            left -= found.lastindex is not None
            if left < 0:
                raise ValueError(f"more than {MOST_VALUES} values")
    return _DECODER.decode(data.decode("utf-8-sig"))


def _refuse(_text: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
