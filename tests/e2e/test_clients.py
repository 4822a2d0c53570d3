"""Programs and libraries of others, which ``make test-clients`` installs: all that they do with Klaw as their model."""

import pytest

from tests.support.client_programs.table import ALWAYS, PLACE, TITLES, klaw_with_model, tried


def title(name):
    is_there = bool(PLACE) or name in ALWAYS
    why = "KLAW_TEST_CLIENTS names no folder with clients of others (make test-clients)"
    return pytest.param(name, marks=pytest.mark.skipif(not is_there, reason=why))


@pytest.mark.parametrize("name", [title(name) for name in TITLES])
async def test_a_client(tmp_path, name):
    async with klaw_with_model(tmp_path) as (server, llm):
        found = await tried(name, server, llm)
    assert {case: why for case, why in found.items() if why is not None} == {}
