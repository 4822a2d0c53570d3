"""What `make dist` builds: every file of klaw/, no other, always the same bytes; and what texts say of it."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY
from tools.make_dist import build


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        found = {name: opened.read(name) for name in opened.namelist() if name.startswith("klaw/")}
        others = {name for name in opened.namelist() if not name.startswith("klaw/")}
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "klaw"]
    tracked = subprocess.run(listed, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == {name: (REPOSITORY / name).read_bytes() for name in tracked if (REPOSITORY / name).exists()}
    assert {name.partition("/")[0] for name in others} == {f"klaw-{wheel.name.split('-')[1]}.dist-info"}


def test_two_builds_are_byte_for_byte_the_same(wheel: Path, tmp_path: Path) -> None:
    os.utime(REPOSITORY / "klaw" / "__init__.py")  # the times of the files do not matter
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_what_an_older_build_left_in_the_checkout_gets_into_no_wheel(tmp_path: Path) -> None:
    """As pip builds it, in the checkout: deleted modules came back from its build/ after a rollback."""
    source = tmp_path / "source"
    source.mkdir()
    for each in ("klaw", "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-aL", str(REPOSITORY / each), str(source)], check=True)
    left = source / "build" / "lib" / "klaw" / "deleted.py"
    left.parent.mkdir(parents=True)
    left.write_text("")
    script = "from flit_core import buildapi; import sys; print(buildapi.build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    with zipfile.ZipFile(tmp_path / done.stdout.strip()) as opened:
        assert not [name for name in opened.namelist() if "deleted" in name]
    assert sorted(path.name for path in source.iterdir()) == ["LICENSE", "README.md", "build", "klaw", "pyproject.toml"]


def test_no_text_sends_people_to_the_name_klaw_on_the_index() -> None:
    """It is not this program's."""
    listed = ["git", "ls-files", "*.md", "*.py", "*.json", "*.js", "*.toml", "conf", "Makefile"]
    names = subprocess.run(listed, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.splitlines()
    wrong = re.compile(
        r"(pip3?|pipx|uv tool|uv pip) (install|run|download)( +-\S+)* +['\"]?klaw(?![-\w/.]*\.(whl|deb))"
    )
    for name in (each for each in names if (REPOSITORY / each).is_file() and each != "klaw/errors.py"):
        found = wrong.search((REPOSITORY / name).read_text(encoding="utf-8"))
        assert found is None or name == "tests/unit/test_package.py", f"{name}: {found and found[0]}"


def test_the_extra_all_is_all_that_a_server_can_use() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(extras["all"]) == sorted([*extras["local"], *extras["mcp"], *extras["push"]])
