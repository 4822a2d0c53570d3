"""26.B4: a wheel that somebody made up costs little, and the answer names the file and what is wrong with it."""

import os
import zipfile
from pathlib import Path

import pytest

from klaw.service import update
from klaw.service.update import UpdateRefused, read_wheel

NAME = "klaw-9.9.9-py3-none-any.whl"
ABOUT = "klaw-9.9.9.dist-info/METADATA"
VERSION = "Metadata-Version: 2.1\nName: klaw\nVersion: 9.9.9\n"


def made(folder: Path, members: dict[str, str | int]) -> Path:
    """A wheel; a number stands for so many bytes."""
    path = folder / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in members.items():
            with package.open(name, "w", force_zip64=True) as member:
                if isinstance(content, str):
                    member.write(content.encode())
                else:
                    for _ in range(content >> 20):
                        member.write(bytes(1 << 20))
    return path


def test_a_wheel_is_read(tmp_path: Path) -> None:
    found = read_wheel(made(tmp_path, {ABOUT: VERSION, "klaw/store/migrations/031_x.sql": ""}))
    assert (found.version, found.schema) == ("9.9.9", 31)


def test_a_large_description_is_not_unpacked(tmp_path: Path) -> None:
    with pytest.raises(UpdateRefused, match=rf"{NAME}.*its METADATA has more than 1 MiB; get it again"):
        read_wheel(made(tmp_path, {ABOUT: 100 << 20}))


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    with pytest.raises(UpdateRefused, match="what it holds has more than 256 MiB"):
        read_wheel(made(tmp_path, {ABOUT: VERSION, "klaw/big": update.MAX_UNPACKED}))


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = made(tmp_path, {ABOUT: VERSION})
    os.truncate(path, update.MAX_WHEEL + 1)
    with pytest.raises(UpdateRefused, match="the file has more than 64 MiB"):
        read_wheel(path)


def test_the_number_of_a_migration_is_short(tmp_path: Path) -> None:
    assert read_wheel(made(tmp_path, {ABOUT: VERSION, f"klaw/store/migrations/{'9' * 5_000}_x.sql": ""})).schema == 0


@pytest.mark.parametrize("about", ["Name: klaw\n", f"Name: klaw\nVersion: {'9' * 5_000}\n", "Version: 1\x00\n"])
def test_a_version_that_is_none_is_refused(tmp_path: Path, about: str) -> None:
    with pytest.raises(UpdateRefused, match="does not say which version"):
        read_wheel(made(tmp_path, {ABOUT: about}))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make) -> None:
    make(tmp_path / NAME)
    with pytest.raises(UpdateRefused, match="is not a file"):
        read_wheel(tmp_path / NAME)
