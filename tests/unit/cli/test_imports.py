"""``klaw import``: a file that is no such export."""

import io
from pathlib import Path

import pytest

from klaw.cli import imports
from klaw.cli.output import ProgressLine
from klaw.config.paths import Paths
from klaw.imports.events import ImportRefused


@pytest.mark.parametrize("source", ["chatgpt", "claude", "telegram", "openclaw", "klaw"])
def test_a_file_without_a_message_is_refused(tmp_path: Path, source: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"theme": "dark", "people": 1}')
    asked = imports.People(file=str(file), dry_run=True)
    with pytest.raises(ImportRefused, match=f"settings.json: there is no message of {source} in it"):
        getattr(imports, source)(asked, Paths.resolve(tmp_path, {}), ProgressLine(io.StringIO()))
