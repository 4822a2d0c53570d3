"""The description of the API is true: schemathesis makes requests of it, good and bad, for a real server."""

import re
import sys
from pathlib import Path
from typing import Any

import httpx
import trio

from klaw.api import rest
from klaw.gateway.tokens import add_token, tokens_file
from tests.support.server import clean_environ, served, write_home
from tests.support.waiting import HANG_S

EXAMPLES = 1
"""Of each operation, beside those of every limit in the description."""

BEYOND_A_SCHEMA = (
    # fields that depend on each other
    "chats_messages", "messages_send", "chats_rename", "receipt", "schedule_preview", "schedule_add", "schedule_edit",
    "kb_add", "topics_merge", "topics_edit",
    # times, cursors, places and names of things as people write them
    "search", "topics_rebuild", "why", "fact_add", "models_test", "import_remember", "import_put",
    "export_records", "remind", "snooze", "zone_set",
    # a body, a login, a chat or an operation that must be there
    "call", "file_upload", "import_keep", "log_out", "heartbeat", "import_upload_export", "import_run",
    # a network in which there is a phone, keys of a browser
    "token_phone", "push_add",
)  # fmt: skip
"""Operations that may refuse with 400 what their schema lets through."""
UNTYPED = {
    "TurnAnswer.receipt", "MessageInTurn.candidate", "WhyInTurn.candidate",  # receipts keep older forms
    "Setting.value", "Setting.default", "Setting.written",  # each setting has a type of its own
    "CommandState.answer", "ImportState.answer", "call",  # what a command, or any operation, answers
    "ExportedRecords.records", "RunAnswer.details",  # a line of any kind's journal; what kinds of runs note
}  # fmt: skip
"""Parts of answers that have no fixed form."""
CONFIGURATION = f"""
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 424, 429, "5xx"]
[[operations]]
include-operation-id = {list(BEYOND_A_SCHEMA)}
checks.positive_data_acceptance.enabled = false
"""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "PROPFIND")
BESIDE = (
    "/", "/healthz", "/metrics", "/static/", "/static/page.js", "/static/code.css", "/api/openapi.json", "/mcp",
    "/v1/models", "/v1/chat/completions", "/api/tags", "/api/show", "/api/version", "/api/chat",
)  # fmt: skip
"""Paths that the description does not have."""


async def test_what_schemathesis_makes_of_the_description(tmp_path):
    home = write_home(tmp_path / "home", gateway={"http": {"requestsPerSecond": 10_000}})
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    _, token = add_token(tokens_file(home / "config"), "root", "2026-01-01T00:00:00Z", operator=True)
    async with served(home) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        with trio.fail_after(HANG_S * 4):
            done = await trio.run_process(
                [
                    str(Path(sys.executable).parent / "schemathesis"), "run", f"{base}/api/openapi.json",
                    "--header", f"Authorization: Bearer {token}",
                    "--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES),
                    "--generation-deterministic", "--suppress-health-check", "all", "--warnings", "off", "--no-color",
                    # While the database is made new, nobody is answered.
                    "--exclude-operation-id", "reindex",
                    # It asks services of the internet.
                    "--exclude-operation-id", "connect_search",
                ],
                capture_stdout=True, check=False, cwd=tmp_path, env=clean_environ(),
            )  # fmt: skip
        assert done.returncode == 0, done.stdout.decode()[-8000:]
        assert not [each for each in server.events() if each["event"] == "request_failed"]
        assert server.running


async def test_each_method_that_a_path_does_not_have_is_told_which_it_has(tmp_path):
    """26.D4: also paths of files, and methods that nothing has."""
    home = write_home(tmp_path / "home", gateway={"http": {"requestsPerSecond": 10_000}})
    async with served(home) as server, httpx.AsyncClient(timeout=HANG_S) as client:
        client.base_url = server.url.replace("ws://", "http://").removesuffix("/ws")
        described = (await client.get("/api/openapi.json")).json()["paths"]
        refused = 0
        for path in (*described, *BESIDE):
            named = re.sub(r"{.*?}", "1", path)
            for method in METHODS:
                if method.lower() in described.get(path, ()):
                    continue
                answer = await client.request(method, named)
                if answer.status_code == 405:
                    refused += 1
                    allowed = answer.headers.get("allow", "").split(", ")
                    assert not {"", method} & {*allowed}, (method, path)
                    assert {each.upper() for each in described.get(path, ())} <= set(allowed), (method, path)
                else:
                    assert answer.status_code < 500, (method, path)
        assert refused > 8 * len(described)


async def test_every_route_is_explained_and_every_answer_is_typed(tmp_path):
    async with served(write_home(tmp_path / "home")) as server, httpx.AsyncClient(timeout=HANG_S) as client:
        url = server.url.replace("ws://", "http://").removesuffix("/ws")
        told = (await client.get(f"{url}/api/openapi.json")).json()
    assert told["info"]["contact"]
    untyped: set[str] = set()

    def look(schema, name):
        for each in (schema, *schema.get("anyOf", ())):
            if name and not each.keys() & {"$ref", "anyOf", "const", "enum", "properties", "additionalProperties"}:
                is_open = each.get("type") is None or "object" in [each["type"], *each["type"]]
                untyped.update([name] if is_open else [])
            for member, inner in each.get("properties", {}).items():
                look(inner, f"{name}.{member}")
            for inner in (each.get("items"), each.get("additionalProperties")):
                look(inner, name) if isinstance(inner, dict) else None

    for routes in told["paths"].values():
        for name, route in {each["operationId"]: each for each in routes.values()}.items():
            assert route["summary"].endswith("."), name
            assert route["description"].endswith((".", "!")), name
            for answer in route["responses"].values():
                look(answer.get("content", {}).get("application/json", {}).get("schema", {"const": 1}), name)
    for name, schema in told["components"]["schemas"].items():
        look(schema, name)
        # openapi-python-client would use one name for both
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() not in schema["properties"], name
    assert untyped == UNTYPED


def test_the_description_tells_what_each_json_answer_holds():
    """26.D4: so that clients which are made of it have types."""
    named: dict[str, Any] = {}
    for found in rest.doors():
        answer = rest.described(found, named)["responses"]["200"]["content"]["application/json"]["schema"]
        assert named[answer["$ref"].rpartition("/")[2]]["properties"], found.operation.name
    assert {"Fact", "Person", "Topic", "TaskAnswer", "RunAnswer", "BaseAnswer", "Document", "ListedChat"} <= {*named}
    assert "text" in named["Fact"]["properties"]
    # openapi-python-client knows no enum of booleans, and left out every answer that has this class
    assert {"const": True} in named["BaseAnswer"]["properties"]["of_messages"]["anyOf"]
