"""Forms that exports of real life have now and then, and that cost a message or a chat once."""

import datetime as dt
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klaw.imports import chatgpt, claude, json_stream, openclaw, telegram, whatsapp
from klaw.imports.events import ExportedMessage, ImportRefused, Unread
from klaw.imports.export_files import opened
from tests.support.exports import START, chatgpt_export, conversation, events, node, talk, texts, zipped


def test_chatgpt_without_times_and_with_parts_that_are_nothing(tmp_path: Path) -> None:
    """A chat whose own times are null, and an answer that was cut off."""
    answer = {"content_type": "text", "parts": ["Ответ", None]}
    found = conversation("1", "", node("u", None, "user", "Привет", None), node("a", "u", "assistant", answer, START))
    path = chatgpt_export(tmp_path, found | {"create_time": None, "update_time": None})
    assert texts(path, chatgpt.read) == ["user: Привет", "assistant: Ответ"]
    assert {each.at for each in events(path, chatgpt.read) if isinstance(each, ExportedMessage)} == {
        "2023-11-14T22:13:20.000Z"
    }


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
    said = [each for each in events(path, reader) if isinstance(each, ExportedMessage)]
    assert [(each.text, each.at) for each in said] == [("Привет\nвторая строка: тоже", at)]


def test_half_a_surrogate_pair_costs_nothing_behind_it(tmp_path: Path) -> None:
    """A title or a text that a program cut inside an emoji, also where the parser gets it in pieces."""
    pad = json_stream.READ_BYTES
    for at in range(pad - 30, pad + 4):
        said = ['"' + "x" * at, "\\ude00", "\\ud83d\\ude00", "\\\\ud83d", '\\ud83d\\n"']
        talks = json.dumps([talk("c1", "1", "first", "TEXT"), talk("c2", "2", "last")]).replace('"TEXT"', "".join(said))
        (tmp_path / "conversations.json").write_text(talks)
        found = texts(tmp_path, chatgpt.read)
        assert found[1].rpartition("x")[2] == "�😀\\ud83d�\n"
        assert (len(found), found[2]) == (3, "user: last")


def test_a_message_of_many_megabytes_is_read_in_linear_time(tmp_path: Path) -> None:
    """Escapes cost the parser the square of a text's length, if it gets it in small pieces."""
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([talk("c1", "1", "ж" * 6_000_000), talk("c2", "2", "last")]))
    reads: list[int] = []
    with opened(str(path)) as export, export.files("conversations.json")[0].open() as stream:
        bounded = json_stream._BoundedReader(stream)
        while data := bounded.read(json_stream.READ_BYTES):
            reads.append(len(data))
    assert len(reads) < 20
    assert [len(each) for each in texts(path, chatgpt.read)] == [6_000_006, len("user: last")]


@pytest.mark.parametrize("device", ["fifo", "/dev/zero"])
def test_what_never_ends_is_refused(tmp_path: Path, device: str) -> None:
    path = tmp_path / "export.json" if device == "fifo" else Path(device)
    if device == "fifo":
        os.mkfifo(path)
    with pytest.raises(ImportRefused, match="is not a file"):
        events(path, chatgpt.read)


def test_utf_16_is_named(tmp_path: Path) -> None:
    (tmp_path / "_chat.txt").write_text("05.03.24, 11:00 - A: x\n", encoding="utf-16")
    (tmp_path / "conversations.json").write_text("[]", encoding="utf-16")
    reader = partial(whatsapp.read, me="A", order=None, zone=dt.UTC, title=None)
    for found in (events(tmp_path, reader), events(tmp_path, chatgpt.read)):
        assert [each.why for each in found if isinstance(each, Unread)] == ["is UTF-16: save it as UTF-8"]


def test_what_macos_keeps_beside_a_file_is_left_alone(tmp_path: Path) -> None:
    files: dict[str, Any] = {"_chat__txt": "05.03.24, 11:00 - A: x\n", "MACOSX/._chat__txt": b"\0\5\26\7"}
    path = zipped(tmp_path / "x.zip", **files)
    reader = partial(whatsapp.read, me="A", order=None, zone=dt.UTC, title=None)
    assert not [each for each in events(path, reader) if isinstance(each, Unread)]


@pytest.mark.parametrize("parent", [None, ["x"], {"a": 1}, 5])
@pytest.mark.parametrize("own", [None, 7, "id"])
def test_openclaw_without_usable_ids(tmp_path: Path, own: Any, parent: Any) -> None:
    """Sessions of its first versions have no ids; each message is one, also of the same moment."""
    entry = {"type": "message", "id": own, "parentId": parent, "timestamp": "2024-03-05T10:00:00Z"}
    lines = [{**entry, "message": {"role": "user", "content": text}} for text in ("да", "нет")]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    said = [each for each in events(tmp_path, openclaw.read) if isinstance(each, ExportedMessage)]
    assert [each.text for each in said] == ["да", "нет"]
    assert len({each.key for each in said}) == (2 if own is None else 1)


def test_openclaw_with_a_time_beyond_all_numbers(tmp_path: Path) -> None:
    entry = {"type": "message", "id": "1", "message": {"role": "user", "content": "x", "timestamp": 10**400}}
    (tmp_path / "s.jsonl").write_text(json.dumps(entry))
    assert [each.why for each in events(tmp_path, openclaw.read) if isinstance(each, Unread)] == ["has no time"]


