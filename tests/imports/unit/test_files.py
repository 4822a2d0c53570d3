"""The files of an export: damaged, encrypted, far larger than they say; memory that does not grow with them."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from klaw.imports import chatgpt, export_files, json_stream
from klaw.imports.events import ExportedMessage, ImportRefused, Unread
from klaw.imports.export_files import opened
from tests.support.exports import chatgpt_export, events, talk, texts, zipped
from tests.support.repository import REPOSITORY

MEASURED = """
import resource, sys
from pathlib import Path
from klaw.imports import {source} as format
from klaw.imports.feed import feed
from klaw.imports.export_files import opened
with opened(sys.argv[1]) as export:
    report = feed(format.read(export{more}), "{source}", None, lambda done: None)
print(report.messages, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_a_zip_that_holds_far_more_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "FREE_BYTES", 1 << 20)
    bomb = json.dumps([talk("c1", "ok", "first")])[:-1] + "," + " " * (64 << 20) + "{}]"
    path = zipped(tmp_path / "bomb.zip", conversations__json=bomb)
    assert path.stat().st_size < 100_000
    assert texts(path, chatgpt.read) == ["user: first"]
    (unread,) = (each for each in events(path, chatgpt.read) if isinstance(each, Unread))
    assert "far larger than its ZIP claims" in unread.why


def test_a_value_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_VALUE_BYTES", 1 << 20)
    path = chatgpt_export(
        tmp_path, talk("c1", "1", "first"), talk("c2", "2", "x" * (2 << 20)), talk("c3", "3", "third")
    )
    assert texts(path, chatgpt.read) == ["user: first", "user: third"]
    (unread,) = (each for each in events(path, chatgpt.read) if isinstance(each, Unread))
    assert unread == Unread("conversations.json, chat 2", "is too large, or damaged JSON")


def test_a_damaged_zip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    chats = [talk(f"c{n}", "1", *(f"{n} {m} {hash((n, m))}" for m in range(50))) for n in range(100)]
    path = chatgpt_export(tmp_path, *chats)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 100] = bytes(100)
    path.write_bytes(data)
    found = events(path, chatgpt.read)
    assert 50 < sum(isinstance(each, ExportedMessage) for each in found) < 5_000
    assert sum(isinstance(each, Unread) for each in found) == 1


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    path = chatgpt_export(tmp_path, talk("c1", "1", "first"))
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        place = archive.start_dir
    data[6] |= 1  # a bit that says that the file is encrypted
    data[place + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(ImportRefused, match="is encrypted"):
        events(path, chatgpt.read)
    with pytest.raises(ImportRefused, match="cannot be read: No such file or directory"):
        events(tmp_path / "gone.zip", chatgpt.read)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportRefused, match="there is no conversations"):
        events(tmp_path / "empty", chatgpt.read)


def test_links_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text(json.dumps([talk("c1", "1", "secret")]))
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "conversations.json").symlink_to(tmp_path / "secret.json")
    with opened(str(folder)) as export:
        assert export.files(chatgpt.FILES) == []


def telegram_chat(path: Path, count: int) -> None:
    """One chat of so many messages, in one list."""
    with path.open("w") as file:
        file.write('{"name": "Анна", "type": "personal_chat", "id": 7, "messages": [')
        for number in range(count):
            said: dict[str, Any] = {"id": number, "type": "message", "date_unixtime": "1709629200", "from_id": "user1"}
            file.write(("," if number else "") + json.dumps({**said, "text": "Картошку окучивали дважды. " * 40}))
        file.write("]}")


def claude_chats(path: Path, count: int) -> None:
    with path.open("w") as file:
        file.write("[")
        for number in range(count // 20):
            said = {"sender": "human", "created_at": "2024-03-05T10:00:00Z", "text": "Картошку окучивали дважды. " * 40}
            messages = [{"uuid": f"{number} {each}", **said} for each in range(20)]
            chat = {"uuid": f"{number}", "name": "Сад", "chat_messages": messages}
            file.write(("," if number else "") + json.dumps(chat))
        file.write("]")


@pytest.mark.parametrize(
    ("source", "more", "write"), [("claude", "", claude_chats), ("telegram", ", None, None", telegram_chat)]
)
def test_memory_does_not_grow_with_the_export(tmp_path: Path, source: str, more: str, write: Any) -> None:
    """Ten times the export takes no more memory, and far less than the export is large."""
    used = {}
    for count in (1_000, 10_000):
        path = tmp_path / f"{count}.json"
        write(path, count)
        script = MEASURED.format(source=source, more=more)
        out = subprocess.check_output([sys.executable, "-c", script, str(path)], cwd=REPOSITORY, text=True)
        messages, used[count] = map(int, out.split())
        assert messages == count
    assert path.stat().st_size > 45 << 20
    assert used[10_000] < used[1_000] + 8
