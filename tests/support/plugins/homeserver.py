"""A pytest plugin: a real homeserver for the tests that ask for one."""

from collections.abc import Iterator

import pytest

from tests.support.services.synapse import MISSING, Synapse, environment


@pytest.fixture(scope="session")
def _homeserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    folder = environment()
    if folder is None:
        pytest.skip(MISSING)
    made = Synapse(folder, tmp_path_factory.mktemp("synapse"))
    yield made
    made.stop()


@pytest.fixture
async def synapse(_homeserver: Synapse) -> Synapse:
    """It runs; a test that stops it starts it again, or leaves that to the next one."""
    await _homeserver.start()
    return _homeserver
