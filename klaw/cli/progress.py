"""How a long command shows where it is: a line that is redrawn on a terminal, one line a phase elsewhere."""

import time
from collections.abc import Callable
from typing import TextIO

from klaw.domain.text import span

BAR_CELLS = 24
REDRAW_S = 0.1


class ProgressLine:
    """Draws on a stream, at most every ``REDRAW_S`` within a phase, with rate and time left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._phase = ""
        self._drawn_at = self._since = 0.0
        self._first = 0
        self._open = False

    def show(
        self,
        label: str,
        done: int = 0,
        total: int = 0,
        amount: Callable[[int], str] = "{:,}".format,
        *,
        last: bool = False,
    ) -> None:
        """Show one report.

        Args:
            label: what is being done; a new one is drawn at once.
            done, total: how far it is; 0 where nobody knows.
            amount: how these are written.
            last: nothing follows in this line.
        """
        new = label != self._phase
        if not self._terminal:
            if new:
                print(f"{label} ({amount(total)})" if total else label, file=self._stream, flush=True)
            self._phase = label
            return
        now = time.monotonic()
        if new:
            self._phase, self._since, self._first = label, now, done
        elif not last and now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at, self._open = now, not last
        self._stream.write(f"\r\x1b[K{self._drawn(label, done, total, amount, now)}" + ("\n" if last else ""))
        self._stream.flush()

    def _drawn(self, label: str, done: int, total: int, amount: Callable[[int], str], now: float) -> str:
        if not total:
            return f"{label:<24} {amount(done) if done else ''}".rstrip()
        filled = min(BAR_CELLS, BAR_CELLS * done // total)
        text = f"{label:<24} [{'#' * filled}{'.' * (BAR_CELLS - filled)}] {amount(done)} / {amount(total)}"
        rate = (done - self._first) / (now - self._since) if now - self._since > 1 else 0
        return f"{text}  {amount(int(rate))}/s, {span((total - done) / rate)} left" if rate > 0 else text

    def finish(self) -> None:
        """End an unfinished line, so that a message can follow."""
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
            self._open = False
