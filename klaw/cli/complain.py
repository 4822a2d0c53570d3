"""What goes wrong, told to the person at the terminal or in the journal."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from klaw.actor.log import priority
from klaw.cli.admin_call import line
from klaw.config.owner import belongs_to
from klaw.errors import ConfigError, KlawError, SchemaTooNew, StoreDamaged

EX_CONFIG = 78
"""Exit code, of sysexits.h, of a server that another start does not help; conf/klaw.service makes none after it."""


def complain(error: BaseException) -> bool:
    """Print a known error, and whose file it was when that is the reason. False for others: nothing is printed."""
    refused = next(_refused(error), None)
    if isinstance(error, ConfigError):
        texts = [str(problem) for problem in error.problems]
    elif isinstance(error, KlawError):
        texts = [str(error)]
    elif refused is not None:
        texts = [f"{refused}: permission denied"]
    else:
        return False
    texts += [_whose(refused)] if refused is not None else []
    for text in texts:
        print(f"{priority('error')}klaw: {line(text)}", file=sys.stderr)
    return True


def is_permanent(error: BaseException) -> bool:
    """Whether trying again is no use before somebody changes the configuration, the program, or whose the files are."""
    return isinstance(error, (ConfigError, SchemaTooNew, StoreDamaged)) or any(True for _path in _refused(error))


def _refused(error: BaseException | None) -> Iterator[Path]:
    """The files that the system did not let us use, by the error or by what it came from."""
    while error is not None:
        if isinstance(error, PermissionError) and isinstance(error.filename, str):
            yield Path(error.filename)
        error = error.__cause__


def _whose(path: Path) -> str:
    for each in (path, *path.parents):
        try:
            owner = each.stat().st_uid
        except OSError:
            continue
        if owner == os.geteuid():
            return f"{each} is yours; look at its permissions (ls -l)"
        return belongs_to(each, owner)
    return "look at its permissions (ls -l)"
