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


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("manifest-0001.json", {"data_files": []}, "claude"),
        ("memories.json", [{"conversations_memory": "x"}], "claude"),
        ("p1.json", {"uuid": "p", "prompt_template": "", "docs": []}, "claude"),
        ("data.jsonl", {"uuid": "u", "chat_messages": []}, "claude"),
        ("MyActivity.json", [{"header": "Gemini Apps", "title": "Prompted x"}], "gemini"),
        ("Моя активность.json", [{"header": "Приложения Gemini", "title": "x"}], "gemini"),
        ("x.html", '<html><p class="mdl-typography--title">Gemini Apps<br></p>', "gemini"),
        ("x.txt", "[١/٣/٢٠٢٦، ٣:٠٤:٠٥ م] Anna: x", "whatsapp"),
        ("محادثة واتساب مع Boris.txt", "١/٣/٢٠٢٦، ٣:٠٤ م - Anna: x", "whatsapp"),
    ],
)
def test_the_content_of_one_file_tells(tmp_path: Path, name: str, content: object, wanted: str) -> None:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    assert source(path) == wanted


def test_parts_and_folders_of_other_languages_are_known(tmp_path: Path) -> None:
    activity = [{"header": "Приложения Gemini", "title": "x"}]
    path = zipped(tmp_path / "a.zip", **{"Takeout/Моя активность/Приложения Gemini/Моя активность__json": activity})
    assert source(path) == "gemini"
    assert source(zipped(tmp_path / "b.zip", data__jsonl='{"uuid": "u", "chat_messages": []}\n')) == "claude"
    (tmp_path / "parts").mkdir()
    zipped(tmp_path / "parts" / "conversations-000.zip", data__jsonl='{"uuid": "u", "chat_messages": []}\n')
    assert source(tmp_path / "parts") == "claude"


def test_a_folder_that_is_called_after_another_program_is_still_its_own(tmp_path: Path) -> None:
    sessions = tmp_path / "agents" / "gemini" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "sessions.json").write_text("{}")
    (tmp_path / "manifest.json").write_text("{}")
    (sessions / "s.jsonl").write_text('{"type": "message", "message": {"role": "user", "content": "x"}}\n')
    assert source(tmp_path) == "openclaw"


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"a": 1}]'])
def test_what_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(content)
    with pytest.raises(ImportRefused, match=r"notes.json: is no export of"):
        source(path)
    with pytest.raises(ImportRefused, match="is no export of"):
        source(zipped(tmp_path / "other.zip", a__png=b"x"))
