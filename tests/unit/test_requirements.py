"""requirements.txt and requirements-dev.txt: every package exact, with hashes, and nothing is missing.

`make lock-check` asks the package index too: whether every Python and machine finds a wheel of each.
"""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import REPOSITORY

RUNTIME = (REPOSITORY / "requirements.txt").read_text(encoding="utf-8")
DEV = (REPOSITORY / "requirements-dev.txt").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def locked(text: str) -> dict[str, Requirement]:
    entries = re.findall(r"^(\S+==[^\\\n]+?) *\\?$", text, re.MULTILINE)
    return {canonicalize_name(each.name): each for each in map(Requirement, entries)}


def wanted(*extras: str) -> list[Requirement]:
    project = PROJECT["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(text) for texts in lists for text in texts]


@pytest.mark.parametrize("text", [RUNTIME, DEV], ids=["runtime", "dev"])
def test_every_package_is_exact_and_has_hashes(text: str) -> None:
    """pip itself demands it, too; and nothing is built from source, which would fetch what is not listed."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    options = [line for line in lines if line.startswith("-")]
    assert set(options) <= {"--only-binary :all:", "-r requirements.txt"}
    assert "--only-binary :all:" in options
    at = [number for number, line in enumerate(lines) if not line.startswith(("-", " "))]
    assert len(at) == len(locked(text))
    for number in at:
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)? \\", lines[number]), lines[number]
        assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", lines[number + 1])


def test_no_address_of_an_index_is_written_down() -> None:
    assert "://" not in RUNTIME + DEV


def test_they_fit_pyproject() -> None:
    """The build's own dependencies are among them: Klaw is built without isolation."""
    runtime, everything = locked(RUNTIME), {**locked(RUNTIME), **locked(DEV)}
    build = [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    for found, needed in ((runtime, [*wanted("local", "mcp", "push"), *build]), (everything, wanted("dev"))):
        for each in needed:
            (exact,) = found[canonicalize_name(each.name)].specifier
            assert each.specifier.contains(exact.version), f"{each} is locked as {exact}: run `make lock`"
    assert not set(locked(RUNTIME)) & set(locked(DEV))
