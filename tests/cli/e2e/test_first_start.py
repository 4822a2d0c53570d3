"""26.D3.3: what `make run` and the server say when somebody starts Klaw for the first time."""

import os
import subprocess

import httpx2
import pytest

from tests.support.repository import REPOSITORY
from tests.support.server import served, write_home

PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*"-m pip"*) echo "$*" >>"$PIP_CALLS"; echo "ERROR: no network" >&2; exit $PIP_EXIT ;;
esac
"""


async def test_the_address_of_the_page_is_named_first(tmp_path):
    async with served(write_home(tmp_path)) as server:
        first, second = server.stdout.decode().splitlines()
        address = first.removeprefix("Klaw listens on ").split()[0]
        assert address == server.url.replace("ws://", "http://").removesuffix("ws")
        assert "klaw chat" in second
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert "text/html" in (await client.get(address)).headers["content-type"]


async def test_the_address_of_the_socket_where_there_is_no_page(tmp_path):
    async with served(write_home(tmp_path, gateway={"http": {"enabled": False}})) as server:
        assert server.stdout.decode().splitlines()[0] == f"Klaw listens on {server.url}"


@pytest.mark.parametrize(("installed", "exit_code"), [("install", 0), ("install", 1), ("lock-check", 1)])
def test_installing_says_a_line_for_each_step_and_what_went_wrong(tmp_path, installed, exit_code):
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(PYTHON)
    python.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", installed, f"VENV={tmp_path / 'venv'}", f"PYTHON={python}"],
        cwd=REPOSITORY,
        env={**own, "PIP_CALLS": str(calls), "PIP_EXIT": str(exit_code)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == bool(exit_code)
    assert "ERROR: no network" in done.stderr
    assert 2 <= len(done.stdout.splitlines()) <= 4
    assert all("-m pip" not in line for line in done.stdout.splitlines())
    assert all(" -qq " in call for call in calls.read_text().splitlines())
