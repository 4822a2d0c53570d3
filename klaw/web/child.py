"""The process that renders the texts of one request. A text of a few thousand characters can take minutes or gigabytes:
expressions of Pygments' lexers take quadratic time, and a link that is defined once may be used a thousand times.

Standard input is a JSON list of texts. Standard output has a line for each, as it is done: its HTML, as JSON. A text
that would take too long is tried without colours, and then shown as it is.
"""

import json
import signal
import sys
import time
from html import escape

from klaw.actor.process import limit

TRY_S = 1.0
"""CPU time for one text with colours, and again without."""
ALL_S = 4.0
"""CPU time, after which all further texts are plain."""
MEMORY_BYTES = 192 * 1024 * 1024
MAX_HTML = 16 * 1024 * 1024
"""Characters of all texts; one that would exceed it is plain."""
NICE = 5


class _TooLong(BaseException):
    """No Exception: a library may catch those."""


def plain(text: str) -> str:
    """The HTML of a text that is shown as it is."""
    return f"<p>{'<br>'.join(escape(text).splitlines())}</p>"


def main() -> None:
    limit(MEMORY_BYTES, int(ALL_S + 2 * TRY_S), nice=NICE)
    signal.signal(signal.SIGPROF, _stop)  # a regular expression looks for signals while it searches, too
    left = MAX_HTML
    for text in json.load(sys.stdin.buffer):
        html = _rendered(text, left)
        left -= len(html)
        sys.stdout.buffer.write(json.dumps(html, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()


def _rendered(text: str, at_most: int) -> str:
    has_code = "```" in text or "~~~" in text
    for colours in (True, False) if has_code else (False,):
        if time.process_time() < ALL_S and (html := _in_time(text, at_most, colours=colours)) is not None:
            return html
    return plain(text)


def _in_time(text: str, at_most: int, *, colours: bool) -> str | None:
    """None: it takes too long, or too much."""
    from klaw.web.markdown import to_html

    try:
        signal.setitimer(signal.ITIMER_PROF, TRY_S)
        html = to_html(text, at_most, colours=colours)
        signal.setitimer(signal.ITIMER_PROF, 0)
    except (_TooLong, Exception):  # noqa: BLE001 - of a text that is made for it, anything may be raised
        signal.setitimer(signal.ITIMER_PROF, 0)
        return None
    return html


def _stop(_number: int, _frame: object) -> None:
    raise _TooLong


if __name__ == "__main__":
    main()