@pytest.mark.parametrize(
    ("name", "lines", "file"),
    [
        ("WhatsApp-Chat mit Anna", "05.03.24, 11:00 - Anna: {}\n05.03.24, 11:02 - Б: IMG-1.jpg (Datei angehängt)\n", 1),
        ("Chat de WhatsApp con Anna", "25/3/24, 11:00 - Anna: {}\n25/3/24, 11:02 - Б: I.jpg (archivo adjunto)\n", 1),
        ("Discussion WhatsApp avec Anna", "25/03/2024 à 11:00 - Anna: {}\n25/03/2024 à 11:02 - Б: x\n", 0),
        ("Conversa do WhatsApp com Anna", "25/03/2024 11:00 - Anna: {}\n25/03/2024 11:02 - Б: I.a (arquivo)\n", 0),
        (
            "WhatsApp Chat - Anna",
            "[05.03.24, 11:00:00] Anna: {}\n\u200e[05.03.24, 11:02:00] Б: \u200e<Anhang: 1.jpg>\n",
            1,
        ),
        ("Чат WhatsApp с контактом Anna", "05.03.24, 11:00 - Anna: {}\n05.03.24, 11:02 - Б: x\n", 0),
        ("Чат WhatsApp с контактом Андреи\u0306", "05.03.24, 11:00 - Андрей: {}\n05.03.24, 11:02 - Б: x\n", 0),
    ],
)
def test_whatsapp_in_other_languages_tells_who_is_who(tmp_path: Path, name: str, lines: str, file: int) -> None:
    """By the file's name, also as macOS writes it; and what was pasted from another chat does not begin a message."""
    pasted = "hi\n[3/25/24, 9:05:07 PM] X: pasted\n31.02.2024, 10:00 - x: y\n3-25-24, 10:00 - A: x"
    path = tmp_path / f"{name}.txt"
    path.write_text(lines.format(pasted))
    reader = partial(whatsapp.read, me=None, order=None, zone=dt.UTC, title=None)
    found = events(path, reader)
    said = [each for each in found if isinstance(each, ExportedMessage)]
    assert [(str(each.role), each.text.endswith(pasted[-20:])) for each in said] == [
        ("assistant", True),
        ("user", False),
    ]
    assert len([each for each in found if isinstance(each, Unread)]) == file


def test_whatsapp_with_long_messages_is_read_in_linear_time(tmp_path: Path) -> None:
    """Each of these took minutes."""
    for text in ("a.b " * 60_000, "<attached" * 60_000, "a line of text\n" * 60_000, "~ " * 60_000 + ": x"):
        path = tmp_path / "_chat.txt"
        path.write_text(f"05.03.24, 11:00 - A: {text}\n05.03.24, 11:01 - A: end\n")
        reader = partial(whatsapp.read, me="A", order=None, zone=dt.UTC, title=None)
        assert [each[-10:] for each in texts(path, reader)] == [f"user: {text}".rstrip()[-10:], "user: end"]


def test_telegram_finds_your_name_however_it_is_written(tmp_path: Path) -> None:
    said = {
        "id": 1,
        "type": "message",
        "date_unixtime": "1704067200",
        "from": "Андрей",
        "from_id": "user9",
        "text": "x",
    }
    (tmp_path / "result.json").write_text(json.dumps({"name": "Дача", "type": "private_group", "messages": [said]}))
    assert texts(tmp_path, partial(telegram.read, me="андреи\u0306", zone=None)) == ["user: x"]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_what_is_nested_too_deep_is_not_read(tmp_path: Path, opening: str) -> None:
    """The parser would take gigabytes for it."""
    path = tmp_path / "conversations.json"
    path.write_text(f"{json.dumps([talk('c1', '1', '[{' * 2_000)])[:-1]},{opening * 100_000}")
    found = events(path, chatgpt.read)
    assert [each.why for each in found if isinstance(each, Unread)] == ["is nested too deep: the rest was not read"]
    (tmp_path / "result.json").write_text(f'{{"name": "x", "messages": [{opening * 100_000}')
    assert [type(each) for each in events(tmp_path, partial(telegram.read, me=None, zone=None))] == [Unread]


@pytest.mark.parametrize("damage", ["\\x0B", '"', "too large"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_damaged_chat_does_not_cost_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, number: int
) -> None:
    """26.C3"""
    said = ["BAD" if n == number else f"{n}" for n in range(3)]
    text = json.dumps([talk(f"c{n}", "t", each) for n, each in enumerate(said)], indent=1)
    if damage == "too large":
        monkeypatch.setattr(json_stream, "MAX_VALUE_BYTES", 100_000)
        monkeypatch.setattr(json_stream, "PIECE_BYTES", 60_000)
        damage = "x" * 200_000
    (tmp_path / "conversations.json").write_text(text.replace("BAD", damage))
    found = events(tmp_path, chatgpt.read)
    texts_ = [each.text for each in found if isinstance(each, ExportedMessage)]
    unread = [each.what for each in found if isinstance(each, Unread)]
    assert texts_ == [each for each in said if each != "BAD"]
    assert unread == [f"conversations.json, chat {number + 1}"]
