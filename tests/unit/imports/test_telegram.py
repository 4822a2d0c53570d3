"""Exports of Telegram Desktop with their traps."""

import json
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from klaw.imports import telegram
from klaw.imports.events import Chat, ImportRefused, LeftOut, Message, Unread
from tests.support.exports import Read, events, texts

BERLIN = ZoneInfo("Europe/Berlin")
DACHA: dict[str, Any] = {"kind": "private_group", "name": "Дача", "of": 50}


def reading(me: str | None = None) -> Read:
    return partial(telegram.read, me=me, zone=BERLIN)


def message(number: int, sender: str, text: Any, of: int = 7, **more: Any) -> dict[str, Any]:
    said = {"id": number, "type": "message", "date": "2024-03-05T10:00:00", "from": sender, "from_id": f"user{of}"}
    return {**said, "text": text, **more}


def chat(*messages: Any, kind: str = "personal_chat", name: str | None = "Анна", of: int = 7) -> dict[str, Any]:
    return {"name": name, "type": kind, "id": of, "messages": list(messages)}


def written(folder: Path, document: Any) -> Path:
    (folder / "result.json").write_text(json.dumps(document, ensure_ascii=False))
    return folder


def account(*chats: Any, left: Any = ()) -> dict[str, Any]:
    about = {"user_id": 1, "first_name": "Пётр"}
    return {
        "about": "x",
        "personal_information": about,
        "contacts": {"list": [{"name": "x", "id": 5, "type": "y"}]},
        "chats": {"about": "x", "list": list(chats)},
        "left_chats": {"about": "x", "list": list(left)},
    }


def test_texts_in_both_forms_and_what_is_no_text(tmp_path: Path) -> None:
    link = {"type": "text_link", "text": "it", "href": "https://c"}
    linked = ["See ", {"type": "link", "text": "https://a.b"}, link]
    absent = "(File not included. Change data exporting settings to download.)"
    found = chat(
        {"id": 1, "type": "service", "date": "2024-03-05T10:00:00", "action": "phone_call", "text": ""},
        message(2, "Анна", "Привет", date_unixtime="1709629200"),
        message(3, "Пётр", linked, of=1),
        message(4, "Анна", "", photo="photos/photo_1.jpg"),
        message(5, "Анна", "", file=absent, media_type="voice_message"),
        message(6, "Пётр", "look", of=1, file="files/план.pdf", file_name="план.pdf", forwarded_from="Олег"),
        message(7, "Анна", "", poll={"question": "Когда?"}),
        message(8, "Анна", ""),
    )
    path = written(tmp_path, found)
    found_events = events(path, reading())
    assert found_events[:2] == [Chat(key="7", title="Анна", people=True), LeftOut("notices")]
    said = [each for each in found_events if isinstance(each, Message)]
    assert [f"{each.role}: {each.text}" for each in said] == [
        "assistant: Анна: Привет",
        "user: See https://a.bit (https://c)",
        "assistant: Анна: [photo: photo_1.jpg]",
        "assistant: Анна: [voice message]",
        "user: [forwarded from Олег]\n[file: план.pdf]\nlook",
        "assistant: Анна: [poll: Когда?]",
    ]
    assert [each.at for each in said[:2]] == ["2024-03-05T09:00:00.000Z", "2024-03-05T09:00:00.000Z"]


def test_a_whole_account_knows_whose_it_is(tmp_path: Path) -> None:
    group = chat(
        message(1, "Пётр", "всем привет", of=1),
        message(2, "Олег", "hi", of=9),
        kind="private_group",
        name="Дача",
        of=50,
    )
    saved = chat(message(1, "Пётр", "note to self", of=1), kind="saved_messages", name=None, of=1)
    news = chat(message(1, "Z", "left", of=3), kind="public_channel", name="News", of=60)
    gone = chat(message(1, "x", "bye") | {"from": None}, name=None, of=8)
    path = written(tmp_path, account(group, saved, gone, chat(), left=[news]))
    found = events(path, reading())
    assert [each.title for each in found if isinstance(each, Chat)] == [
        "Дача",
        "Saved messages",
        "Deleted account 8",
        "News",
    ]
    assert texts(path, reading()) == [
        "user: всем привет",
        "assistant: Олег: hi",
        "user: note to self",
        "assistant: Deleted account: bye",
        "assistant: Z: left",
    ]


def test_a_group_alone_asks_who_somebody_is(tmp_path: Path) -> None:
    group = chat(
        message(1, "Пётр", "да", of=1), message(2, "Олег", "hi", of=9), kind="private_group", name="Дача", of=50
    )
    path = written(tmp_path, group)
    with pytest.raises(ImportRefused, match="give --me NAME; in it are Пётр, Олег"):
        events(path, reading())
    assert texts(path, reading("пётр")) == ["user: да", "assistant: Олег: hi"]
    assert texts(path, reading("user9")) == ["assistant: Пётр: да", "user: hi"]


@pytest.mark.parametrize("bad", [None, 5, {"type": "message", "text": "x"}, {"type": "message", "id": 1, "text": [5]}])
def test_one_bad_message_does_not_stop_the_rest(tmp_path: Path, bad: Any) -> None:
    path = written(tmp_path, account(chat(message(1, "Анна", "one"), bad, message(3, "Анна", "два"))))
    assert texts(path, reading()) == ["assistant: Анна: one", "assistant: Анна: два"]
    assert len([each for each in events(path, reading()) if isinstance(each, Unread)]) == 1


def test_what_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = written(tmp_path, account(chat(message(1, "Анна", "one"), message(2, "Анна", "two"))))
    text = (path / "result.json").read_text()
    (path / "result.json").write_text(text[: text.index("two")])
    assert texts(path, reading()) == ["assistant: Анна: one"]
    assert [each.what for each in events(path, reading()) if isinstance(each, Unread)] == [
        "result.json, after message 1 of Анна"
    ]
