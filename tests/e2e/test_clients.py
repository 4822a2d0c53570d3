"""Programs and libraries of others, which ``make test-clients`` installs: all that they do with Klaw as their model."""

import pytest

from tests.support.client_programs.table import ALWAYS, PLACE, TITLES, klaw_with_model, tried


@pytest.mark.parametrize("name", TITLES)
async def test_a_client(tmp_path, name):
    if not PLACE and name not in ALWAYS:
        pytest.skip("KLAW_TEST_CLIENTS names no folder with clients of others (make test-clients)")
    async with klaw_with_model(tmp_path) as (server, llm):
        found = await tried(name, server, llm)
    assert {case: why for case, why in found.items() if why is not None} == {}
