"""``klaw`` with an instrument that finds what holds up the event loop. Begins to count at SIGUSR1, and writes what it
found when the process ends.

    python -m tests.support.programs.longest_step OUT serve --home DIR

Two measures, both in seconds of CPU and not of a clock, so that a busy machine changes nothing: the longest step of a
task in the loop's thread, and what the process burnt while a thread that only wants to wake up could not (somebody held
the interpreter's lock).
"""

import atexit
import json
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import trio

from klaw.cli.main import main

NAP_S = 0.02


class LongestStep(trio.abc.Instrument):
    """The longest step, and whose it was."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.whose = ""
        self.locked_s = 0.0
        self._began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._began
        if took > self.longest_s:
            self.longest_s, self.whose = took, task.name

    def watch_lock(self) -> None:
        """Of a thread of its own: sleeps a little, again and again."""
        while True:
            begin = time.process_time()
            time.sleep(NAP_S)
            self.locked_s = max(self.locked_s, time.process_time() - begin)

    def reset(self) -> None:
        self.longest_s, self.whose, self.locked_s = 0.0, "", 0.0

    def write(self, out: Path) -> None:
        out.write_text(json.dumps({"step_s": self.longest_s, "whose": self.whose, "locked_s": self.locked_s}))


def run() -> int:
    out = Path(sys.argv[1])
    instrument = LongestStep()
    plain_run = trio.run
    trio.run = partial(plain_run, instruments=[instrument])
    atexit.register(instrument.write, out)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: instrument.reset())
    threading.Thread(target=instrument.watch_lock, daemon=True).start()
    return main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(run())
