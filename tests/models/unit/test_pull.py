"""Pulling: complete, resumed, repaired, refused, and two at a time; all with a tiny package and no network."""

import errno
import fcntl
import json
import shutil
import threading
from pathlib import Path

import attrs
import pytest

from klaw.errors import ModelError
from klaw.models import build
from klaw.models import pull as pull_module
from klaw.models.build import PullStep, silent
from klaw.models.pull import pull, status
from tests.models.unit.fake_package import OFFLINE, SPEC, WEIGHTS, FakeFetch, Steps


def test_a_pull_makes_a_complete_folder_and_leaves_nothing_else(tmp_path: Path) -> None:
    steps = Steps()
    folder = pull(SPEC, tmp_path, steps, fetch=FakeFetch())
    assert (folder / "model.gguf").read_bytes() == WEIGHTS
    assert status(SPEC, tmp_path, verify=True).state == "complete"
    assert steps.phases == ["download", "done"]
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "model.gguf"]
    assert not list((tmp_path / ".download").iterdir())
    assert not list((tmp_path / ".build").iterdir())


def test_a_second_pull_does_nothing(tmp_path: Path) -> None:
    fetch = FakeFetch()
    folder = pull(SPEC, tmp_path, silent, fetch=fetch)
    made_at = folder.stat().st_mtime_ns
    steps = Steps()
    assert pull(SPEC, tmp_path, steps, fetch=fetch, verify=True) == folder
    assert (fetch.calls, steps.phases, folder.stat().st_mtime_ns) == (1, ["present"], made_at)


def test_a_pull_interrupted_in_the_conversion_continues_with_the_kept_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = FakeFetch()

    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pull_module, "build_folder", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pull(SPEC, tmp_path, silent, fetch=fetch)
    assert status(SPEC, tmp_path).state == "missing"
    steps = Steps()
    pull(SPEC, tmp_path, steps, fetch=fetch)
    assert fetch.calls == 1
    assert steps.phases == ["check", "done"]


def test_a_broken_kept_package_is_fetched_anew(tmp_path: Path) -> None:
    kept = tmp_path / ".download" / SPEC.id
    kept.mkdir(parents=True)
    (kept / "fake_model-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 half a file")
    fetch = FakeFetch()
    pull(SPEC, tmp_path, silent, fetch=fetch)
    assert fetch.calls == 1
    assert status(SPEC, tmp_path, verify=True).state == "complete"


def test_partial_files_of_a_killed_download_and_build_are_swept(tmp_path: Path) -> None:
    for left in (tmp_path / ".download" / SPEC.id / "incoming", tmp_path / ".build" / SPEC.id):
        left.mkdir(parents=True)
        (left / "model.gguf").write_bytes(b"part")
    pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    assert status(SPEC, tmp_path, verify=True).state == "complete"


def test_wrong_weights_are_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"weights\.gguf has a wrong checksum"):
        pull(SPEC, tmp_path, silent, fetch=FakeFetch(weights=WEIGHTS[:-1] + b"x"))
    assert status(SPEC, tmp_path).state == "missing"
    fetch = FakeFetch()
    pull(SPEC, tmp_path, silent, fetch=fetch)
    assert fetch.calls == 1


def test_a_failed_download_is_a_clear_error_and_the_next_pull_works(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be reached"):
        pull(SPEC, tmp_path, silent, fetch=FakeFetch(error=OFFLINE))
    pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    assert status(SPEC, tmp_path).state == "complete"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk_is_a_model_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fails(*_args: object) -> None:
        raise OSError(code, "no", "model.gguf")

    monkeypatch.setattr(pull_module, "build_folder", fails)
    with pytest.raises(ModelError, match=r"disk is full|file system refused"):
        pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    assert status(SPEC, tmp_path).state == "missing"
    assert not list((tmp_path / ".build").iterdir())


def test_too_little_free_space_is_said_before_downloading(tmp_path: Path) -> None:
    fetch = FakeFetch()
    with pytest.raises(ModelError, match=r"needs \d+ MiB free"):
        pull(attrs.evolve(SPEC, download_bytes=1 << 60), tmp_path, silent, fetch=fetch)
    assert fetch.calls == 0


def test_a_missing_onnx_package_is_said_before_downloading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda _name: None)
    fetch = FakeFetch()
    with pytest.raises(ModelError, match="pip install --require-hashes -r"):
        pull(attrs.evolve(SPEC, conversion="e5"), tmp_path, silent, fetch=fetch)
    assert fetch.calls == 0


@pytest.mark.parametrize("damage", ["short", "gone", "manifest", "no manifest"])
def test_a_damaged_folder_is_seen_by_its_sizes_and_made_anew(tmp_path: Path, damage: str) -> None:
    folder = pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    match damage:
        case "short":
            (folder / "model.gguf").write_bytes(WEIGHTS[:-1])
        case "gone":
            (folder / "model.gguf").unlink()
        case "manifest":
            (folder / "manifest.json").write_text("{")
        case _:
            (folder / "manifest.json").unlink()
    found = status(SPEC, tmp_path)
    assert (found.state, bool(found.problem)) == ("damaged", True)
    pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    assert status(SPEC, tmp_path, verify=True).state == "complete"


