"""The last complete runs of a task, from real files."""

import json
import os

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from klaw.domain.names import UserId
from klaw.domain.task import Run, RunKind, RunStatus
from klaw.errors import InvalidName
from klaw.llm.providers.adapt import request_tokens
from klaw.runs import transcripts
from klaw.runs.transcripts import MAX_LINE_BYTES, load, read_line
from klaw.store.engine import log_files as jsonl
from tests.support.runs.transcripts import a_run, answer, as_bytes, calls, line, request, result, run_tokens, write

MANY = 10**9


def ids(folder, name="news", runs=5, **more) -> list[str]:
    return [run.id for run in load(folder, more.pop("user", "local"), name, runs=runs, max_tokens=MANY, **more)]


@pytest.fixture
def warnings():
    with structlog.testing.capture_logs() as logs:
        yield logs


def test_a_missing_folder_is_no_history(tmp_path, warnings):
    assert load(tmp_path, "local", "news", runs=5, max_tokens=MANY) == ()
    assert not warnings


def test_one_run_with_its_tool_calls(tmp_path, warnings):
    write(tmp_path, "news", "2026-11-22", a_run("r1"))
    (run,) = load(tmp_path, "local", "news", runs=5, max_tokens=MANY)
    assert [(message.role, transcripts.ends_a_run(message)) for message in run.messages] == [
        ("user", False),
        ("assistant", False),
        ("tool", False),
        ("assistant", True),
    ]
    assert run.messages[0].content == "Что нового?"
    assert run.messages[1].tool_calls[0].arguments == '{"url": "x"}'
    assert run.messages[2].tool_call_id == "c1"
    assert run_tokens(run) > request_tokens(run.messages[2:])
    assert not warnings


def a_stored_run(run):
    times = {"due": "2026-11-22T09:00:00.000Z", "started_at": "2026-11-22T09:00:00.000Z"}
    kind, status = RunKind.MANUAL, RunStatus.FAILED
    return Run(id=run, user="local", task="news", kind=kind, status=status, message="x", model="p/m", **times)


def test_what_was_said_in_one_run(tmp_path, monkeypatch, warnings):
    assert transcripts.of_run(tmp_path, a_stored_run("r2")) == ([], False)
    write(tmp_path, "news", "2026-11-22", [*a_run("r1"), *a_run("r2")[:3], *a_run("r3")])
    found, whole = transcripts.of_run(tmp_path, a_stored_run("r2"))
    assert [said.role for said in found] == ["user", "assistant", "tool"]
    assert whole
    assert not warnings
    monkeypatch.setattr(transcripts, "MAX_SHOWN_CHARS", 1)
    found, whole = transcripts.of_run(tmp_path, a_stored_run("r2"))
    assert [said.role for said in found] == ["tool"]
    assert not whole


def test_the_last_runs_oldest_first_over_several_files(tmp_path):
    write(tmp_path, "news", "2026-11-20", [*a_run("r1"), *a_run("r2")])
    write(tmp_path, "news", "2026-11-21", [])
    midnight = a_run("r4")
    write(tmp_path, "news", "2026-11-22", [*a_run("r3"), *midnight[:2]])
    write(tmp_path, "news", "2026-11-23", [*midnight[2:], *a_run("r5")])
    assert ids(tmp_path, runs=4) == ["r2", "r3", "r4", "r5"]
    assert ids(tmp_path, runs=50) == ["r1", "r2", "r3", "r4", "r5"]
    assert ids(tmp_path, runs=0) == []


def test_runs_without_an_answer_or_without_a_request_are_skipped(tmp_path):
    lines = [
        answer("r0"),
        *a_run("r1"),
        *a_run("r2")[:2],
        *a_run("r3")[:3],
        request("r4"),
        *a_run("r5"),
        *a_run("r6")[:3],
    ]
    write(tmp_path, "news", "2026-11-22", lines)
    assert ids(tmp_path) == ["r1", "r5"]


