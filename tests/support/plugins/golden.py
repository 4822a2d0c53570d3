"""Texts that people and models see, as they are: each is a file below tests/golden/. After a wanted change
``pytest --renew-golden`` writes those of the tests that run; git shows what became of them."""

from collections.abc import Callable

import pytest

from tests.support.repository import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden"
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write tests/golden/ instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(name, text)``: the text is the one in tests/golden/NAME.txt."""

    def same(name: str, text: str) -> None:
        file = GOLDEN / f"{name}.txt"
        if request.config.getoption("--renew-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        assert text == (file.read_text("utf-8") if file.exists() else ""), f"tests/golden/{name}.txt: {__doc__}"

    return same
