"""Reads a user's own texts for calibrating: one text a line, or a conversation as JSON."""

import json
from pathlib import Path
from typing import Any

from klaw.errors import ModelError
from klaw.memory.embed.calibration import Talk, of_messages


def read_talk(path: Path) -> Talk:
    """One file as one conversation.

    Args:
        path: a text file with one message a line, or a JSON object ``{"messages": [{"id", "content"}], "questions":
            [{"query", "evidence": [message ids]}]}``; ``questions`` and ids are optional, other keys are left alone.

    Raises:
        ModelError: it cannot be read, or a field is missing or of the wrong type (named in the text).
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as exc:
        raise ModelError(f"{path}: cannot be read ({exc.strerror or type(exc).__name__})") from exc
    except UnicodeDecodeError as exc:
        raise ModelError(f"{path}: is not UTF-8 text") from exc
    if text.lstrip().startswith("{"):
        try:
            raw = json.loads(text)
        except ValueError as exc:
            raise ModelError(f"{path}: looks like JSON but is not ({exc})") from exc
        return _of_json(path, raw)
    lines = dict.fromkeys(line.strip() for line in text.splitlines())
    lines.pop("", None)
    return of_messages(list(lines))


def _of_json(path: Path, raw: dict[str, Any]) -> Talk:
    messages = _list(path, raw, "messages")
    contents = [_text(path, f"messages[{at}]", each, "content") for at, each in enumerate(messages)]
    if not contents:
        raise ModelError(f"{path}: messages: is empty")
    if not raw.get("questions"):
        return of_messages(contents)
    place = {each["id"]: at for at, each in enumerate(messages) if isinstance(each.get("id"), str)}
    queries, related = [], set()
    for number, question in enumerate(_list(path, raw, "questions")):
        queries.append(_text(path, f"questions[{number}]", question, "query"))
        evidence = question.get("evidence", [])
        if not isinstance(evidence, list):
            raise ModelError(f"{path}: questions[{number}].evidence: expected a list of message ids")
        related |= {(number, place[each]) for each in evidence if isinstance(each, str) and each in place}
    return Talk(messages=tuple(contents), queries=tuple(queries), related=frozenset(related))


def _list(path: Path, raw: dict[str, Any], key: str) -> list[Any]:
    value = raw.get(key)
    if not isinstance(value, list):
        raise ModelError(f"{path}: {key}: expected a list")
    return value


def _text(path: Path, where: str, item: object, key: str) -> str:
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, str):
        raise ModelError(f"{path}: {where}.{key}: expected a text")
    return value
