"""How a long command shows where it is: a line that is redrawn on a terminal, one line a phase elsewhere."""

import time
from collections.abc import Callable
from typing import TextIO

BAR_CELLS = 24
REDRAW_S = 0.1


class ProgressLine:
    """Draws on a stream, at most every ``REDRAW_S`` within a phase."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._phase: str | None = None
        self._drawn_at = 0.0
        self._open = False

    def show(self, phase: str, plain: str, drawn: Callable[[], str], *, last: bool = False) -> None:
        """Show one report.

        Args:
            phase: what is being done; a new one is drawn at once.
            plain: its line where there is no terminal; printed once a phase.
            drawn: makes the line for a terminal.
            last: nothing follows in this line.
        """
        if not self._terminal:
            if phase != self._phase:
                print(plain, file=self._stream, flush=True)
            self._phase = phase
            return
        now = time.monotonic()
        if phase == self._phase and not last and now - self._drawn_at < REDRAW_S:
            return
        self._phase, self._drawn_at = phase, now
        self._stream.write(f"\r\x1b[K{drawn()}")
        self._stream.write("\n" if last else "")
        self._stream.flush()
        self._open = not last

    def finish(self) -> None:
        """End an unfinished line, so that a message can follow."""
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False


def bar(done: int, total: int) -> str:
    """A bar of ``BAR_CELLS`` cells."""
    filled = min(BAR_CELLS, BAR_CELLS * done // total) if total else 0
    return f"[{'#' * filled}{'.' * (BAR_CELLS - filled)}]"
