"""Tasks and runs as text: every field in its place, and nothing that commands a terminal."""

from typing import Any

import attrs
import pytest

from klaw.cli.fields import _value
from klaw.cli.output import written
from klaw.domain.names import clock_text, local_time
from klaw.operations import runs, schedule
from klaw.operations.operation import OperationError
from tests.support.plugins.golden import Golden

RUN: dict[str, Any] = {
    "id": "r1",
    "user": "local",
    "task": "day",
    "kind": "manual",
    "status": "timed_out",
    "due": "2026-11-22T08:00:00.000Z",
    "attempt": 2,
    "started_at": "2026-11-22T08:00:00.000Z",
    "ended_at": "2026-11-22T08:00:04.500Z",
    "model": "local/m",
    "inject_into": "Дом",
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "delivered": 1,
    "error": "late",
    "note": "x" * 100,
    "parent": "r0",
    "message": "Что\n\x1b[31mнового?",
    "result": "\x07Ничего.\u202e",
}


def test_a_run_is_shown_in_a_line_and_in_full(golden: Golden) -> None:
    shown = [*written(runs.run_table([RUN])), *written(runs._run({"run": RUN}))]
    golden("tables/run", "\n".join(shown))
    assert runs.run_table([]) == ["no runs: `klaw schedule run TASK` starts one"]
    assert runs.took({**RUN, "ended_at": None}) == ""


def test_local_times_have_their_offset() -> None:
    assert local_time(1_793_494_800, "Europe/Berlin") == "2026-11-01T02:00:00+01:00"
    assert local_time(1_793_494_800, "Asia/Kathmandu") == "2026-11-01T06:45:00+05:45"
    assert local_time(1_793_494_800, "No/Where") == "2026-11-01T01:00:00+00:00"
    assert clock_text("2026-11-01T02:00:00+01:00") == "2026-11-01 Sun 02:00 +01:00"
    assert clock_text("2026-11-01T02:00:07-03:30") == "2026-11-01 Sun 02:00:07 -03:30"


def test_a_message_comes_from_a_file_and_bad_ones_are_refused(tmp_path) -> None:
    field = attrs.fields(schedule.NewTask).message

    def read_message(given: str) -> str:
        return str(_value(field, given))

    file = tmp_path / "запрос.txt"
    file.write_bytes("\ufeffПривет".encode())
    assert read_message(f"@{file}") == "Привет"
    assert read_message("да") == "да"
    assert len(read_message("м" * 8192)) == 8192
    for name, raw in (("big", b"x" * 16_385), ("latin", b"\xe9t\xe9")):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(OperationError, match=r"^args\.message: "):
            read_message(f"@{tmp_path / name}")
    for given in ("м" * 8193, "\udcff", f"@{tmp_path}", "@"):
        with pytest.raises(OperationError, match=r"^args\.message: "):
            read_message(given)
