"""A person at a terminal who answers the questions of a command."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

from tests.support.repository import REPOSITORY
from tests.support.server import clean_environ, klaw_command
from tests.support.waiting import HANG_S


def dialogue(
    arguments: Sequence[str], answers: Sequence[tuple[str, str]], environ: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a ``klaw`` command; each answer is typed once its question is there. Returns the exit code and all that the
    terminal showed. Blocks."""
    ours, theirs = pty.openpty()
    own = {"start_new_session": True, "stdin": theirs, "stdout": theirs, "stderr": theirs, "cwd": REPOSITORY}
    process = subprocess.Popen(
        klaw_command(*arguments),
        env={**clean_environ(), **(environ or {})},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        **own,
    )
    os.close(theirs)
    shown, begin, deadline = "", 0, time.monotonic() + HANG_S
    try:
        for question, answer in answers:
            while question not in shown[begin:]:
                shown += _more(ours, deadline, shown, question)
            begin = shown.index(question, begin) + len(question)
            os.write(ours, f"{answer}\n".encode())
        while (more := _more(ours, deadline, shown, "the end")) is not None and more:
            shown += more
        return process.wait(HANG_S), shown
    finally:
        process.kill()
        os.close(ours)


def _more(terminal: int, deadline: float, shown: str, expected: str) -> str:
    """What is shown next; empty at the end."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
    assert ready, f"{expected!r} did not come; the terminal shows:\n{shown}"
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:  # the other side is closed
        assert expected == "the end", f"{expected!r} did not come; the terminal showed:\n{shown}"
        return ""
