"""What may be a source, where no server is needed to tell."""

from pathlib import Path

import pytest

from klaw.config.paths import Paths
from klaw.config.tools import KnowledgeConfig
from klaw.errors import NotAllowed
from klaw.knowledge.folders import checked


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    """Of several files that were given, one may be missing."""
    gone = str(tmp_path / "инструкции")
    with pytest.raises(NotAllowed, match=gone):
        checked(gone, "", KnowledgeConfig(), Paths.resolve(str(tmp_path)))
