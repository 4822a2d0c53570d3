"""The heartbeat: a person's standing list, looked at from time to time. Reading it costs no call of a model.

A user's heartbeat is a task of a reserved name, made by ``/heartbeat``, so it is kept, rebuilt, timed and limited like
any other; its interval and its request come from elsewhere.
"""

import re
from pathlib import Path

import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.domain.names import UserId
from klaw.domain.prompt_files import HEARTBEAT_FILE
from klaw.domain.task import HEARTBEAT, MAX_TASK_MESSAGE_BYTES, Every, Task

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOTHING = re.compile(r"[\s#>*+_=|`~-]*(?:\[[ xX]?\])?\s*")
"""A line that says nothing: blank, a bare mark of a list, a box without words, a rule."""

log = structlog.get_logger("klaw.heartbeat")


def timed(task: Task, interval_s: int) -> Task | None:
    """The task with the interval that the configuration gives it; None when heartbeats are off. Other tasks as they
    are."""
    if task.name != HEARTBEAT:
        return task
    if not interval_s or task.inject_into is None:
        return None
    return attrs.evolve(task, trigger=Every(seconds=interval_s))


def says_something(text: str) -> bool:
    """Whether a list has anything to look after: more than headings, comments and empty items."""
    for line in _COMMENT.sub("", text).splitlines():
        if not line.lstrip().startswith("#") and not _NOTHING.fullmatch(line):
            return True
    return False


def read(workspace: Path, user: UserId) -> str | None:
    """A user's list, cut at the length of a request; None when it is missing, says nothing or cannot be read.
    Blocks."""
    try:
        with safe_open.opened(workspace, below_of_user(user, HEARTBEAT_FILE)) as file:
            raw = file.head(MAX_TASK_MESSAGE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("heartbeat_not_read", error=error_class(error))
        return None
    text = raw.decode("utf-8", "ignore").replace("\0", "").strip()
    return text if says_something(text) else None
