"""``klaw serve`` that kills itself at a named point of storing what a run says; for ``tools/run_drill.py``.

    KLAW_DRILL_POINT=between KLAW_DRILL_SKIP=3 python -m tools.drill_server serve --home DIR

The points, for the group of writes that holds a run's message in a chat together with the run's new state:

- ``before``: nothing of it is written
- ``between``: the message is in its chat's log, the run's state in none
- ``logs``: both logs have their lines; the commit log, which makes them durable, has none
- ``commit``: durable, and not in the database
- ``after``: in the database, and nobody knows

and ``begun``: a run that begins is stored, and not started.
"""

import os
import signal
import sys
from collections.abc import Sequence

from klaw.cli.main import main
from klaw.store.engine.commit_log import LogEntry
from klaw.store.engine.journal import Journal

POINTS = ("before", "between", "logs", "commit", "after", "begun")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingJournal(Journal):
    """A journal that ends the process at the point, when it came by it often enough."""

    point = os.environ.get("KLAW_DRILL_POINT", "")
    skip = int(os.environ.get("KLAW_DRILL_SKIP", "0"))
    armed = False

    def append(self, entries: Sequence[LogEntry]) -> None:
        states = [entry.line for entry in entries if entry.path.startswith("runs/")]
        if self.point == "begun":
            here = any('"status":"running"' in line and '"details":{}' in line for line in states)
        else:
            spoken = (entry.line for entry in entries if entry.path.startswith("conversations/"))
            here = bool(states) and any('"type":"scheduled"' in line for line in spoken)
        if here and self.point:
            cls = type(self)
            cls.skip, cls.armed = cls.skip - 1, cls.skip <= 0
        self._at("before")
        super().append(entries)
        self._at("commit")

    def keep(self) -> None:
        self._at("after", "begun")
        super().keep()

    def _descriptor(self, path: str) -> int:
        if path.startswith("runs/"):
            self._at("between")
        return super()._descriptor(path)

    def _write(self, descriptor: int, data: bytes) -> None:
        if descriptor == self._commit:
            self._at("logs")
        super()._write(descriptor, data)

    def _at(self, *points: str) -> None:
        if self.armed and self.point in points:
            _die()


if __name__ == "__main__":
    import klaw.app.app

    klaw.app.app.Journal = DyingJournal  # type: ignore[misc]
    sys.exit(main())
