"""What the tests of backups share."""

from pathlib import Path

import pytest

from klaw.config.paths import Paths
from tests.support.backups import home_with_a_past


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return home_with_a_past(tmp_path / "home")
