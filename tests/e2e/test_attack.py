"""Half a minute of ``tools/attack.py``: nothing lost, nothing told, no leak. Waits are only reported."""

import json
import sys

import trio

from tests.support.repository import REPOSITORY
from tests.support.server import clean_environ

HANG_S = 900.0
DURATION = ("--minutes", "0.6", "--kills", "5")


async def test_attacks_lose_nothing_and_tell_nothing(capfd):
    with trio.fail_after(HANG_S):
        done = await trio.run_process(
            [
                sys.executable,
                "tools/attack.py",
                *["--minutes", "0.6", "--kills", "5", "--seed", "12", "--json", "--no-wait-limits"],
            ],
            capture_stdout=True,
            check=False,
            cwd=REPOSITORY,
            env=clean_environ(),
        )
    found = json.loads(done.stdout)
    print(found)
    assert found["problems"] == {}
    assert done.returncode == 0
    assert found["frames"] > 400
    assert found["acknowledged"] > 20
    assert found["kills"] > 0
    assert found["questions"] > 0
    assert found["silent sockets"] > 0
    for kind in ("HTTP/2", "short connections", "slow texts", "sheets 201", "large answered", "large 400"):
        assert found[kind] > 0, "26: what has its own kind of attack over HTTP"
