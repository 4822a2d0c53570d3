"""``klaw reindex``: the database rebuilt from the logs; by this process, or by the server where one runs."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from klaw.cli.admin_call import NoServer, call
from klaw.cli.operations import Here, command
from klaw.config.paths import Paths
from klaw.domain.text import plural, span
from klaw.errors import KlawError
from klaw.operations.lines import Line, Lines, ShownLines, Table, size
from klaw.operations.operation import Noun, argument
from klaw.operations.server import ReindexChoices

if TYPE_CHECKING:
    from klaw.store.rebuild.values import ReindexReport

NOUN = Noun("reindex", "rebuild the database from the logs (docs/operations.md)", local=True)
POLL_S = 0.3
STOPPED = "stopped; what was built is kept, and the next `klaw reindex` continues with it"
_LABELS = {
    "scan": "reading the logs",
    "messages": "messages",
    "turns": "answers",
    "tasks": "tasks, facts and summaries",
    "runs": "runs",
    "transcripts": "transcripts of runs",
    "documents": "documents taken over",
    "vectors": "vectors taken over",
    "compare": "comparing",
    "catch_up": "catching up",
    "swap": "swapping the databases",
}
_OTHERS = {"tasks": "changes of tasks", "facts": "changes of facts", "core": "changes of core memory"}
_OTHERS |= {"summaries": "summaries", "topics": "changes of topics", "people": "changes of people", "runs": "runs"}
_IN_BYTES = frozenset({"scan", "turns"})


@attrs.frozen(kw_only=True)
class ReindexArguments(ReindexChoices):
    drop_old: bool = argument("only remove the database that the last reindex replaced", default=False)


@command(
    NOUN, "reindex", ReindexArguments, cli="", show=lambda answer: ShownLines((), found=answer.get("swapped", True))
)
def reindex(asked: ReindexArguments, here: Here) -> dict[str, Any]:
    """Rebuild the database from the logs, compare the two, and swap them if they are equal. It works with and without a
    running server. The exit code is 1 if they differ.
    """
    if asked.drop_old:
        from klaw.store.rebuild.offline import drop

        freed = drop(here.paths.database)
        here.say(f"freed {size(freed)}" if freed else "there is no old database")
        return {"freed_bytes": freed}

    def tell(phase: str, done: int, total: int) -> None:
        here.progress.show(_LABELS.get(phase, phase), done, total, size if phase in _IN_BYTES else "{:,}".format)

    try:
        try:
            answer = _on_server(here.paths, asked, tell)
        except NoServer:
            answer = attrs.asdict(_here(here.paths, asked, tell))
    except KeyboardInterrupt:
        here.progress.finish()
        print(STOPPED, file=sys.stderr)
        raise
    here.progress.finish()
    here.say(*lines(answer, here.paths.database))
    return answer


def _here(paths: Paths, asked: ReindexArguments, tell: Callable[[str, int, int], None]) -> "ReindexReport":
    from klaw.actor import log as logging
    from klaw.config.load import load
    from klaw.store.rebuild.offline import reindex
    from klaw.store.rebuild.values import ReindexOptions

    config, _warnings = load(paths.config_file)
    logging.configure("error", "auto")  # what is skipped is counted in the report

    options = ReindexOptions(accept_differences=asked.accept_differences, embed_again=asked.embed_again)
    work = reindex(paths.database, options, config.auto_rag.min_message_tokens)
    try:
        while True:
            step = next(work)
            tell(step.phase, step.done, step.total)
    except StopIteration as end:
        report: ReindexReport = end.value
        return report
    finally:
        work.close()


def _on_server(paths: Paths, asked: ReindexArguments, tell: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Let the server do it and show how far it is.

    Raises:
        NoServer: none runs.
        KlawError: it refused, failed, or went away in the middle.
    """
    call(paths, "reindex", action="start", accept_differences=asked.accept_differences, embed_again=asked.embed_again)
    try:
        while True:
            status = _status(paths)
            if status["state"] == "done":
                return dict(status["report"])
            if status["state"] != "running":
                raise KlawError(str(status["error"]))
            progress = status["progress"]
            tell(progress["phase"], progress["done"], progress["total"])
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        with suppress(NoServer):  # it would be taken for a reason to rebuild here
            call(paths, "reindex", action="cancel")
        raise


def _status(paths: Paths) -> dict[str, Any]:
    try:
        return call(paths, "reindex", action="status")
    except NoServer as error:
        text = "the server ended during the reindex; nothing is lost: start it, or run `klaw reindex` again"
        raise KlawError(text) from error


def lines(answer: Mapping[str, Any], database: Path) -> Lines:
    tally, vectors = answer["tally"], answer["vectors"]
    count = tally["messages"] + tally["reused"]
    others = [f", {tally[word]:,} {noun}" for word, noun in _OTHERS.items() if tally[word]]
    found = f"{plural(count, 'message')}, {plural(tally['turns'], 'answer')}{''.join(others)}"
    out: list[Line] = [f"from the logs: {found}, in {span(answer['seconds'])}"]
    if tally["malformed"] or tally["conflicts"]:
        out.append(
            f"left out: {plural(tally['malformed'], 'line')} that cannot be read,"
            f" {plural(tally['conflicts'], 'record')} whose place is taken; they are kept in set-aside/"
            + (" and were taken out of the logs" if answer["set_aside"] else ", and stay in the logs too")
        )
    out.append(f"vectors: {vectors['taken_over']:,} taken over, {vectors['waiting']:,} left to the server")
    out += _tables(answer["tables"])
    out += [answer["reason"]] if answer["reason"] else []
    old, built = (database.with_name(f"{database.name}.{end}") for end in ("old", "reindex"))
    if not answer["swapped"]:
        return [
            *out,
            "NOT swapped: the database in use was not changed.",
            "If it is damaged or lacks something, use the new one: `klaw reindex --accept-differences`.",
            "If the logs lack something, restore them from a backup first, and then run `klaw reindex` again.",
            f"What was built is kept in {built}; the next run continues with it.",
        ]
    out.append("the new database is in use")
    return [*out, f"the old one is kept as {old}: remove it with `klaw reindex --drop-old`"] if old.exists() else out


def _tables(tables: Sequence[Mapping[str, Any]]) -> list[Line]:
    if not tables:
        return []
    rows = [["", "rows", "new rows", "only old", "only new", "differ", ""]]
    for each in tables:
        examples = f": {', '.join(each['examples'])}" if each["examples"] else ""
        counts = (each["live"]["rows"], each["built"]["rows"], each["only_live"], each["only_built"], each["differing"])
        verdict = "same" if each["same"] else f"DIFFERS{examples}"
        rows.append([each["name"], *(f"{count:,}" for count in counts), verdict])
    return [Table(rows, right=frozenset({1, 2, 3, 4, 5}))]
