"""``klaw models calibrate``: what is measured is kept with the model, changes no vector and survives a pull."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from klaw.cli.main import main
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import RECIPE
from klaw.models.build import silent
from klaw.models.pull import pull, status
from tests.support.plugins.models import spec_of

E5 = "multilingual-e5-small"


def copy_model(source: Path, folder: Path, *, manifest: bool = True) -> Path:
    """A folder of one's own with hard links to the weights; ONNX Runtime refuses weights outside the folder."""
    folder.mkdir(parents=True)
    for path in source.iterdir():
        if path.name == "manifest.json":
            if manifest:
                shutil.copy(path, folder)
        else:
            (folder / path.name).hardlink_to(path)
    return folder


@pytest.fixture
def home(embedding_model_dir: Path, tmp_path: Path) -> Path:
    copy_model(embedding_model_dir, tmp_path / "models" / E5)
    return tmp_path


def _run(home: Path, *arguments: str) -> int:
    return main(["models", "calibrate", *arguments, "--home", str(home)])


def _manifest(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "models" / E5 / "manifest.json").read_text())
    return found


def test_the_configured_model_is_calibrated(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = EmbeddingModel.load(home / "models" / E5, threads=1)
    assert _run(home) == 0
    out = capsys.readouterr().out
    stored = _manifest(home)["embedding"]["calibration"]
    assert (stored["texts"], stored["pairs"], stored["recipe"]) == ("built-in", 720, RECIPE)
    assert f"{before.random_cosine:.4f} (catalogue) -> {stored['random_cosine']:.4f}" in out
    assert "720 pairs" in out
    assert "standard deviation 0.03" in out
    assert "when the server is started again" in out
    after = EmbeddingModel.load(home / "models" / E5, threads=1)
    assert (after.model_id, after.random_cosine) == (before.model_id, stored["random_cosine"])


def test_list_shows_the_calibration_and_pull_keeps_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_of(E5)
    assert main(["models", "list", E5, "--home", str(home)]) == 0
    assert "calibrated by Klaw's makers: mean cosine of unrelated texts 0.78" in capsys.readouterr().out
    assert _run(home, E5) == 0
    before = _manifest(home)
    capsys.readouterr()
    assert main(["models", "list", E5, "--json", "--home", str(home)]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["models"]
    assert (listed["state"], listed["calibration"]["texts"]) == ("complete", "built-in")
    pull(spec, home / "models", silent, fetch=_no_fetch)
    assert status(spec, home / "models", verify=True).state == "complete"
    assert _manifest(home) == before


def _no_fetch(*_arguments: object) -> Path:
    raise AssertionError("a complete model is not fetched")


def test_a_repair_keeps_the_users_calibration_of_the_same_weights(
    home: Path, embedding_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package and its conversion are covered by the pull's own tests; here the build is a copy."""

    def copy(_spec: object, _wheel: Path, folder: Path, _progress: object) -> None:
        for path in embedding_model_dir.iterdir():
            shutil.copy(path, folder) if path.name == "manifest.json" else (folder / path.name).hardlink_to(path)

    monkeypatch.setattr("klaw.models.pull.build_folder", copy)
    monkeypatch.setattr("klaw.models.pull._package", lambda *_args: home / "wheel" / "package.whl")
    assert _run(home) == 0
    kept = _manifest(home)["embedding"]["calibration"]
    (home / "models" / E5 / "model.onnx").unlink()
    pull(spec_of(E5), home / "models", silent)
    assert status(spec_of(E5), home / "models").state == "complete"
    assert _manifest(home)["embedding"]["calibration"] == kept


def test_a_pull_brings_an_older_figure_of_the_catalogue_up_to_date(home: Path) -> None:
    raw = _manifest(home)
    raw["embedding"]["calibration"] = {"random_cosine": 0.5}
    (home / "models" / E5 / "manifest.json").write_text(json.dumps(raw))
    spec = spec_of(E5)
    assert status(spec, home / "models").state == "complete"
    pull(spec, home / "models", silent, fetch=_no_fetch)
    assert spec.embedding is not None
    assert status(spec, home / "models").calibration == spec.embedding.calibration


def test_a_dry_run_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (home / "models" / E5 / "manifest.json").read_bytes()
    assert _run(home, "--dry-run", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["stored"] is None
    assert answer["calibration"]["random_cosine"] == pytest.approx(0.78, abs=0.015)
    assert answer["before"]["texts"] == "catalogue"
    assert (home / "models" / E5 / "manifest.json").read_bytes() == before


def test_own_texts_in_two_languages_take_the_place_of_the_built_in(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name, text in {"ru.txt": "Сегодня на улице номер {} шёл снег", "en.txt": "House number {} has a door"}.items():
        files.append(tmp_path / name)
        files[-1].write_text("\n".join(text.format(number) for number in range(20)), "utf-8")
    assert _run(home, "--json", E5, "--texts", *map(str, files)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["conversations"], answer["messages"]) == (2, 40)
    assert answer["calibration"]["texts"] == "own"
    assert answer["calibration"]["random_cosine"] > 0.85, "these are all very much alike"


def test_a_folder_without_a_manifest_keeps_its_figure_beside_the_weights(
    embedding_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_model(embedding_model_dir, tmp_path / "other-e5", manifest=False)
    before = EmbeddingModel.load(folder, threads=2)
    assert main(["models", "calibrate", str(folder)]) == 0
    assert "none was stored" in capsys.readouterr().out
    stored = json.loads((folder / "calibration.json").read_text())
    after = EmbeddingModel.load(folder, threads=2)
    assert stored["model"] == before.model_id == after.model_id
    assert after.random_cosine == stored["calibration"]["random_cosine"]
    assert after.random_cosine == pytest.approx(before.random_cosine, abs=1e-4)
    # What was measured with other weights does not count.
    stored["model"] = "other-e5@local+000000000000"
    stored["calibration"]["random_cosine"] = 0.1
    (folder / "calibration.json").write_text(json.dumps(stored))
    assert EmbeddingModel.load(folder, threads=2).random_cosine == before.random_cosine


@pytest.mark.parametrize(
    ("arguments", "problem"),
    {
        "unknown": (("gpt-9",), "gpt-9: no such model folder"),
        "folder": (("./gpt-9",), "gpt-9: no such model folder"),
        "texts": ((E5, "--texts", "/nonexistent/mine.txt"), "mine.txt: cannot be read"),
    }.values(),
)
def test_what_cannot_be_used_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    assert _run(home, *arguments) == 1
    captured = capsys.readouterr()
    assert problem in captured.err
    assert captured.out == ""


def test_a_language_model_is_refused(local_llm_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "calibrate", str(local_llm_dir)]) == 1
    assert "is not an embedding model" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_keeps_its_manifest(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (home / "models" / E5 / "manifest.json").read_bytes()

    def refuse(old: Path, _new: Path, **_folders: object) -> None:
        raise PermissionError(13, "Permission denied", str(old))

    monkeypatch.setattr(os, "rename", refuse)
    assert _run(home) == 1
    assert "manifest.json: cannot be written (Permission denied)" in capsys.readouterr().err
    assert (home / "models" / E5 / "manifest.json").read_bytes() == before
    assert sorted(path.suffix for path in (home / "models" / E5).iterdir()) == [".data", ".json", ".model", ".onnx"]


def test_a_providers_model_is_not_calibrated_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config").mkdir(mode=0o700)
    cloud = {"cloud": {"baseUrl": "http://127.0.0.1:9/v1"}}
    settings = {"providers": cloud, "embedding": {"provider": "cloud", "model": "m"}}
    (tmp_path / "config" / "engine.yaml").write_text(json.dumps(settings))
    assert _run(tmp_path) == 1
    assert "embedding.provider is set" in capsys.readouterr().err
