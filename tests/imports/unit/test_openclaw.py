"""Sessions of OpenClaw."""

import json
from pathlib import Path
from typing import Any

import pytest

from klaw.imports import openclaw
from klaw.imports.events import ExportedChat, ExportedMessage, LeftOut, Unread
from tests.support.exports import events, texts

AT = "2026-02-06T07:49:03.491Z"


def event(key: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, "timestamp": 1770364143489}
    return {"type": "message", "id": key, "parentId": parent, "timestamp": AT, "message": message, **more}


def session(folder: Path, *lines: Any, name: str = "s1", head: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    first = [{"type": "session", "version": 3, "id": name, "timestamp": AT, "cwd": "/"}] if head else []
    written = [each if isinstance(each, str) else json.dumps(each) for each in (*first, *lines)]
    (folder / f"{name}.jsonl").write_text("\n".join(written) + "\n")
    return folder / f"{name}.jsonl"


def text(said: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": said}]


def test_a_home_with_its_index(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "main" / "sessions"
    session(
        folder,
        {"type": "model_change", "id": "m", "parentId": None, "timestamp": AT},
        event("1", "m", "user", text("Где велосипед?")),
        event(
            "2", "1", "assistant", [{"type": "thinking", "thinking": "hm"}, *text("In the shed"), {"type": "toolCall"}]
        ),
        event("3", "2", "toolResult", text("found")),
        event("4", "3", "assistant", "as a text"),
        event("5", "4", "user", [{"type": "image", "data": "x"}], timestamp=None),
    )
    session(folder, event("1", None, "user", text("other")), name="s2")
    named = {"sessionId": "s2", "displayName": "Анна"}
    index = {"agent:main:main": {"sessionId": "s1"}, "agent:main:telegram:7": named, "x": {}}
    (folder / "sessions.json").write_text(json.dumps(index))
    found = events(tmp_path, openclaw.read)
    assert [each for each in found if isinstance(each, ExportedChat)] == [
        ExportedChat(key="s1", title="main main"),
        ExportedChat(key="s2", title="Анна"),
    ]
    assert [(each.key, each.text, each.at) for each in found if isinstance(each, ExportedMessage)] == [
        ("1", "Где велосипед?", AT),
        ("2", "In the shed", AT),
        ("4", "as a text", AT),
        ("5", "[image]", "2026-02-06T07:49:03.489Z"),
        ("1", "other", AT),
    ]
    assert LeftOut("tools") in found


def test_what_was_asked_again_was_replaced(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        event("1", None, "user", text("Q")),
        event("2", "1", "assistant", text("old")),
        event("3", "1", "assistant", text("new")),
    )
    assert texts(path, openclaw.read) == ["user: Q", "assistant: new"]


def test_without_parents_all_was_said(tmp_path: Path) -> None:
    path = session(tmp_path, event("1", "gone", "user", text("Q")), event("2", "1", "assistant", text("A")), head=False)
    assert texts(path, openclaw.read) == ["user: Q", "assistant: A"]


def test_a_bad_line_does_not_stop_the_rest(tmp_path: Path) -> None:
    bad = {"type": "message", "id": "2", "parentId": "1"}
    path = session(
        tmp_path, event("1", None, "user", text("Q")), '{"torn', "[]", bad, event("3", "2", "user", text("два"))
    )
    (tmp_path / "sessions.json").write_text("{torn")
    assert texts(tmp_path, openclaw.read) == ["user: Q", "user: два"]
    assert [each.what for each in events(path, openclaw.read) if isinstance(each, Unread)] == [
        "s1.jsonl, line 3",
        "s1.jsonl, line 4",
        "s1.jsonl, line 5",
    ]


ENVELOPE = 'Conversation info (untrusted metadata):\n```json\n{"sender": "Anna"}\n```\n\n'


@pytest.mark.parametrize(
    ("role", "text", "said"),
    [
        ("user", f"{ENVELOPE}Hello", "Hello"),
        ("user", "[Telegram Anna id:5 2026-03-01 10:00 UTC] Hello\n[message_id: 77]", "Hello"),
        ("user", "System: [2026-03-01 10:00:00 UTC] Node connected\nHello", "Hello"),
        ("user", "[Mon 2026-03-02 10:00 GMT+1] Hello", "Hello"),
        ("user", "[WhatsApp] is down, see 10:00", "[WhatsApp] is down, see 10:00"),
        ("user", "[Meeting 2026-03-01 10:00] book it", "[Meeting 2026-03-01 10:00] book it"),
        ("user", "Read HEARTBEAT.md if it exists (workspace context). Follow it strictly.", None),
        ("user", "A new session was started via /new or /reset. Greet the user.", None),
        ("user", "[cron:ab-12 water] Water the plants", None),
        ("assistant", "HEARTBEAT_OK", None),
        ("assistant", "NO_REPLY", None),
        ("assistant", "[[reply_to_current]] Yes", "Yes"),
        ("assistant", "It answers HEARTBEAT_OK", "It answers HEARTBEAT_OK"),
    ],
)
def test_what_the_program_writes_is_nobodys_word(tmp_path: Path, role: str, text: str, said: str | None) -> None:
    """26.C3"""
    entry = {"type": "message", "id": "1", "timestamp": "2024-03-05T10:00:00Z"}
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}]
    (tmp_path / "s.jsonl").write_text(json.dumps({**entry, "message": {"role": role, "content": content}}))
    assert texts(tmp_path, openclaw.read) == ([f"{role}: {said}"] if said else [])
    left = [each.why for each in events(tmp_path, openclaw.read) if isinstance(each, LeftOut)]
    assert left == ["tools and thoughts", *([] if said else ["notices"])]