def test_a_flipped_byte_is_seen_with_verify_only(tmp_path: Path) -> None:
    folder = pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    (folder / "model.gguf").write_bytes(b"X" + WEIGHTS[1:])
    assert status(SPEC, tmp_path).state == "complete"
    assert "checksum" in status(SPEC, tmp_path, verify=True).problem
    fetch = FakeFetch()
    pull(SPEC, tmp_path, silent, fetch=fetch)
    assert fetch.calls == 0
    pull(SPEC, tmp_path, silent, fetch=fetch, verify=True)
    assert (fetch.calls, (folder / "model.gguf").read_bytes()) == (1, WEIGHTS)


def test_a_folder_of_another_conversion_is_outdated_and_replaced(tmp_path: Path) -> None:
    pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    newer = attrs.evolve(SPEC, version="2")
    assert status(newer, tmp_path).state == "outdated"
    folder = pull(newer, tmp_path, silent, fetch=FakeFetch())
    assert json.loads((folder / "manifest.json").read_text())["version"] == "2"


def test_two_pulls_at_a_time_fetch_once_and_both_succeed(tmp_path: Path) -> None:
    fetch = FakeFetch()
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(pull(SPEC, tmp_path, silent, fetch=fetch))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (fetch.calls, results) == (1, [tmp_path / SPEC.id] * 4)


def test_a_pull_waits_for_the_lock_and_then_uses_what_the_other_made(tmp_path: Path) -> None:
    """The other process is played by the progress callback, which runs while we wait for it."""
    elsewhere = pull(SPEC, tmp_path / "elsewhere", silent, fetch=FakeFetch())
    (tmp_path / ".lock").mkdir()
    held = (tmp_path / ".lock" / SPEC.id).open("wb")
    fcntl.flock(held, fcntl.LOCK_EX)
    phases: list[str] = []

    def finish_the_other(step: PullStep, /) -> None:
        phases.append(step.phase)
        if step.phase == "wait":
            shutil.copytree(elsewhere, tmp_path / SPEC.id)
            held.close()

    fetch = FakeFetch()
    pull(SPEC, tmp_path, finish_the_other, fetch=fetch)
    assert (fetch.calls, phases) == (0, ["wait", "present"])


def test_an_error_in_the_progress_callback_stops_the_pull_cleanly(tmp_path: Path) -> None:
    def stop(_step: PullStep, /) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(SPEC, tmp_path, stop, fetch=FakeFetch())
    pull(SPEC, tmp_path, silent, fetch=FakeFetch())
    assert status(SPEC, tmp_path, verify=True).state == "complete"


def never(*_args: object) -> Path:
    raise AssertionError("nothing is to be fetched")


def test_a_model_comes_from_the_folder_of_another_machine_without_network(tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    pull(SPEC, stick, silent, fetch=FakeFetch())
    steps = Steps()
    folder = pull(SPEC, tmp_path / "here", steps, fetch=never, source=stick)
    assert (folder / "model.gguf").read_bytes() == WEIGHTS
    assert status(SPEC, tmp_path / "here", verify=True).state == "complete"
    assert steps.phases == ["copy", "done"]
    shutil.rmtree(stick)
    pull(SPEC, tmp_path / "here", steps, fetch=never, source=stick)  # what is here is not asked for again


@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "no manifest", "missing", "outside", "other version"])
def test_a_folder_that_is_not_the_whole_model_is_refused(tmp_path: Path, damage: str) -> None:
    stick = tmp_path / "stick"
    folder = pull(SPEC, stick, silent, fetch=FakeFetch())
    spec, manifest = SPEC, json.loads((folder / "manifest.json").read_text())
    match damage:
        case "flipped":
            (folder / "model.gguf").write_bytes(b"X" + WEIGHTS[1:])
        case "short":
            (folder / "model.gguf").write_bytes(WEIGHTS[:-1])
        case "gone":
            (folder / "model.gguf").unlink()
        case "no manifest":
            (folder / "manifest.json").unlink()
        case "missing":
            shutil.rmtree(folder)
        case "outside":
            manifest["files"] = {"../model.gguf": manifest["files"]["model.gguf"]}
            (folder / "manifest.json").write_text(json.dumps(manifest))
        case _:
            spec = attrs.evolve(SPEC, version="2")
    with pytest.raises(ModelError, match=str(stick)):
        pull(spec, tmp_path / "here", silent, fetch=never, source=stick)
    assert status(spec, tmp_path / "here").state == "missing"
    assert not (tmp_path / "model.gguf").exists()
