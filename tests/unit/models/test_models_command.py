"""``klaw models``: what people and scripts see."""

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest

from klaw.cli.main import parser
from klaw.cli.models import ProgressPainter, list_command, pull_command
from klaw.models import catalogue as catalogue_module
from klaw.models import pull as pull_module
from klaw.models.build import Step
from tests.unit.models.fake_package import OFFLINE, SPEC, FakeFetch


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> FakeFetch:
    """The catalogue holds the fake model only, and pulls are served by this."""
    fake = FakeFetch()
    real = pull_module.pull
    monkeypatch.setattr(catalogue_module, "_MODELS", (SPEC,))
    monkeypatch.setattr(pull_module, "pull", lambda *args, **kwargs: real(*args, **kwargs, fetch=fake))
    return fake


def _args(home: Path, *arguments: str, as_json: bool = False) -> argparse.Namespace:
    flags = ["--json"] if as_json else []
    return parser().parse_args(["models", "pull", "--home", str(home), *flags, *arguments])


def test_pull_then_list(fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list_command(_args(tmp_path)) == 0
    assert "missing" in capsys.readouterr().out
    assert pull_command(_args(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("fake-model: installed")
    assert pull_command(_args(tmp_path, "fake-model", "--verify")) == 0
    assert "already here" in capsys.readouterr().out
    assert list_command(_args(tmp_path)) == 0
    assert "complete" in capsys.readouterr().out
    assert fetch.calls == 1


def test_json_is_all_that_is_on_stdout(fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pull_command(_args(tmp_path, as_json=True)) == 0
    (model,) = _models(capsys)
    assert (model["id"], model["state"], model["kind"]) == ("fake-model", "complete", "llm")
    assert Path(model["path"]) == tmp_path / "models" / "fake-model"
    assert list_command(_args(tmp_path, as_json=True)) == 0
    assert _models(capsys) == [model]


def test_a_failed_pull_says_why_and_returns_1(
    fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch.error = OFFLINE
    assert pull_command(_args(tmp_path)) == 1
    assert "cannot be reached" in capsys.readouterr().err
    assert pull_command(_args(tmp_path, as_json=True)) == 1
    (model,) = _models(capsys)
    assert model["state"] == "failed"
    assert "cannot be reached" in model["problem"]


def test_a_damaged_model_is_listed_with_its_problem(
    fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pull_command(_args(tmp_path))
    (tmp_path / "models" / "fake-model" / "model.gguf").unlink()
    assert list_command(_args(tmp_path)) == 1
    assert "model.gguf is missing" in capsys.readouterr().out
    assert fetch.calls == 1


def test_an_unknown_name_returns_2_and_names_the_known(
    fetch: FakeFetch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pull_command(_args(tmp_path, "gpt-9")) == list_command(_args(tmp_path, "gpt-9")) == 2
    assert "unknown model gpt-9; known: fake-model" in capsys.readouterr().err
    assert fetch.calls == 0


def test_a_terminal_gets_a_bar_and_a_pipe_one_line_a_phase() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    steps = [Step(model="m", phase="download", done_bytes=done << 20, total_bytes=4 << 20) for done in (0, 1, 2, 4)] + [
        Step(model="m", phase="done", done_bytes=4 << 20, total_bytes=4 << 20)
    ]
    shown = {}
    for stream in (Terminal(), io.StringIO()):
        painter = ProgressPainter(stream)
        for step in steps:
            painter(step)
        painter.finish()
        shown[stream.isatty()] = stream.getvalue()
    assert shown[False] == "m: downloading (4.0 MiB)\nm: installed (4.0 MiB)\n"
    assert "[........................] 0.0 / 4.0 MiB" in shown[True]
    assert shown[True].endswith("installed, 4.0 MiB\n")


def _models(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["models"]
    return found
