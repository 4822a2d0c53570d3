"""What is installed: every file of klaw/, not its modules only."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_beside_the_modules_is_installed() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["klaw"]
    klaw = ROOT / "klaw"
    installed = {path for pattern in patterns for path in klaw.glob(pattern)}
    there = {path for path in klaw.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert there - installed == set()
