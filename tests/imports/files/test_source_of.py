"""Which program an export comes from."""

import json
from pathlib import Path

import pytest

from klaw.imports.events import ImportRefused
from klaw.imports.export_files import opened, source_of
from tests.imports.files.test_formats import FORMATS
from tests.support.exports import chatgpt_export, talk, zipped


def source(path: Path) -> str:
    with opened(str(path)) as export:
        return source_of(export)


def in_zip(path: Path) -> Path:
    """The same in a ZIP, as people send it."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    root = path.parent if path.is_file() else path
    named = {str(each.relative_to(root)): each.read_bytes() for each in files}
    return zipped(path.parent / "sent.zip", **named)


@pytest.mark.parametrize("wanted", FORMATS)
def test_each_format_as_it_comes_and_in_a_zip(tmp_path: Path, wanted: str) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    path = FORMATS[wanted][0](folder, "Привет", '"mapping"')
    assert source(path) == wanted
    if path.suffix != ".zip":
        assert source(in_zip(path)) == wanted


def test_one_file_without_its_zip(tmp_path: Path) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps([talk("c1", "x", '"chat_messages"')]))
    assert source(tmp_path / "conversations.json") == "chatgpt"
    (tmp_path / "s.jsonl").write_text('{"type": "session", "id": "s"}\n')
    assert source(tmp_path / "s.jsonl") == "openclaw"
    (tmp_path / "_chat.txt").write_text("\u200e[05.03.24, 11:00:01] Анна: Привет\n[05.03.24, 11:00:02] Анна: Привет\n")
    assert source(tmp_path / "_chat.txt") == "whatsapp"


def test_an_export_of_klaw_whose_chat_has_the_name_of_another_format(tmp_path: Path) -> None:
    chats = {f"chats/{name}.json": json.dumps({"chat": name}).encode() for name in ("conversations", "result")}
    assert source(zipped(tmp_path / "klaw.zip", **chats)) == "klaw"
    assert source(chatgpt_export(tmp_path, talk("c1", "x", "y"))) == "chatgpt"


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"a": 1}]'])
def test_what_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(content)
    with pytest.raises(ImportRefused, match=r"notes.json: is no export of"):
        source(path)
    with pytest.raises(ImportRefused, match="is no export of"):
        source(zipped(tmp_path / "other.zip", a__png=b"x"))