def test_mixed_lines_of_two_runs_are_sorted_out(tmp_path):
    one, two = a_run("r1"), a_run("r2")
    mixed = [message for pair in zip(one, two, strict=True) for message in pair]
    write(tmp_path, "news", "2026-11-22", [*a_run("r0"), *mixed])
    assert ids(tmp_path) == ["r0", "r1", "r2"]
    assert ids(tmp_path, runs=1) == ["r2"]
    for run in load(tmp_path, "local", "news", runs=2, max_tokens=MANY):
        assert len(run.messages) == 4


BAD_LINES = [
    b'{"role": "user", "content": "torn',
    b"\x00" * 5000,
    b"\xff\xfe{}",
    b"[]",
    b"null",
    b"17",
    b"{}",
    b"[" * 100_000,
    b"1" * 5000,
    json.dumps(line("r9", "user", "text", "x") | {"metadata": None}).encode(),
    json.dumps(line("r9", "king", "text", "x")).encode(),
    json.dumps(line("r9", "user", "poem", "x")).encode(),
    json.dumps(line("r9", "user", "text", "x") | {"content": 5}).encode(),
    json.dumps(line("r9", "user", "text", "x") | {"role": ["user"]}).encode(),
    json.dumps(line("r9", "user", "text", "\ud800")).encode(),
    json.dumps(line("", "user", "text", "x")).encode(),
    json.dumps(line("r9", "assistant", "tool_call", "x")).encode(),
    json.dumps(line("r9", "assistant", "tool_call", "x", calls=[{"id": 1}])).encode(),
    json.dumps(line("r9", "tool", "tool_result", "x")).encode(),
    "{}".encode("utf-16"),
    b"x" * (MAX_LINE_BYTES + 1),
]


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_malformed_line_is_skipped_with_one_warning_for_each_file(tmp_path, warnings, bad):
    first = a_run("r1")
    write(tmp_path, "news", "2026-11-21", [bad, *first[:1], bad, *first[1:], bad])
    write(tmp_path, "news", "2026-11-22", [*a_run("r2"), bad])
    assert ids(tmp_path) == ["r1", "r2"]
    assert [(entry["event"], entry["file"]) for entry in warnings] == [
        ("malformed_line", "2026-11-22.jsonl"),
        ("malformed_line", "2026-11-21.jsonl"),
    ]
    assert all(entry["error"] and set(entry) == {"event", "file", "error", "log_level"} for entry in warnings)


def test_a_line_of_50_megabytes_is_left_out(tmp_path, warnings):
    huge = as_bytes([answer("r2", "x" * 50_000_000)]).rstrip()
    write(tmp_path, "news", "2026-11-22", [*a_run("r1"), request("r2"), huge, *a_run("r3")])
    assert ids(tmp_path) == ["r1", "r3"]
    assert [entry["error"] for entry in warnings] == ["TooLong"]


def test_a_nul_in_a_text_is_taken_out(tmp_path):
    write(tmp_path, "news", "2026-11-22", [request("r1", "a\0b"), answer("r1")])
    (run,) = load(tmp_path, "local", "news", runs=1, max_tokens=MANY)
    assert run.messages[0].content == "ab"


def test_files_of_other_names_are_not_looked_at(tmp_path, warnings):
    path = write(tmp_path, "news", "2026-11-22", a_run("r1"))
    for name in ("2026-11-22 (copy).jsonl", "notes.txt", ".2026-11-23.jsonl", "2026-11-23.jsonl.bak", "z.jsonl"):
        (path.parent / name).write_bytes(as_bytes(a_run("r2")))
    assert ids(tmp_path) == ["r1"]
    assert not warnings


def test_what_is_no_file_is_left_out_with_a_warning(tmp_path, warnings):
    folder = write(tmp_path, "news", "2026-11-22", a_run("r1")).parent
    (folder / "2026-11-23.jsonl").mkdir()
    os.mkfifo(folder / "2026-11-24.jsonl")
    (folder / "2026-11-25.jsonl").symlink_to(folder / "2026-11-22.jsonl")
    assert ids(tmp_path) == ["r1"]
    assert [entry["error"] for entry in warnings] == ["NotAFile"] * 3


