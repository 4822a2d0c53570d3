"""The Markdown copies of summaries, for people: ``summaries/<chat>/<number>.md`` in the data folder.

The store is the source. A copy that is missing is made again at start; one that was made by hand, or changed, is left
alone. What a newer summary holds has no copy of its own.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import structlog

from klaw.actor.failure import error_class
from klaw.config import guarded
from klaw.domain.summary import Summary, SummaryState
from klaw.store.kinds.summaries import copy_path

log = structlog.get_logger("klaw.summarizer")


def path_of(data_dir: Path, summary: Summary) -> Path:
    """Where a summary's copy is."""
    return data_dir / copy_path(summary.chat, summary.number)


def text_of(summary: Summary) -> str:
    """The copy: where it belongs, and the summary."""
    return (
        f"# Summary {summary.number} of {' '.join(summary.chat.split())}\n\n"
        f"Messages {summary.first_seq} to {summary.last_seq} of segment {summary.segment + 1},"
        f" written {summary.created_at} by {summary.model}.\n\n{summary.text}\n"
    )


def settle(data_dir: Path, summaries: Iterable[Summary]) -> int:
    """Write the copies that are missing and remove those of superseded summaries. Returns how many failed.

    Blocks; run it in a thread.
    """
    failed = 0
    for summary in summaries:
        path = path_of(data_dir, summary)
        try:
            if summary.state is SummaryState.SUPERSEDED:
                with suppress(FileNotFoundError):
                    path.unlink()
            elif not path.exists():
                guarded.replace(data_dir, copy_path(summary.chat, summary.number), text_of(summary).encode("utf-8"))
        except OSError as error:
            failed += 1
            log.warning("summary_copy_failed", error=error_class(error))
    return failed
