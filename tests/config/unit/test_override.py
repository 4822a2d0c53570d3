"""Settings that a command line changes, by the rules of the file."""

import pytest

from klaw.config.load import override_section
from klaw.config.memory import AutoRagConfig
from klaw.config.schema import EngineConfig
from klaw.errors import ConfigError


def problems(*given: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        override_section(EngineConfig(), "autoRag", given)
    return [str(problem) for problem in caught.value.problems]


def test_only_what_is_given_changes() -> None:
    base = EngineConfig(auto_rag=AutoRagConfig(max_tokens=900, enabled=False))
    made = override_section(base, "autoRag", ["autoRag.topK=5", "autoRag.relevanceThreshold = 0.6"])
    assert made.auto_rag == AutoRagConfig(max_tokens=900, enabled=False, top_k=5, relevance_threshold=0.6)
    assert override_section(base, "autoRag", ["autoRag.enabled=true"]).auto_rag.enabled


def test_errors_are_those_of_the_file() -> None:
    assert problems("autoRag.topk=5") == ["autoRag.topk: unknown key; did you mean topK?"]
    assert problems("autoRg.topK=5") == ["autoRg: unknown key; did you mean autoRag?"]
    assert problems("autoRag.topK=0") == ["autoRag.topK: must be >= 1, got 0"]
    assert problems("autoRag.topK=пять") == ["autoRag.topK: must be a whole number, got the text 'пять'"]
    assert problems("autoRag.relevanceThreshold=.nan")[0].startswith("autoRag.relevanceThreshold: must be a finite")


def test_all_problems_are_named_at_once() -> None:
    assert len(problems("autoRag.topK=0", "autoRag.maxTokens=x", "autoRag.enabled=yes")) == 3
    assert problems("autoRag.topK=1", "autoRag.topK=2") == ["autoRag.topK: is given twice"]


@pytest.mark.parametrize("text", ["topK=5", "autoRag.topK", "autoRag.=5", "=", ""])
def test_another_form_is_explained(text: str) -> None:
    assert "must have the form autoRag.KEY=VALUE" in problems(text)[0]


def test_other_sections_are_refused() -> None:
    assert problems("context.slidingWindow=5") == [
        "context.slidingWindow: cannot be changed here, only keys of autoRag"
    ]
