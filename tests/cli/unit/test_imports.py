"""``klaw import``: a file that is no such export."""

import json
from collections import Counter
from pathlib import Path

import attrs
import pytest

from klaw.cli import imports
from klaw.cli.main import main
from klaw.cli.output import new_folder
from klaw.imports.events import ProjectDocument
from klaw.imports.feed import ImportReport
from klaw.operations.operation import OperationError


@pytest.mark.parametrize("source", ["chatgpt", "claude", "telegram", "openclaw", "klaw"])
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


def test_documents_of_projects_are_written_where_they_harm_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """26.C3: names of an export lead nowhere else, and take the place of no file."""
    folder = new_folder(str(tmp_path / "projects"), "projects")
    given = [("Garden", "plan.md", "1"), ("Garden", "plan.md", "2"), ("../..", "../../x", "3"), ("/", ".bashrc", "4")]
    given += [("я" * 300, f"{'😀' * 300}.md", "5"), ("Garden", "..", "6"), ("a\0b", "c\n\ud800d", "\ud800")]
    for each in given:
        imports._keep(folder, ProjectDocument(*each))
    found = {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}
    assert len(found) == len(given)
    assert (found["Garden/plan.md"], found["Garden/plan 2.md"]) == ("1", "2")
    assert [each.name for each in tmp_path.iterdir()] == ["projects"]
    with pytest.raises(OperationError, match="is not empty"):
        new_folder(str(folder), "projects")
    export = tmp_path / "projects.json"
    export.write_text(json.dumps([{"name": "Garden", "docs": [{"filename": "a.md", "content": "x"}]}]))
    assert main(["import", "claude", str(export), "--dry-run", "--home", str(tmp_path)]) == 0
    assert "1 document of projects: --projects DIR writes them into a folder" in capsys.readouterr().out


def test_what_undo_leaves_is_not_said_to_be_undone() -> None:
    report = attrs.asdict(ImportReport(kept=Counter(tasks=1), remembered=1))
    lines = imports._shown({"import": "i", "dry_run": False, "projects": "", "facts": 0, "people": 0, **report}).lines
    assert "1 task: 1 added, 0 were here before" in lines
    assert not any("undo" in str(each) for each in lines)
