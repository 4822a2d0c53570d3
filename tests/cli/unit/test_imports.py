"""``klaw import``: a file that is no such export."""

import json
from collections import Counter
from pathlib import Path

import attrs
import pytest

from klaw.cli import imports
from klaw.cli.main import main
from klaw.imports.feed import ImportReport
from tests.support.exports import talk, zipped


@pytest.mark.parametrize("source", ["chatgpt", "claude", "gemini", "telegram", "openclaw", "klaw"])
def test_a_file_without_a_message_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"theme": "dark", "people": 1}')
    assert main(["import", source, str(file), "--dry-run", "--home", str(tmp_path)]) == 1
    assert f"settings.json: there is no message of {source} in it" in capsys.readouterr().err


@pytest.mark.parametrize(("zone", "at"), [("Europe/Berlin", "10:00"), ("Asia/Tokyo", "02:00")])
def test_the_zone_of_times_that_name_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], zone: str, at: str
) -> None:
    file = tmp_path / "chat.txt"
    file.write_text("05.03.24, 11:00 - A: x\n")
    where = ("--me", "A", "--dry-run", "--json", "--home", str(tmp_path))
    assert main(["import", "whatsapp", str(file), "--zone", zone, *where]) == 0
    assert json.loads(capsys.readouterr().out)["first_at"] == f"2024-03-05T{at}:00.000Z"


def test_documents_of_projects_are_offered_as_knowledge_bases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """26.C3"""
    export = tmp_path / "projects.json"
    docs = [{"filename": "a.md", "content": "x"}, {"filename": "b.md", "content": "y"}]
    export.write_text(json.dumps([{"uuid": "p", "name": "Garden", "docs": docs}]))
    assert main(["import", "claude", str(export), "--dry-run", "--home", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2 project documents\n" in said
    assert "a knowledge base of each project: Garden" in said


def test_files_that_hold_no_conversation_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"conversations.json": [talk("c1", "x", "y")], "user.json": {}, "chat.html": "<html>"}
    path = zipped(tmp_path / "a.zip", **{name.replace(".", "__"): content for name, content in files.items()})
    assert main(["import", "auto", str(path), "--dry-run", "--json", "--home", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == {"other files of the export: chat.html, user.json": 2}


def test_what_undo_leaves_is_not_said_to_be_undone() -> None:
    report = attrs.asdict(ImportReport(kept=Counter(tasks=1), remembered=1))
    lines = imports._shown({"import": "i", "dry_run": False, "facts": 0, "people": 0, **report}).lines
    assert "1 task: 1 added, 0 were here before" in lines
    assert not any("undo" in str(each) for each in lines)
