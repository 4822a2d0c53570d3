"""The process that renders the texts of one request, or the answers of one connection while they grow. A text of a few
thousand characters can take minutes or gigabytes: expressions of Pygments' lexers take quadratic time, and a link that
is defined once may be used a thousand times.

Standard input is a JSON list of texts. Standard output has a line for each, as it is done: its HTML, as JSON. A text
that would take too long is tried without colours, and then shown as it is.

With the argument ``growing`` each line of standard input is ``[text, ended]``, and each line of standard output what
``klaw.web.markdown.growing`` makes of it, or null: it would take too long.
"""

import json
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any, TypeVar

from klaw.actor.process import limit

T = TypeVar("T")

TRY_S = 1.0
"""CPU time for one text with colours, and again without."""
ALL_S = 4.0
"""CPU time, after which all further texts are plain."""
GROWING_S = 120
"""CPU time for all answers of a connection until there is a pause."""
MEMORY_BYTES = 192 * 1024 * 1024
MAX_HTML = 16 * 1024 * 1024
"""Characters of all texts; one that would exceed it is plain."""
MAX_GROWING_HTML = 1024 * 1024
NICE = 5


class _TooLong(BaseException):
    """No Exception: a library may catch those."""


def plain(text: str) -> str:
    """The HTML of a text that is shown as it is."""
    return f"<p>{'<br>'.join(escape(text).splitlines())}</p>"


def main() -> None:
    grows = sys.argv[1:] == ["growing"]
    limit(MEMORY_BYTES, GROWING_S if grows else int(ALL_S + 2 * TRY_S), nice=NICE)
    signal.signal(signal.SIGPROF, _stop)  # a regular expression looks for signals while it searches, too
    if grows:
        for line in sys.stdin.buffer:
            _write(_grown(*json.loads(line)))
        return
    left = MAX_HTML
    for text in json.load(sys.stdin.buffer):
        html = _rendered(text, left)
        left -= len(html)
        _write(html)


def _write(answer: object) -> None:
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def _rendered(text: str, at_most: int) -> str:
    from klaw.web.markdown import to_html

    has_code = "```" in text or "~~~" in text
    for colours in (True, False) if has_code else (False,):
        if time.process_time() < ALL_S:
            html = _in_time(partial(to_html, text, at_most, colours=colours))
            if html is not None:
                return html
    return plain(text)


def _grown(text: str, ended: bool) -> Any:
    from klaw.web.markdown import growing

    return _in_time(partial(growing, text, MAX_GROWING_HTML, ended=ended))


def _in_time(make: Callable[[], T]) -> T | None:
    """None: it takes too long, or too much."""
    try:
        signal.setitimer(signal.ITIMER_PROF, TRY_S)
        made = make()
        signal.setitimer(signal.ITIMER_PROF, 0)
    except (_TooLong, Exception):  # noqa: BLE001 - of a text that is made for it, anything may be raised
        signal.setitimer(signal.ITIMER_PROF, 0)
        return None
    return made


def _stop(_number: int, _frame: object) -> None:
    raise _TooLong


if __name__ == "__main__":
    main()
