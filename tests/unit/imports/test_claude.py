"""Exports of Claude with their traps."""

from pathlib import Path
from typing import Any

import pytest

from klaw.imports import claude
from klaw.imports.events import Chat, LeftOut, Message, Unread
from tests.support.exports import events, texts, zipped

AT = "2024-03-05T10:00:00.123456Z"


def message(key: str, sender: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    return {"uuid": key, "sender": sender, "text": "not shown", "content": content, "created_at": AT, **more}


def export(folder: Path, *conversations: Any) -> Path:
    return zipped(folder / "data.zip", conversations__json=list(conversations), users__json=[], projects__json=[])


def chat(*messages: Any, key: str = "u1", name: str = "Велосипед") -> dict[str, Any]:
    return {"uuid": key, "name": name, "created_at": AT, "updated_at": AT, "chat_messages": list(messages)}


def test_what_was_said(tmp_path: Path) -> None:
    attached = [{"file_name": "счёт.txt", "extracted_content": "42 рубля"}, {"file_name": "", "extracted_content": "x"}]
    path = export(
        tmp_path,
        chat(
            message("m1", "human", "Где мой велосипед?", attachments=attached, files=[{"file_name": "кот.png"}, {}]),
            message("m2", "assistant", {"type": "thinking", "thinking": "hm"}, "In the", {"type": "tool_use"}, "shed"),
            message("m3", "human", created_at=None, text="old form") | {"content": None},
            message("m4", "assistant", {"type": "tool_result", "content": []}, text=""),
        ),
    )
    assert events(path, claude.read) == [
        Chat(key="u1", title="Велосипед"),
        Message(
            key="m1",
            role="user",  # type: ignore[arg-type]
            text="Где мой велосипед?\n[file: счёт.txt]\n42 рубля\n[file: pasted text]\nx\n[file: кот.png]",
            at="2024-03-05T10:00:00.123Z",
        ),
        LeftOut("tools and thoughts"),
        Message(key="m2", role="assistant", text="In the\nshed", at="2024-03-05T10:00:00.123Z"),  # type: ignore[arg-type]
        Message(key="m3", role="user", text="old form", at="2024-03-05T10:00:00.123Z"),  # type: ignore[arg-type]
        LeftOut("tools and thoughts"),
    ]


@pytest.mark.parametrize("bad", [None, [], {}, {"uuid": 1, "chat_messages": []}, {"uuid": "x", "chat_messages": 5}])
def test_one_bad_chat_does_not_stop_the_rest(tmp_path: Path, bad: Any) -> None:
    path = export(tmp_path, chat(message("a", "human", "one")), bad, chat(message("b", "human", "два"), key="u2"))
    assert texts(path, claude.read) == ["user: one", "user: два"]
    assert [each.what for each in events(path, claude.read) if isinstance(each, Unread)] == [
        "conversations.json, chat 2"
    ]


@pytest.mark.parametrize("bad", [None, 5, {}, {"uuid": "x", "sender": "robot", "content": []}])
def test_one_bad_message_does_not_stop_its_chat(tmp_path: Path, bad: Any) -> None:
    path = export(tmp_path, chat(message("a", "human", "one"), bad, message("b", "human", "два")))
    assert texts(path, claude.read) == ["user: one", "user: два"]
    unread = [each.what for each in events(path, claude.read) if isinstance(each, Unread)]
    assert unread == ["conversations.json, chat 1, message 2"]
