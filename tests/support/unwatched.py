"""Follows a folder while the system gives no watches, or too few, and when it gives them again::

    unshare --user --map-root-user python -m tests.support.unwatched max_inotify_watches 1 FOLDER

The limit is that of the user namespace, so it must have one of its own. Ends with 3 where the limit cannot be set, or
where other processes of this machine already hold all watches.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from klaw.knowledge import source_scanner
from tests.support.knowledge_world import knowledge_world, old
from tests.support.waiting import HANG_S, until


async def main(raise_limit: Callable[[], object], root: Path) -> None:
    source_scanner.UNWATCHED_S, source_scanner.WATCH_RETRY_S = 0.2, 0.5
    old(root / "docs" / "a.md", "The first one.")
    old(root / "docs" / "deep" / "b.md", "The second one.")
    with trio.fail_after(HANG_S):
        async with knowledge_world(root) as world:
            source = await world.folder()
            await world.settled(source, "a.md", "deep/b.md")
            await until(lambda: "kb_not_watched" in world.indexer.problems())
            old(root / "docs" / "deep" / "c.md", "The third one.")
            (root / "docs" / "a.md").unlink()
            await world.settled(source, "deep/b.md", "deep/c.md")
            raise_limit()
            await until(lambda: not world.indexer.problems())
            source_scanner.UNWATCHED_S = HANG_S
            old(root / "docs" / "deep" / "d.md", "The fourth one.")
            await world.settled(source, "deep/b.md", "deep/c.md", "deep/d.md")


if __name__ == "__main__":
    if ctypes.CDLL(None).inotify_init() < 0:
        sys.exit(3)
    limit = Path("/proc/sys/user") / sys.argv[1]
    before = limit.read_text()
    try:
        limit.write_text(sys.argv[2])
    except OSError:
        sys.exit(3)
    trio.run(main, partial(limit.write_text, before), Path(sys.argv[3]))
