"""A log line is one write, whoever logs: lines do not run into one another, and a killed process leaves whole ones."""

import ast
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading

import structlog

from klaw.actor import log
from tests.support.repository import REPOSITORY

THREADS = 8
LINES = 100
LONG = "x" * 20_000

PROCESS = f"""
import gc, sys, threading, time, warnings
sys.setswitchinterval(1e-6)
import structlog
from klaw.actor import log

log.configure("info", sys.argv[1])
log.log_what_nobody_caught()
begin = threading.Barrier({THREADS})

def write(number):
    begin.wait()  # the very first lines of a process come at once, too
    for count in range({LINES}):
        structlog.get_logger("test").info("said", actor=f"thread {{number}}", count=count)

threads = [threading.Thread(target=write, args=[number]) for number in range({THREADS})]
for thread in threads: thread.start()
for thread in threads: thread.join()
structlog.get_logger("test").info("said", path="{LONG}", reason="ждать")
"""

STRAY = """
class Broken:
    def __del__(self):
        raise ValueError("канарейка 7731")

def fail():
    raise KeyError("канарейка 7731")

for _ in range(20):
    warnings.warn(f"канарейка 7731 {_}")
    Broken()
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
"""


def run(stderr, program=PROCESS, style="json"):
    return subprocess.Popen([sys.executable, "-c", program, style], stderr=stderr, cwd=REPOSITORY)


def writes_of(program, style="json"):
    """What each single write to standard error had: a packet for each."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found = []

    def collect():
        while data := ours.recv(1 << 20):
            found.append(data)

    collector = threading.Thread(target=collect)
    collector.start()
    with ours:
        with theirs:
            process = run(theirs, program, style)
        code = process.wait()
        collector.join()
    assert code == 0
    return [each.decode() for each in found]


def test_each_line_of_several_threads_is_one_write():
    found = writes_of(PROCESS)
    assert len(found) == THREADS * LINES + 1
    assert all(each.endswith("}\n") for each in found)
    events = [json.loads(each) for each in found]
    assert {event["event"] for event in events} == {"said"}
    assert events[-1]["path"] == LONG


def test_so_is_each_line_for_people():
    found = writes_of(PROCESS, "console")
    assert len(found) == THREADS * LINES + 1
    assert all(each.endswith("\n") and each.count("\n") == 1 for each in found)


def test_several_processes_share_a_file(tmp_path):
    file = tmp_path / "server.log"
    with file.open("ab") as log:
        processes = [run(log) for _ in range(4)]
        assert [process.wait() for process in processes] == [0] * 4
    lines = file.read_text().split("\n")
    assert lines.pop() == ""
    assert len(lines) == 4 * (THREADS * LINES + 1)
    assert {json.loads(line)["event"] for line in lines} == {"said"}


def test_what_nobody_caught_is_a_line_without_its_text():
    """Warnings, errors in threads and in destructors: Python itself writes them in pieces, and quotes them."""
    found = writes_of(PROCESS + STRAY)[THREADS * LINES + 1 :]
    assert "канарейка" not in "".join(found)
    events = [json.loads(each) for each in found]
    assert [event["event"] for event in events].count("thread_failed") == 20
    assert [event["event"] for event in events].count("destructor_failed") == 20
    assert [event.get("logger") for event in events].count("py.warnings") == 20
    assert "fail" in next(event["where"] for event in events if event["event"] == "thread_failed")


def test_what_strangers_cause_does_not_fill_the_log():
    now = [0.0]
    floods = log.Floods(lambda: now[0])

    def lines(event, many):
        written = []
        for _ in range(many):
            with contextlib.suppress(structlog.DropEvent):
                written.append(floods(None, "info", {"event": event, "status": 400}))
        return written

    assert lines("request_refused", 100) == [{"event": "request_refused", "status": 400}] * log.FLOOD_LINES
    assert len(lines("client_gone", 3)) == 3
    assert len(lines("turn_failed", 100)) == 100
    now[0] = log.FLOOD_S
    assert lines("request_refused", 2) == [
        {"event": "request_refused", "status": 400, "count": 100 - log.FLOOD_LINES},
        {"event": "request_refused", "status": 400},
    ]


def test_names_of_chats_are_not_in_the_log(capsys):
    """26.B2: a person chose them, and forgetting does not reach the log."""
    log.configure("info", "json", stream=sys.stderr)
    for chat in ("anna:divorce", "anna:divorce", "anna:garden"):
        structlog.get_logger("test").info("said", chat=chat, actor=f"chat {chat}")
    said = capsys.readouterr().err
    first, again, other = map(json.loads, said.splitlines())
    assert "divorce" not in said
    assert (first["chat"] == again["chat"], first["chat"] == other["chat"]) == (True, False)
    assert first["actor"] == f"chat {first['chat']}"


def test_no_field_that_is_logged_is_dropped():
    """The page at which a reader ended, and what a model refuses, were."""
    dropped = [
        f"{path.name}:{node.lineno} {each.arg}"
        for path in (REPOSITORY / "klaw").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and re.match(r"log\.(debug|info|warning|error)$", ast.unparse(node.func))
        for each in node.keywords
        if each.arg is not None and each.arg not in log.FIELDS
    ]
    assert dropped == []
