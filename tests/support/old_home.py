"""The home that commit 5dcae64 wrote, with every kind of journal line: what a newer Klaw has to go on with."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.repository import REPOSITORY

SOURCE = REPOSITORY / "tests" / "data" / "home_5dcae64"


def old_data(data: Path, *, database: bool = True) -> Path:
    """Copy the data folder of the old home to a place, with its database or with the logs only."""
    shutil.copytree(SOURCE, data, ignore=shutil.ignore_patterns("*.gz", "digests.json"))
    if database:
        (data / "klaw.db").write_bytes(gzip.decompress((SOURCE / "klaw.db.gz").read_bytes()))
    return data


def old_digests() -> dict[str, str]:
    """Content digests of the old database's tables, as the old code computed them."""
    found: dict[str, str] = json.loads((SOURCE / "digests.json").read_text())
    return found


def lines_of(folder: str) -> list[tuple[str, dict[str, Any]]]:
    """The lines of the old logs of one kind, each with its JSON object."""
    lines = [
        line for path in sorted((SOURCE / folder).rglob("*.jsonl")) for line in path.read_text().split("\n") if line
    ]
    return [(line, json.loads(line)) for line in lines]
