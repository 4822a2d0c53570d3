"""``klaw recall-replay``: its text, and what it says when it cannot."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from klaw.cli.main import parser
from klaw.cli.recall_replay import lines, read_settings, replay_command
from klaw.config.schema import EngineConfig
from klaw.errors import ConfigError

SIDE = {"kept": [3], "tokens": 20, "degraded": []}
CHANGED = {
    "turn": "t1",
    "chat": "local:сад",
    "started_at": "2026-11-22T01:00:00.000Z",
    "pending": [30, 31],
    "question": "Какой код?\x1b[2J",
    "changed": True,
    "kept_then": [3],
    "before": SIDE,
    "after": {"kept": [], "tokens": 0, "degraded": ["cut_vectors"]},
    "more": [],
    "less": [{"seq": 3, "role": "user", "created_at": "2026-11-20T10:00:00Z", "tokens": 20, "text": "Код 4711"}],
}
SUMS = {"recalled": 1, "tokens": 20, "turns_with_nothing": 0, "turns_cut_short": 0}
REPORT = {
    "set": ["autoRag.timeBudgetMs=1"],
    "turns": 5,
    "not_searched": 3,
    "no_vectors": None,
    "totals": {"turns": 2, "changed": 1, "unlike_then": 0, "before": SUMS, "after": {**SUMS, "turns_cut_short": 2}},
    "changes": [CHANGED, {**CHANGED, "turn": "t2", "changed": False, "after": SIDE, "less": []}],
}


def test_only_turns_that_change_are_shown() -> None:
    printed = lines(REPORT)
    assert printed[:5] == [
        "turn t1, local:сад, 2026-11-22T01:00:00.000Z, message 30, 31",
        "  ? Какой код?␛[2J",
        "  - 3  user  2026-11-20  Код 4711",
        "  recalled 3 -> nothing, tokens 20 -> 0",
        "  degraded (changed): cut_vectors",
    ]
    assert "turn t2" not in "\n".join(printed)
    assert "turn t2" in "\n".join(lines(REPORT, every=True))
    assert "2 turns searched again, 1 changed by autoRag.timeBudgetMs=1" in printed
    assert "turns with something degraded    0        2" in printed
    assert printed[-1].startswith("3 more turns had nothing to search")


def test_what_may_mislead_is_said() -> None:
    report: dict[str, Any] = {**REPORT, "totals": {**REPORT["totals"], "unlike_then": 2}, "no_vectors": "other_model"}
    assert lines(report)[-2].startswith("2 turns recalled something else at the time: messages got their vectors later")
    assert lines(report)[-1] == "note: the stored vectors are of another embedding model: by words only."


def test_what_cannot_be_tried_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"autoRag\.minMessageTokens: decides which messages get a vector"):
        read_settings(EngineConfig(), ["autoRag.minMessageTokens=0"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set", "autoRag.topK=5"], "there is no database in"),
        (["--set", "autoRag.topK=many"], "autoRag.topK: must be a whole number, got the text 'many'"),
        (["--set", "autoRag.topK=5", "--set", "autoRag.tokens=9"], "autoRag.tokens: unknown key"),
    ],
)
def test_it_says_what_is_wrong(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = parser().parse_args(["recall-replay", "--home", str(tmp_path), *options])
    assert replay_command(arguments) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--set"], ["--set", "autoRag.topK=5", "--last", "0"]])
def test_wrong_usage_is_refused(options: list[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["recall-replay", *options])
    assert isinstance(parser(), argparse.ArgumentParser)
