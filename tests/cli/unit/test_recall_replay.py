"""``klaw recall-replay``: its text, and what it says when it cannot."""

from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.cli.output import written
from klaw.config.schema import EngineConfig
from klaw.operations.memory import recall as recall_replay
from klaw.operations.memory.recall import read_settings
from klaw.operations.operation import OperationError
from tests.support.asking import klaw_here
from tests.support.stores import running_store

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
    "named": False,
    "turns": 5,
    "not_searched": 3,
    "no_vectors": None,
    "totals": {"turns": 2, "changed": 1, "unlike_then": 0, "before": SUMS, "after": {**SUMS, "turns_cut_short": 2}},
    "changes": [CHANGED, {**CHANGED, "turn": "t2", "changed": False, "after": SIDE, "less": []}],
}


def lines(answer: dict[str, Any]) -> list[str]:
    return written(recall_replay.lines(answer))


def test_only_turns_that_change_are_shown() -> None:
    printed = lines(REPORT)
    assert printed[:5] == [
        "answer t1, local:сад, 2026-11-22 01:00, message 30, 31",
        "  ? Какой код?␛[2J",
        "  - 3  user  2026-11-20  Код 4711",
        "  recalled 3 -> nothing, tokens 20 -> 0",
        "  missing (changed): cut_vectors",
    ]
    assert "answer t2" not in "\n".join(printed)
    assert "answer t2" in "\n".join(lines({**REPORT, "named": True}))
    assert "2 answers searched again, 1 changed by autoRag.timeBudgetMs=1" in printed
    assert any(
        line.split("  ")[0] == "answers with something missing" and line.split()[-2:] == ["0", "2"] for line in printed
    )
    assert printed[-1].startswith("3 more answers had nothing to search")


def test_what_may_mislead_is_said() -> None:
    report: dict[str, Any] = {**REPORT, "totals": {**REPORT["totals"], "unlike_then": 2}, "no_vectors": "other_model"}
    assert lines(report)[-2].startswith("2 answers recalled something else at the time: messages got their vectors")
    assert lines(report)[-1] == "note: full text only: the stored vectors are of another embedding model."


def test_what_cannot_be_tried_is_refused() -> None:
    with pytest.raises(OperationError, match=r"autoRag\.minMessageTokens: decides which messages get a vector"):
        read_settings(EngineConfig(), ["autoRag.minMessageTokens=0"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["autoRag.topK=5"], (1, "klaw: there are no answers yet")),
        (["autoRag.topK=many"], (2, "klaw: autoRag.topK: must be a whole number, got the text 'many'")),
        (["autoRag.topK=5", "autoRag.words=9"], (2, "klaw: autoRag.words: unknown key")),
        ([], (2, "klaw: --set: is required")),
        (["autoRag.topK=5", "--last=0"], (2, "klaw: --last: must be 1 to 1000000")),
        (["autoRag.topK=5", "--turn", "a", "b"], (1, "klaw: there is no answer a, b")),
    ],
)
async def test_it_says_what_is_wrong(
    options: list[str], says: tuple[int, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    async with running_store(tmp_path / "data"):
        pass
    words = [word for each in options for word in (("--set", each) if "=" in each and each[0] != "-" else (each,))]
    code = await trio.to_thread.run_sync(klaw_here, tmp_path, "recall-replay", *words)
    assert (code, capsys.readouterr().err.startswith(says[1])) == (says[0], True)


def test_without_a_database_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert klaw_here(tmp_path, "recall-replay", "--set", "autoRag.topK=5") == 1
    assert "there is no database in" in capsys.readouterr().err
