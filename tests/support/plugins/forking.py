"""The ``klaw`` commands that tests run are forked from one process with all imports, the zygote of this worker."""

from collections.abc import Iterator

import pytest

from tests.support import server
from tests.support.forks import Zygote


@pytest.fixture(scope="session", autouse=True)
def _forked_commands() -> Iterator[None]:
    server.zygote = Zygote()
    yield
    server.zygote.close()
    server.zygote = None
