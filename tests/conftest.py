"""For all tests: an end for those that hang, real models, captured logs with a canary."""

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog.testing import LogCapture

from klaw.actor.log import keep_allowed_fields

PLUGINS = (
    "answers",
    "doors",
    "forking",
    "golden",
    "hanging",
    "homeserver",
    "migrated",
    "models",
    "running",
    "source_engine",
)
pytest_plugins = [f"tests.support.plugins.{name}" for name in PLUGINS]

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Some environments forbid to keep bytecode; then each of the hundreds of servers compiles all of Klaw."""

os.environ["TZ"] = "UTC"
time.tzset()
"""People are shown the time of their machine; tests know what that says."""

explore = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No example fails because the machine is slow."""
settings.register_profile("explore", explore)
settings.register_profile("klaw", explore, derandomize=True)
settings.load_profile("klaw")
"""The same examples every time; ``pytest --hypothesis-profile=explore`` looks for others."""

CANARY = "canary-Жёлудь-7731"
"""Planted into messages; no log line may ever hold it (invariant private-logs)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that ask the local model, and the attacks, take longest: begun first, they do not keep everything waiting
    in the end."""
    items.sort(
        key=lambda item: "local_llm_dir" not in getattr(item, "fixturenames", ()) and item.path.stem != "test_attack"
    )


@pytest.fixture(autouse=True)
def log_events() -> Iterator[list[dict[str, Any]]]:
    """Every log event of a test; fails the test when one holds planted content."""
    capture = LogCapture()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, keep_allowed_fields, capture],
        cache_logger_on_first_use=False,
    )
    yield capture.entries
    structlog.reset_defaults()
    for entry in capture.entries:
        assert CANARY not in repr(entry), "a log line holds message content"
