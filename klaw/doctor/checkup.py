"""Runs all checks of ``klaw doctor``, one after the other; plain blocking code. Only reads."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs

from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.doctor import judge, places
from klaw.doctor.judge import Finding, Level, ok, problem
from klaw.doctor.places import Server
from klaw.domain.names import ChatId
from klaw.errors import StorageError
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.kinds import inventory, topic_vectors
from klaw.store.rebuild.logcheck import LogReport, lacking, read_logs
from klaw.store.search import coverage, vectors
from klaw.store.store import read_offline

SECOND_LOOK_S = 1.0
"""A running server writes its logs first; what the database lacks is looked for again after so long."""


@attrs.define(kw_only=True)
class Checkup:
    findings: list[Finding] = attrs.Factory(list)
    chats: Mapping[ChatId, Mapping[str, Any]] = attrs.Factory(dict)
    """Counts of the ``covered`` invariant."""

    def count(self, level: Level) -> int:
        return sum(finding.level is level for finding in self.findings)

    def told(self) -> dict[str, Any]:
        """The answer of ``klaw doctor --json``."""
        problems, warnings = self.count(Level.PROBLEM), self.count(Level.WARNING)
        counts = {"ok": not problems, "problems": problems, "warnings": warnings}
        return {**counts, "findings": self.findings, "chats": self.chats}


def check_up(
    paths: Paths,
    server: Server,
    *,
    whole: bool,
    version: str,
    now: float | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Checkup:
    """Look at everything. ``whole`` reads every log line, every index, every file of a message and every model file in
    full. ``now`` is in Unix seconds; None: the real time."""
    done, now = Checkup(), time.time() if now is None else now
    config, found = places.check_config(paths, environ)
    done.findings += found
    done.findings += [places.check_tokens(paths), places.check_folders(paths)]
    stored = newest = None
    if paths.data_dir.is_dir() and os.access(paths.data_dir, os.R_OK | os.X_OK):
        done.findings += places.check_place("disk", paths, now)
        running = server.status is not None or places.is_in_use(paths.data_dir)
        stored, newest = _check_data(done, paths, config, whole=whole, running=running)
    done.findings.append(places.check_embedding(paths, config, stored, whole=whole))
    done.findings += places.check_endpoints(config)
    done.findings += filter(None, [places.check_local_llm(paths, config, whole=whole)])
    done.findings += places.check_place("backups", paths, now)
    done.findings.append(places.check_clock(now, newest))
    done.findings += places.check_server(paths, server, version)
    return done


def _check_data(
    done: Checkup, paths: Paths, config: EngineConfig, *, whole: bool, running: bool
) -> tuple[str | None, str | None]:
    """Database and logs. Returns the id of the stored model and the time of the newest message."""
    logs = read_logs(paths.data_dir, whole=whole)
    done.findings.append(judge.judge_logs(logs, whole=whole, running=running))
    if whole:
        done.findings.append(judge.judge_numbers(logs, _in_database(paths, logs)))
    if not paths.database.exists():
        if logs.messages:
            text, todo = f"there is no {paths.database}", "start the server: it is made from the logs"
            done.findings.append(problem("database", text, todo))
        return None, None
    try:
        schema, known = read_offline(paths.database, migrations.current), migrations.latest()
    except StorageError as error:
        done.findings.append(problem("database", str(error), judge.REBUILD))
        return None, None
    done.findings += [ok("database", f"{paths.database} opens"), judge.judge_schema(schema, known)]
    if schema != known:
        return None, None
    try:
        complaints = read_offline(paths.database, connect.complaints, whole=whole)
    except StorageError as error:
        complaints = [str(error)]
    done.findings += judge.judge_integrity(complaints, whole=whole)
    stored = _check_covered(done, paths, config)
    try:
        if not complaints:  # else what it seems to have proves nothing about the logs
            settled = _check_tails(done, paths, logs, running=running)
            done.findings += places.check_files(paths, whole=whole, running=running, settled=settled)
        return stored, read_offline(paths.database, inventory.newest_time)
    except StorageError as error:
        done.findings.append(problem("database", str(error), judge.REBUILD))
        return stored, None


def _in_database(paths: Paths, logs: LogReport) -> int:
    """Count the messages in the database whose numbers are missing in the logs."""
    gaps = {chat: numbers.missing() for chat, numbers in logs.seqs.items()}
    if not any(gaps.values()):
        return 0
    try:
        return read_offline(paths.database, inventory.messages_between, gaps)
    except StorageError:
        return 0  # missing, damaged or of another schema: told below


def _check_covered(done: Checkup, paths: Paths, config: EngineConfig) -> str | None:
    """Both indexes against the messages. Returns the id of the stored model."""
    window, min_tokens = config.context.sliding_window, config.auto_rag.min_message_tokens
    try:
        if not read_offline(paths.database, vectors.has_table):
            done.findings.append(problem("vectors", "their table is gone", judge.REBUILD))
            return None
        covered = read_offline(paths.database, coverage.look_at_all, window, min_tokens)
    except StorageError as error:
        done.findings.append(problem("covered", f"cannot be counted: {error}", judge.REBUILD))
        return None
    done.findings += [
        judge.judge_full_text(covered),
        judge.judge_vectors(covered, enabled=config.embedding.enabled),
        judge.judge_covered(covered),
    ]
    done.chats = judge.chat_counts(covered)
    for kind in inventory.checked():
        name = kind.plural.replace(" ", "_")
        try:
            found = read_offline(paths.database, inventory.check, kind)
            waiting = read_offline(paths.database, topic_vectors.count_unembedded) if kind.what == "topic" else None
            done.findings.append(judge.judge_rows(name, kind.plural, found, waiting=waiting))
        except StorageError as error:
            done.findings.append(problem(name, f"cannot be read: {error}", judge.REBUILD))
    with suppress(StorageError):  # what cannot be read is among the findings above
        counts = read_offline(paths.database, inventory.rows_of_kinds)
        there = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        done.findings.append(ok("rows", there or "there are none"))
    return covered.model


def _check_tails(done: Checkup, paths: Paths, logs: LogReport, *, running: bool) -> bool:
    """The logs were read before the database: of a running server the database has at least what they had. Returns
    whether it has all that was acknowledged."""
    missing = read_offline(paths.database, lacking, logs)
    if running and missing.any:
        time.sleep(SECOND_LOOK_S)  # the writer may have been between log and database
        missing = read_offline(paths.database, lacking, logs)
    last_seqs = read_offline(paths.database, inventory.last_seqs) if not running else {}
    last = read_offline(paths.database, inventory.last_numbers)
    found = judge.judge_tails(logs, missing, last_seqs, last, running=running)
    done.findings.append(found)
    return found.level is Level.OK and (running or not logs.pending_lines)
