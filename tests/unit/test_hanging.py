"""A hanging test is one failed test, and the others go on; with pytest run on tests of its own."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.repository import REPOSITORY

HANGING = {
    "async": "async def test_hangs():\n    await trio.Event().wait()",
    "async_with_tasks": """
async def test_hangs():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.to_thread.run_sync, time.sleep, 0.1)
""",
    "async_busy": "async def test_hangs():\n    while True:\n        pass",
    "async_on_a_mock_clock": "async def test_hangs(autojump_clock):\n    await trio.Event().wait()",
    "sync": "def test_hangs():\n    while True:\n        time.sleep(100)",
    "lock": "def test_hangs():\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()",
    "child": "def test_hangs():\n    subprocess.run(['sleep', '1000'])",
    "child_of_trio": "async def test_hangs():\n    await trio.run_process(['sleep', '1000'])",
    "fixture": "@pytest.fixture\ndef slow():\n    time.sleep(1000)\n\ndef test_hangs(slow):\n    pass",
    "async_fixture": """
@pytest.fixture
async def slow():
    await trio.sleep_forever()

async def test_hangs(slow):
    pass
""",
    "tear_down": "@pytest.fixture\ndef slow():\n    yield\n    time.sleep(1000)\n\ndef test_hangs(slow):\n    pass",
    "swallowing": """
def test_hangs():
    try:
        time.sleep(1000)
    except KeyboardInterrupt:
        pass
""",
}
STUBBORN = """
async def test_hangs():
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(time.sleep, 1000)

def test_is_fine_too():
    pass
"""
BEGIN = "import subprocess, threading, time\nimport pytest, trio\n"


def run(folder: Path, tests: Mapping[str, str], *options: str, hang_s: float = 1.0) -> tuple[int, str]:
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.support.plugins.hanging"]\n')
    for name, test in tests.items():
        (folder / f"test_{name}.py").write_text(f"{BEGIN}\n{test}\n\ndef test_is_fine():\n    pass\n")
    (folder / "pytest.ini").write_text(f"[pytest]\ntrio_mode = true\nhang_s = {hang_s}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", *options, str(folder)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_it_fails_and_says_where_it_hung(tmp_path: Path) -> None:
    code, output = run(tmp_path, HANGING)
    assert code == 1, output
    for kind in HANGING:
        assert re.search(rf"(FAILED|ERROR) test_{kind}\.py::test_hangs - Failed: hung for 1 s", output), output
        assert f'/test_{kind}.py", line ' in output
        assert f"PASSED test_{kind}.py::test_is_fine" in output
    assert "task trio.sleep_forever" in output


def test_one_that_cannot_be_interrupted_costs_its_worker_only(tmp_path: Path) -> None:
    code, output = run(tmp_path, {"stubborn": STUBBORN}, "-n1")
    assert code == 1, output
    assert "hangs, and goes on when it is interrupted" in output
    assert re.search(r"crashed while running .*test_hangs", output), output
    assert "2 passed" in output


def test_one_that_ends_in_time_is_left_alone(tmp_path: Path) -> None:
    code, output = run(tmp_path, {"it": "async def test_works():\n    await trio.sleep(0.1)"}, hang_s=100.0)
    assert code == 0, output
    assert "2 passed" in output
