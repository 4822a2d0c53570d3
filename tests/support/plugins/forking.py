"""The ``klaw`` commands and scripts that tests run are forked from one process with all imports, the zygote of this
worker."""

from collections.abc import Iterator

import pytest

from tests.support import processes
from tests.support.forks import Zygote


@pytest.fixture(scope="session", autouse=True)
def _forked_processes() -> Iterator[None]:
    processes.zygote = Zygote()
    yield
    processes.zygote.close()
    processes.zygote = None
