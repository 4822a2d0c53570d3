"""``klaw models``: what people and scripts see."""

import json
from pathlib import Path
from typing import Any

import pytest

from klaw.cli.main import main
from klaw.models import manifest as manifest_module
from klaw.models import pull as pull_module
from tests.models.unit.fake_package import OFFLINE, SPEC, FakeFetch


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> FakeFetch:
    """The catalogue holds the fake model only, and pulls are served by this."""
    fake = FakeFetch()
    real = pull_module.pull
    monkeypatch.setattr(manifest_module, "CATALOGUE", (SPEC,))
    monkeypatch.setattr(pull_module, "pull", lambda *args, **kwargs: real(*args, **kwargs, fetch=fake))
    return fake


def _run(command: str, home: Path, *arguments: str) -> int:
    return main(["models", command, "--home", str(home), *arguments])


def test_pull_then_list(fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("list", tmp_path) == 0
    assert "missing" in capsys.readouterr().out
    assert _run("pull", tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("fake-model: installed (")
    assert _run("pull", tmp_path, "fake-model", "--verify") == 0
    assert "already here" in capsys.readouterr().out
    assert _run("list", tmp_path) == 0
    assert "complete" in capsys.readouterr().out
    assert fetch.calls == 1


def test_json_is_all_that_is_on_stdout(fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("pull", tmp_path, "--json") == 0
    (model,) = _models(capsys)
    assert (model["id"], model["state"], model["kind"]) == ("fake-model", "complete", "llm")
    assert Path(model["path"]) == tmp_path / "models" / "fake-model"
    assert _run("list", tmp_path, "--json") == 0
    assert _models(capsys) == [model]


def test_a_failed_pull_says_why_and_returns_1(
    fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch.error = OFFLINE
    assert _run("pull", tmp_path) == 1
    assert "cannot be reached" in capsys.readouterr().err
    assert _run("pull", tmp_path, "--json") == 1
    (model,) = _models(capsys)
    assert model["state"] == "failed"
    assert "cannot be reached" in model["problem"]


def test_a_damaged_model_is_listed_with_its_problem(
    fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("pull", tmp_path)
    (tmp_path / "models" / "fake-model" / "model.gguf").unlink()
    assert _run("list", tmp_path) == 1
    assert "model.gguf is missing" in capsys.readouterr().out
    assert fetch.calls == 1


def test_an_unknown_name_returns_2_and_names_the_known(
    fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("pull", tmp_path, "gpt-9") == _run("list", tmp_path, "gpt-9") == 2
    assert "unknown model gpt-9; known: fake-model" in capsys.readouterr().err
    assert fetch.calls == 0


def _models(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["models"]
    return found
