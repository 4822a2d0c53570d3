"""Forms that exports of real life have now and then, and that cost a message or a chat once."""

import datetime as dt
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klaw.imports import chatgpt, claude, telegram, whatsapp
from klaw.imports.events import Message
from tests.support.exports import START, chatgpt_export, conversation, events, node, texts, zipped


def test_chatgpt_without_times_and_with_parts_that_are_nothing(tmp_path: Path) -> None:
    """A chat whose own times are null, and an answer that was cut off."""
    answer = {"content_type": "text", "parts": ["Ответ", None]}
    found = conversation("1", "", node("u", None, "user", "Привет", None), node("a", "u", "assistant", answer, START))
    path = chatgpt_export(tmp_path, found | {"create_time": None, "update_time": None})
    assert texts(path, chatgpt.read) == ["user: Привет", "assistant: Ответ"]
    assert {each.at for each in events(path, chatgpt.read) if isinstance(each, Message)} == {"2023-11-14T22:13:20.000Z"}


def test_claude_with_a_block_that_is_nothing(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "Ответ"}, None, {"type": "voice_note"}]
    said = {"uuid": "1", "sender": "assistant", "content": content, "text": "x", "created_at": "2024-01-01T00:00:00Z"}
    path = zipped(tmp_path / "data.zip", conversations__json=[{"uuid": "c", "name": None, "chat_messages": [said]}])
    assert texts(path, claude.read) == ["assistant: Ответ"]


@pytest.mark.parametrize(
    "found",
    [
        {"text": [], "text_entities": [{"type": "plain", "text": "Из газеты"}]},
        {"text": {"type": "bold", "text": "Из газеты"}},
        {"text": ["Из ", {"type": "italic", "text": "газеты"}], "edited": "2024-01-01T00:10:00", "reactions": []},
    ],
)
def test_telegram_where_the_text_is_elsewhere(tmp_path: Path, found: dict[str, Any]) -> None:
    said = {"id": 1, "type": "message", "date_unixtime": "1704067200", "from": "Канал", "from_id": "channel9", **found}
    chat = {"name": "Канал", "type": "private_supergroup", "id": 5, "messages": [said]}
    (tmp_path / "result.json").write_text(json.dumps(chat))
    assert texts(tmp_path, partial(telegram.read, me="Анна", zone=None)) == ["assistant: Канал: Из газеты"]


@pytest.mark.parametrize(
    ("head", "at"),
    [
        ("13.01.2024 г., 21:05 - ", "2024-01-13T21:05:00.000Z"),
        ("\u200e[13.01.2024, 21:05:07] ", "2024-01-13T21:05:07.000Z"),
        ("[1/13/24, 9:05:07\u202fPM] ", "2024-01-13T21:05:07.000Z"),
        ("13/1/2024, 9:05 p. m. - ", "2024-01-13T21:05:00.000Z"),
        ("13.01.24, 9:05 ПП - ", "2024-01-13T21:05:00.000Z"),
    ],
)
def test_whatsapp_writes_dates_as_the_telephone_does(tmp_path: Path, head: str, at: str) -> None:
    path = tmp_path / "Чат WhatsApp с контактом Пётр.txt"
    path.write_text(f"{head}Анна: Привет\nвторая строка: тоже\n{head}Анна изменила тему\n")
    reader = partial(whatsapp.read, me="Анна", order=None, zone=dt.UTC, title=None)
    said = [each for each in events(path, reader) if isinstance(each, Message)]
    assert [(each.text, each.at) for each in said] == [("Привет\nвторая строка: тоже", at)]
