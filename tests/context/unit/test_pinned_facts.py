"""Facts behind core memory: within its budget, the most important first."""

from klaw.context.pinned_facts import standing
from klaw.domain import tokens
from klaw.domain.core_memory import MAX_TOKENS
from tests.support.facts import fact


def test_facts_stand_behind_core_memory() -> None:
    found = standing(
        "[user]\n- name: Ира", [fact("Аллергия на\nарахис", importance=95), fact("Ира", category="identity")]
    )
    assert found.text == "[user]\n- name: Ира\n[facts]\n- Аллергия на арахис\n- Ира"
    told = found.describe()["facts"]
    assert ([each["because"] for each in told["shown"]], told["left_out"]) == (["importance", "identity"], 0)


def test_without_facts_nothing_changes() -> None:
    assert standing("[user]\n- name: Ann", []).text == "[user]\n- name: Ann"
    assert standing("", []).text == ""
    assert standing("", []).describe() == {}


def test_all_together_keep_to_the_budget() -> None:
    many = [fact(f"fact {number} " + "word " * 20, importance=100) for number in range(50)]
    for core in ("", "- note: " + "слово " * 100, "x" * 5_000):
        found = standing(core, many)
        assert tokens.estimate(found.text) <= max(MAX_TOKENS, tokens.estimate(core))
        assert len(found.facts) + found.left_out == 50
        assert list(found.facts) == many[: len(found.facts)]


def test_one_that_is_too_long_does_not_keep_the_others_out() -> None:
    short = fact("short", importance=90)
    found = standing("", [fact("long " * 399, importance=99), short])
    assert (found.facts, found.left_out) == ((short,), 1)
