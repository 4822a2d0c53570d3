"""Names of MCP tools: what every provider takes, stable, and never the same twice."""

import re

from hypothesis import given
from hypothesis import strategies as st

from klaw.toolbox.mcp.listing import offered_names
from klaw.toolbox.spec import NAME

SERVERS = st.from_regex(r"[A-Za-z0-9]{1,32}", fullmatch=True)


def test_a_plain_name_stays():
    assert offered_names("github", ["list_issues"]) == {"list_issues": "github__list_issues"}


def test_an_odd_name_is_cleaned_and_gives_way_to_a_plain_one():
    names = offered_names("s", ["a.b", "a_b", "a/b"])
    assert names["a_b"] == "s__a_b"
    assert re.fullmatch(r"s__a_b_[0-9a-f]{8}", names["a.b"])
    assert len(set(names.values())) == 3
    assert offered_names("s", ["a.b"]) == {"a.b": "s__a_b"}


def test_a_russian_name_gets_a_digest():
    assert re.fullmatch(r"s__tool_[0-9a-f]{8}", offered_names("s", ["погода"])["погода"])


def test_a_long_name_is_cut_to_what_providers_take():
    names = offered_names("s" * 32, ["t" * 200, "t" * 201])
    assert len(set(names.values())) == 2
    assert all(len(name) == 64 for name in names.values())


@given(SERVERS, st.lists(st.text(min_size=1, max_size=100), max_size=20))
def test_any_names_become_valid_ones_in_any_order(server, tools):
    names = offered_names(server, tools)
    assert all(NAME.fullmatch(name) and name.startswith(f"{server}__") for name in names.values())
    assert offered_names(server, tools[::-1]) == names
