"""What ``klaw reindex`` shows: a bar with rate and time left on a terminal, one line a phase elsewhere, the report."""

import io
import json
import socket
import threading
from pathlib import Path

import attrs
import pytest

from klaw.cli import output, reindex
from klaw.cli.output import ProgressLine, written
from klaw.cli.reindex import lines
from klaw.config.paths import Paths
from klaw.operations.lines import size
from klaw.store.rebuild.values import ReindexReport, Side, TableComparison, Tally, Vectors
from tests.support.waiting import HANG_S


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    return now


def test_a_terminal_gets_rate_and_time_left(clock: list[float]) -> None:
    stream = Terminal()
    painter = ProgressLine(stream)
    for done in (1000, 3000, 5000):
        painter.show("messages", done, 21_000)
        clock[0] += 2
    painter.show("turns", 1 << 20, 4 << 20, size)
    painter.finish()
    drawn = stream.getvalue().split("\r\x1b[K")
    assert drawn[1].startswith("messages")
    assert "1,000 / 21,000" in drawn[1]
    assert "left" not in drawn[1]
    assert drawn[2].endswith("3,000 / 21,000  1,000/s, 18 s left")
    assert "[#####..................." in drawn[3]
    assert drawn[3].endswith("5,000 / 21,000  1,000/s, 16 s left")
    assert "1.0 MiB / 4.0 MiB" in drawn[4]
    assert stream.getvalue().endswith("\n")


def test_elsewhere_one_line_a_phase() -> None:
    stream = io.StringIO()
    painter = ProgressLine(stream)
    for label, done, total in (
        ("reading the logs", 0, 1 << 20),
        ("reading the logs", 9, 1 << 20),
        ("comparing", 100, 0),
    ):
        painter.show(label, done, total, size)
    painter.show("m: installed", 4 << 20, 4 << 20, size, last=True)
    painter.finish()
    assert stream.getvalue() == "reading the logs (1.0 MiB)\ncomparing\nm: installed (4.0 MiB)\n"


def report(*, same: bool) -> dict[str, object]:
    live, built = Side(rows=1200, digest="a"), Side(rows=1199, digest="b")
    table = TableComparison(
        name="messages", live=live, built=built, only_live=1, only_built=0, differing=0, examples=("17",), same=same
    )
    return attrs.asdict(
        ReindexReport(
            swapped=same,
            tally=Tally(messages=1000, reused=199, turns=5, malformed=1),
            vectors=Vectors(taken_over=3, waiting=5),
            tables=(table,),
            compared=True,
            reason=None,
            seconds=65,
        )
    )


def test_the_report_counts_and_advises(tmp_path: Path) -> None:
    text = "\n".join(written(lines(report(same=False), tmp_path / "klaw.db")))
    assert "from the logs: 1,199 messages, 5 answers, in 1 min 5 s" in text
    assert "left out: 1 line that cannot be read, 0 records whose place is taken" in text
    assert "vectors: 3 taken over, 5 left to the server" in text
    assert "DIFFERS: 17" in text
    assert "NOT swapped" in text
    assert "klaw reindex --accept-differences" in text


def test_the_report_names_the_old_database(tmp_path: Path) -> None:
    (tmp_path / "klaw.db.old").touch()
    text = "\n".join(written(lines(report(same=True), tmp_path / "klaw.db")))
    assert "the new database is in use" in text
    assert str(tmp_path / "klaw.db.old") in text
    assert "NOT swapped" not in text


def test_ctrl_c_when_the_server_has_just_gone_does_not_begin_a_rebuild_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths.resolve(tmp_path, {})
    paths.runtime_dir.mkdir(parents=True)
    running = {"state": "running", "progress": {"phase": "scan", "done": 1, "total": 2}}

    def serve(listener: socket.socket) -> None:
        """Answer the start and one question, then be gone."""
        with listener:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(running).encode())

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(paths.admin_socket))
    listener.listen()
    server = threading.Thread(target=serve, args=(listener,), daemon=True)
    server.start()

    def interrupt(_seconds: float) -> None:
        server.join(HANG_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(reindex.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        reindex._on_server(paths, reindex.ReindexArguments(), lambda *_: None)
