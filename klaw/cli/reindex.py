"""``klaw reindex``: the database made anew from the logs; by this process, or by the server where one runs."""

import argparse
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import attrs

from klaw.cli.admin_call import NoServer, call, fail, line, print_json, table
from klaw.cli.progress import ProgressLine, bar
from klaw.config.paths import Paths
from klaw.domain.text import plural, span
from klaw.errors import KlawError
from klaw.memory.embed.passage import passage, vectors_id
from klaw.operations.text import size

if TYPE_CHECKING:
    from klaw.config.schema import EmbeddingConfig
    from klaw.memory.embed.model import EmbeddingModel
    from klaw.store.rebuild.values import Progress, Report
    from klaw.store.search.vectors import Unembedded

POLL_S = 0.3
"""Between two questions to a server how far it is."""
STOPPED = "stopped; what was built is kept, and the next `klaw reindex` goes on with it"
_LABELS = {
    "scan": "reading the logs",
    "messages": "messages",
    "turns": "turns",
    "tasks": "tasks, facts and summaries",
    "runs": "runs",
    "transcripts": "transcripts of runs",
    "vectors": "vectors taken over",
    "embed": "vectors made",
    "compare": "comparing",
    "catch_up": "catching up",
    "swap": "swapping the databases",
}
_OTHERS = {"tasks": "changes of tasks", "facts": "changes of facts", "core": "changes of core memory"}
_OTHERS |= {"summaries": "summaries", "topics": "changes of topics", "people": "changes of people", "runs": "runs"}
"""Counts that are told when there are any."""
_IN_BYTES = frozenset({"scan", "turns"})


def reindex_command(args: argparse.Namespace) -> int:
    """Make the database anew and swap it in, or with ``--drop-old`` remove the one of before. Returns 1 when it could
    not be done, or the databases differ."""
    paths = Paths.resolve(args.home)
    painter = Painter(sys.stderr if args.json else sys.stdout)
    try:
        if args.drop_old:
            return _drop(paths, as_json=args.json)
        try:
            answer = _on_server(paths, args, painter)
        except NoServer:
            answer = _here(paths, args, painter)
    except KlawError as error:
        painter.finish()
        return fail(error)
    finally:
        painter.finish()
    if args.json:
        print_json(answer)
    else:
        print("\n".join(lines(answer, paths.database)))
    return 0 if answer["swapped"] else 1


def _drop(paths: Paths, *, as_json: bool) -> int:
    from klaw.store.rebuild.offline import drop

    freed = drop(paths.database)
    if as_json:
        print_json({"freed_bytes": freed})
    else:
        print(f"freed {size(freed)}" if freed else "there is no old database")
    return 0


# -- without a server --------------------------------------------------------------------------------------------------


def _here(paths: Paths, args: argparse.Namespace, painter: "Painter") -> dict[str, Any]:
    from klaw.actor import log as logging
    from klaw.config.load import load
    from klaw.store.rebuild.offline import reindex
    from klaw.store.rebuild.values import Options

    config, _warnings = load(paths.config_file)
    logging.configure("error", "auto")  # what is skipped is counted in the report

    def load_model() -> _Model | None:
        return _Model.load(config.embedding, paths) if config.embedding.enabled else None

    options = Options(accept_differences=args.accept_differences, embed_again=args.embed_again)
    work = reindex(paths.database, options, load_model, config.auto_rag.min_message_tokens)
    return _as_json(_watched(work, painter))


def _watched(work: "Generator[Progress, None, Report]", painter: "Painter") -> "Report":
    try:
        while True:
            step = next(work)
            painter.show(step.phase, step.done, step.total)
    except StopIteration as end:
        report: Report = end.value
        return report
    except KeyboardInterrupt:
        work.close()
        painter.finish()
        print(STOPPED, file=sys.stderr)
        raise
    finally:
        work.close()


def _as_json(report: "Report") -> dict[str, Any]:
    return attrs.asdict(report)


class _Model:
    """The embedding model as the store sees it."""

    def __init__(self, model: "EmbeddingModel") -> None:
        self._model = model
        self.model_id = vectors_id(model.model_id)
        self.dimension = model.dimension

    @classmethod
    def load(cls, config: "EmbeddingConfig", paths: Paths) -> "_Model":
        """The configured model. Raises ModelError."""
        from klaw.memory.embed.model import EmbeddingModel

        folder = config.path or paths.models_dir / config.model
        return cls(EmbeddingModel.load(folder, threads=config.threads, batch_tokens=config.batch_tokens))

    def embed(self, messages: "Sequence[Unembedded]") -> list[bytes]:
        passages = [passage(message.content, message.previous) for message in messages]
        return [bytes(vector.tobytes()) for vector in self._model.embed(passages, kind="passage").astype("<f4")]


# -- by the server -----------------------------------------------------------------------------------------------------


