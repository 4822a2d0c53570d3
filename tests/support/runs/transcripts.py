"""Transcripts of subagent runs, in the form in which the writer keeps them."""

import json
from pathlib import Path
from typing import Any

from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import TaskName, run_folder
from klaw.llm.providers.adapt import request_tokens
from klaw.runs.transcripts import PastRun


def run_tokens(run: PastRun) -> int:
    """Estimated tokens of a run in a request."""
    return request_tokens(run.messages)


def line(run: str, role: str, kind: str, content: str, **metadata: Any) -> dict[str, Any]:
    return {
        "rowid": None,
        "id": f"{run}-{role}-{len(content)}",
        "user_id": "local",
        "channel": "klaw",
        "chat_id": None,
        "seq": None,
        "role": role,
        "type": kind,
        "content": content,
        "metadata": {"run": run, "model": "local/x", **metadata},
        "tokens": 1,
        "created_at": "2026-11-22T12:00:00.000Z",
        "segment": None,
    }


def request(run: str, text: str = "Что нового?") -> dict[str, Any]:
    return line(run, "user", "text", text)


def calls(run: str, *ids: str, text: str = "") -> dict[str, Any]:
    asked = [{"id": call, "name": "web_fetch", "arguments": '{"url": "x"}'} for call in ids]
    return line(run, "assistant", "tool_call", text, calls=asked)


def result(run: str, call: str, text: str = "a page") -> dict[str, Any]:
    return line(run, "tool", "tool_result", text, call=call, name="web_fetch")


def answer(run: str, text: str = "Ничего нового.") -> dict[str, Any]:
    return line(run, "assistant", "text", text)


def a_run(run: str) -> list[dict[str, Any]]:
    """A whole run with one round of tools."""
    return [request(run), calls(run, "c1"), result(run, "c1"), answer(run, f"answer of {run}")]


def as_bytes(lines: list[dict[str, Any] | bytes]) -> bytes:
    return b"".join(
        one + b"\n" if isinstance(one, bytes) else json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in lines
    )


def write(
    conversations: Path, name: str, day: str, lines: list[dict[str, Any] | bytes], *, user: UserId = LOCAL_USER
) -> Path:
    folder = conversations / run_folder(user, TaskName(name))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{day}.jsonl"
    path.write_bytes(as_bytes(lines))
    return path