def test_a_folder_that_is_a_file(tmp_path, warnings):
    (tmp_path / "scheduler_news").write_text("")
    assert ids(tmp_path) == []
    assert [entry["event"] for entry in warnings] == ["history_unreadable"]


def test_another_user_s_runs_are_never_read(tmp_path):
    write(tmp_path, "news", "2026-11-22", a_run("mine"))
    write(tmp_path, "news", "2026-11-22", a_run("theirs"), user=UserId("anna"))
    assert ids(tmp_path) == ["mine"]
    assert ids(tmp_path, user="anna") == ["theirs"]


@pytest.mark.parametrize(("user", "name"), [("local", "../x"), ("local", "a/b"), ("..", "news"), ("local", "")])
def test_names_cannot_leave_the_folder(tmp_path, user, name):
    with pytest.raises(InvalidName):
        load(tmp_path, user, name, runs=5, max_tokens=MANY)


def test_no_more_runs_are_looked_for_than_fit(tmp_path):
    write(tmp_path, "news", "2026-11-22", [one for number in range(9) for one in a_run(f"r{number}")])
    (newest,) = load(tmp_path, "local", "news", runs=1, max_tokens=MANY)
    found = load(tmp_path, "local", "news", runs=9, max_tokens=2 * run_tokens(newest))
    assert [run.id for run in found] == ["r7", "r8"]


def test_no_more_is_read_than_needed(tmp_path, monkeypatch):
    """Of a large file the end only, and none of the older files."""
    old = write(tmp_path, "news", "2026-11-20", a_run("r0"))
    old.write_bytes(b"not read")
    write(tmp_path, "news", "2026-11-22", [one for number in range(5000) for one in a_run(f"r{number}")])
    parsed = []
    monkeypatch.setattr(transcripts, "read_line", lambda record: parsed.append(1) or read_line(record))
    assert ids(tmp_path) == [f"r{number}" for number in range(4995, 5000)]
    assert len(parsed) == 5 * 4 + 1


def test_reading_stops_at_the_limit(tmp_path, monkeypatch, warnings):
    """Many long runs that are incomplete; and lines that are too long to be parsed."""
    most = 16 * MAX_LINE_BYTES
    monkeypatch.setattr(transcripts, "MAX_READ_BYTES", most)
    write(tmp_path, "parsed", "2026-11-20", a_run("r0"))
    long = "x" * (MAX_LINE_BYTES - 1000)
    write(tmp_path, "parsed", "2026-11-22", [*a_run("r1"), *[request(f"x{number}", long) for number in range(17)]])
    assert ids(tmp_path, "parsed") == []
    write(tmp_path, "scanned", "2026-11-20", a_run("r0"))
    with write(tmp_path, "scanned", "2026-11-22", a_run("r1")).open("ab") as file:
        file.truncate(most + 10_000)
    assert ids(tmp_path, "scanned") == []
    assert [entry["event"] for entry in warnings if entry["event"] != "malformed_line"] == ["history_cut"] * 2


@given(
    lines=st.lists(
        st.one_of(
            st.integers(0, 3).map(lambda run: request(f"r{run}")),
            st.integers(0, 3).map(lambda run: calls(f"r{run}", "c1")),
            st.integers(0, 3).map(lambda run: result(f"r{run}", "c1")),
            st.integers(0, 3).map(lambda run: answer(f"r{run}")),
            st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
        ),
        max_size=30,
    ),
    runs=st.integers(0, 5),
    block=st.sampled_from([7, 300, 65_536]),
)
@settings(max_examples=150, deadline=None)
def test_whatever_stands_in_the_file_only_complete_runs_come_out(tmp_path_factory, lines, runs, block):
    folder = tmp_path_factory.mktemp("conversations")
    write(folder, "news", "2026-11-22", lines)
    with pytest.MonkeyPatch.context() as patch, structlog.testing.capture_logs():
        patch.setattr(jsonl, "_BLOCK", block)
        found = load(folder, "local", "news", runs=runs, max_tokens=MANY)
    assert len(found) <= runs
    assert len({run.id for run in found}) == len(found)
    for run in found:
        assert any(message.role == "user" for message in run.messages)
        assert transcripts.ends_a_run(run.messages[-1])