def _on_server(paths: Paths, args: argparse.Namespace, painter: "Painter") -> dict[str, Any]:
    """Let the server do it and show how far it is.

    Raises:
        NoServer: none runs.
        KlawError: it refused or failed; or it went away in the middle.
    """
    call(
        paths,
        "reindex",
        action="start",
        accept_differences=args.accept_differences,
        embed_again=args.embed_again,
    )
    try:
        while True:
            status = _status(paths)
            if status["state"] == "done":
                return dict(status["report"])
            if status["state"] != "running":
                raise KlawError(str(status["error"]))
            progress = status["progress"]
            painter.show(progress["phase"], progress["done"], progress["total"])
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        call(paths, "reindex", action="cancel")
        painter.finish()
        print(STOPPED, file=sys.stderr)
        raise


def _status(paths: Paths) -> dict[str, Any]:
    try:
        return call(paths, "reindex", action="status")
    except NoServer as error:
        raise KlawError(
            "the server went away in the middle of the reindex; nothing is lost: start it, or run `klaw reindex` again"
        ) from error


# -- the text ----------------------------------------------------------------------------------------------------------


class Painter:
    """Shows progress with rate and time left."""

    def __init__(self, stream: TextIO) -> None:
        self._line = ProgressLine(stream)
        self._phase: str | None = None
        self._since = 0.0
        self._first = 0

    def show(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            self._phase, self._since, self._first = phase, time.monotonic(), done
        label = _LABELS.get(phase, phase)
        amount = f" ({_amount(phase, total)})" if total else ""
        self._line.show(phase, f"{label}{amount}", lambda: self._drawn(label, phase, done, total))

    def _drawn(self, label: str, phase: str, done: int, total: int) -> str:
        if not total:
            return f"{label:<24} {_amount(phase, done) if done else ''}"
        spent = time.monotonic() - self._since
        text = f"{label:<24} {bar(done, total)} {_amount(phase, done)} / {_amount(phase, total)}"
        rate = (done - self._first) / spent if spent > 1 else 0
        if rate > 0:
            text += f"  {_amount(phase, int(rate))}/s, {span((total - done) / rate)} left"
        return text

    def finish(self) -> None:
        self._line.finish()


def _amount(phase: str, count: int) -> str:
    return size(count) if phase in _IN_BYTES else f"{count:,}"


def lines(answer: Mapping[str, Any], database: Path) -> list[str]:
    """The report as text."""
    tally, vectors = answer["tally"], answer["vectors"]
    count = tally["messages"] + tally["reused"]
    others = [f", {tally[word]:,} {noun}" for word, noun in _OTHERS.items() if tally[word]]
    found = f"{plural(count, 'message')}, {plural(tally['turns'], 'turn')}{''.join(others)}"
    out = [f"from the logs: {found}, in {span(answer['seconds'])}"]
    if tally["malformed"] or tally["conflicts"]:
        out.append(
            f"left out: {tally['malformed']:,} lines that are no record, {tally['conflicts']:,} records whose place is"
            " taken; they are kept in set-aside/"
            + (" and were taken out of the logs" if answer["set_aside"] else ", and stay in the logs too")
        )
    out.append(
        f"vectors: {vectors['taken_over']:,} taken over, {vectors['made']:,} made,"
        f" {vectors['waiting']:,} left to the server"
    )
    if answer["no_model"]:
        out.append(f"no vectors were made: {line(answer['no_model'])}")
    out += _tables(answer["tables"])
    if answer["reason"]:
        out.append(line(answer["reason"]))
    if answer["swapped"]:
        out.append("the new database is in use")
        if (old := database.with_name(f"{database.name}.old")).exists():
            out.append(f"the old one is kept as {old}: remove it with `klaw reindex --drop-old`")
        return out
    return [*out, *_advice(database)]


def _tables(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    if not tables:
        return []
    rows = [["", "rows", "new rows", "only old", "only new", "differ", ""]]
    for each in tables:
        verdict = "same" if each["same"] else "DIFFERS"
        examples = f": {', '.join(line(key) for key in each['examples'])}" if each["examples"] else ""
        counts = (each["live"]["rows"], each["built"]["rows"], each["only_live"], each["only_built"], each["differing"])
        rows.append([each["name"], *(f"{count:,}" for count in counts), verdict + examples])
    return table(rows, right=frozenset({1, 2, 3, 4, 5}))


def _advice(database: Path) -> list[str]:
    return [
        "NOT swapped: the database in use was left as it is.",
        "If it is damaged or lacks something, the new one is what you want: `klaw reindex --accept-differences`.",
        "If the logs lack something, put them back from a backup first, and then run `klaw reindex` again.",
        f"What was built is kept in {database.with_name(database.name + '.reindex')}; the next run goes on with it.",
    ]
