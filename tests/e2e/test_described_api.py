"""The description of the API is true: schemathesis makes requests of it, good and bad, for a real server."""

import sys
from pathlib import Path

import trio

from klaw.gateway.auth import add_token, tokens_file
from tests.support.server import clean_environ, served, write_home
from tests.support.waiting import HANG_S

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
EXAMPLES = 1
"""Of each operation, beside those of every limit in the description."""


async def test_what_schemathesis_makes_of_the_description(tmp_path):
    home = write_home(tmp_path / "home", gateway={"http": {"requestsPerSecond": 10_000}})
    _, token = add_token(tokens_file(home / "config"), "root", "2026-01-01T00:00:00Z", operator=True)
    async with served(home) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        with trio.fail_after(HANG_S * 4):
            done = await trio.run_process(
                [
                    str(Path(sys.executable).parent / "schemathesis"), "run", f"{base}/api/openapi.json",
                    "--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS),
                    "--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES),
                    "--generation-deterministic", "--suppress-health-check", "all", "--warnings", "off", "--no-color",
                    # While the database is made new, nobody is answered.
                    "--exclude-operation-id", "reindex",
                ],
                capture_stdout=True, check=False, cwd=tmp_path, env=clean_environ(),
            )  # fmt: skip
        assert done.returncode == 0, done.stdout.decode()[-8000:]
        assert not [each for each in server.events() if each["event"] == "request_failed"]
        assert server.running
