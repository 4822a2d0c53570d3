"""``klaw import``: a file that is no such export."""

import io
import json
from pathlib import Path

import pytest

from klaw.cli import imports
from klaw.cli.main import main
from klaw.cli.output import ProgressLine
from klaw.config.paths import Paths
from klaw.imports.events import ImportRefused


@pytest.mark.parametrize("source", ["chatgpt", "claude", "telegram", "openclaw", "klaw"])
def test_a_file_without_a_message_is_refused(tmp_path: Path, source: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"theme": "dark", "people": 1}')
    asked = (imports.Claude if source == "claude" else imports.People)(file=str(file), dry_run=True)
    with pytest.raises(ImportRefused, match=f"settings.json: there is no message of {source} in it"):
        getattr(imports, source)(asked, Paths.resolve(tmp_path, {}), ProgressLine(io.StringIO()))


@pytest.mark.parametrize(("zone", "at"), [("Europe/Berlin", "10:00"), ("Asia/Tokyo", "02:00")])
def test_the_zone_of_times_that_name_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], zone: str, at: str
) -> None:
    file = tmp_path / "chat.txt"
    file.write_text("05.03.24, 11:00 - A: x\n")
    where = ("--me", "A", "--dry-run", "--json", "--home", str(tmp_path))
    assert main(["import", "whatsapp", str(file), "--zone", zone, *where]) == 0
    assert json.loads(capsys.readouterr().out)["first_at"] == f"2024-03-05T{at}:00.000Z"
