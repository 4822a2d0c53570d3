"""Files that exports carry: they come with their messages, once, and go with the import."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klaw.domain.attachment import files_of
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.imports import chatgpt, telegram, whatsapp
from klaw.imports.export_files import opened
from klaw.imports.feed import feed
from klaw.store import attachments
from klaw.store.kinds import messages
from tests.support.exports import FIRST, SECOND, THIRD, Read, conversation, imported, node, zipped
from tests.support.forgetting import forgetter, holding
from tests.support.stores import running_store

PICTURE, NOTE = b"\x89PNG\r\n\x1a\n" + b"Kanarienvogel" * 50_000, "Код от калитки: Kanarienvogel-77".encode()


def of_telegram(folder: Path) -> Path:
    """A folder; what is missing is named, what the export says it does not have is not."""
    names = (
        "photos/photo_1@05-03-2024.jpg",
        "files/план.txt",
        "files/missing.pdf",
        f"files/{'я' * 300}",
        "(File not included.)",
        "../secret.txt",
    )
    found = [
        {"id": n, "type": "message", "date_unixtime": "1709632800", "from": "Анна", "from_id": "user7", "text": f"{n}",
         "photo" if "photo" in name else "file": name}
        for n, name in enumerate(names)
    ]  # fmt: skip
    (folder / "secret.txt").write_text("not of the export")
    folder = folder / "ChatExport"
    for name, data in zip(names, (PICTURE, NOTE), strict=False):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(data)
    (folder / "result.json").write_text(
        json.dumps({"name": "Анна", "type": "personal_chat", "id": 7, "messages": found})
    )
    return folder


def of_telegram_alone(folder: Path) -> Path:
    return of_telegram(folder) / "result.json"


def of_whatsapp(folder: Path) -> Path:
    said = (
        "IMG-1.jpg (file attached)",
        "план.txt (файл добавлен)",
        "missing.pdf (file attached)",
        "../secret.txt (file attached)",
    )
    lines = "".join(f"05.03.2024, 11:0{n} - Анна: {text}\n" for n, text in enumerate(said))
    files: dict[str, Any] = {"WhatsApp Chat with Анна__txt": lines, "IMG-1__jpg": PICTURE, "план__txt": NOTE}
    return zipped(folder / "chat.zip", **files)


def of_chatgpt(folder: Path) -> Path:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_00000001"}
    asked = {"content_type": "multimodal_text", "parts": [picture, "What is it?"]}
    named = {"attachments": [{"id": "file-AbC9", "name": "план.txt"}]}
    found = conversation("c", "Анна", node("a", None, "user", asked), node("b", "a", "user", "and", metadata=named))
    files: dict[str, Any] = {"file_00000001-sanitized__png": PICTURE, "file-AbC9-plan__txt": NOTE}
    return zipped(folder / "export.zip", conversations__json=[found], **files)


FORMATS: dict[str, tuple[Callable[[Path], Path], Read, int]] = {
    "telegram": (of_telegram, partial(telegram.read, me=None, zone=None), 3),
    "telegram alone": (of_telegram_alone, partial(telegram.read, me=None, zone=None), 3),
    "whatsapp": (of_whatsapp, partial(whatsapp.read, me="Анна", order=None, zone=None, title=None), 2),
    "chatgpt": (of_chatgpt, chatgpt.read, 0),
}


@pytest.mark.parametrize("source", FORMATS)
async def test_files_come_once_and_go_with_the_import(tmp_path: Path, source: str) -> None:
    make, reader, missing = FORMATS[source]
    path, data, chat = make(tmp_path), tmp_path / "data", chat_id(LOCAL_USER, "Анна")
    with opened(str(path)) as export:
        report = feed(reader(export), source.split(maxsplit=1)[0], None, lambda _done: None)
    assert (report.files, report.file_bytes) == (2, len(PICTURE) + len(NOTE))
    assert [each.why.endswith("is not in the export") for each in report.unread] == [True] * missing
    kept = {hashlib.sha256(each).hexdigest() for each in (PICTURE, NOTE)}
    async with running_store(data) as store:
        assert (await imported(store, source.split(maxsplit=1)[0], path, reader=reader)).unread_count == missing
        found = [files_of(each.metadata) for each in await store.readers.run(messages.after, chat, 0, 9)]
        assert [(each.type, each.bytes) for files in found for each in files] == [
            ("image/png", len(PICTURE)),
            ("text/plain", len(NOTE)),
        ]
        assert found[1][0].text == NOTE.decode()
        assert {Path(each).name for each in attachments.sent(data)} == kept
        again = await imported(store, source.split(maxsplit=1)[0], path, SECOND, reader=reader)
        assert (again.added, again.files) == (0, 2)
        assert list((data / "knowledge" / "uploads").iterdir()) == []
        tool = forgetter(store, data)
        await tool.forget(await tool.find(f"import:{FIRST}", LOCAL_USER), everywhere=True)
        assert attachments.sent(data) == {}
        assert holding(data, "Kanarienvogel") == {}
        assert (await imported(store, source.split(maxsplit=1)[0], path, THIRD, reader=reader)).added == again.known
        assert {Path(each).name for each in attachments.sent(data)} == kept


async def test_what_is_too_large_is_named_and_its_message_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.exports.FILE_BYTES", 1_000)
    make, reader, _ = FORMATS["chatgpt"]
    async with running_store(tmp_path / "data") as store:
        report = await imported(store, "chatgpt", make(tmp_path), reader=reader)
        assert (report.added, [each.what for each in report.unread]) == (2, ["Анна, file_00000001-sanitized.png"])
        assert "a file has at most 1,000 bytes" in report.unread[0].why
        assert len(attachments.sent(tmp_path / "data")) == 1


async def test_a_file_that_is_damaged_is_named_and_its_message_comes(tmp_path: Path) -> None:
    path = FORMATS["chatgpt"][0](tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(b"file_00000001-sanitized.png") + 40
    data[at : at + 200] = bytes(200)
    path.write_bytes(data)
    async with running_store(tmp_path / "data") as store:
        report = await imported(store, "chatgpt", path, reader=chatgpt.read)
        assert (report.added, [each.what for each in report.unread]) == (2, ["Анна, file_00000001-sanitized.png"])
