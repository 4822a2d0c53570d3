"""Files that a user, a tool or a program can write are read and written without links, without waiting, bounded."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from klaw import atomic_file
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.config.safe_open import NotPlain
from klaw.domain.names import LOCAL_USER, UserId

LIMIT = 1000


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


TRAPS: dict[str, tuple[Callable[[Path], None], str]] = {
    "link": (link_to("secret.txt"), "is a link"),
    "link to nothing": (link_to("/nothing/here"), "is a link"),
    "link to itself": (link_to("it.md"), "is a link"),
    "environment": (link_to("/proc/self/environ"), "is a link"),
    "zero device": (link_to("/dev/zero"), "is a link"),
    "pipe": (fifo, "is not a regular file"),
    "socket": (listening, "is not a regular file"),
    "folder": (Path.mkdir, "is a folder"),
    "sparse": (sparse, "is larger than 1000 bytes"),
}


@pytest.mark.parametrize("name", TRAPS)
def test_what_is_no_plain_file_is_refused_at_once_and_says_why(tmp_path: Path, name: str) -> None:
    make, why = TRAPS[name]
    (tmp_path / "secret.txt").write_text("secret")
    make(tmp_path / "it.md")

    with pytest.raises(NotPlain, match=why):
        safe_open.read(tmp_path, "it.md", LIMIT)


@pytest.mark.parametrize("link", ["users", "users/anna", "users/anna/deep"])
def test_no_folder_on_the_way_may_be_a_link(tmp_path: Path, link: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    (outside / "anna" / "deep").mkdir(parents=True)
    for folder in ("", "anna", "anna/deep"):
        (outside / folder / "it.md").write_text("secret")
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(outside)
    below = [each for each in ("users/it.md", "users/anna/it.md", "users/anna/deep/it.md") if each.startswith(link)]

    for path in below:
        with pytest.raises((NotPlain, FileNotFoundError)):
            safe_open.opened(root, path).__enter__()
        with pytest.raises(NotPlain):
            safe_open.replace(root, path, b"changed")
    assert {file.read_text() for file in outside.rglob("*.md")} == {"secret"}


def test_a_plain_file_is_read_and_the_way_to_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "users").mkdir(parents=True)
    (tmp_path / "real" / "users" / "it.md").write_text("text")
    (tmp_path / "root").symlink_to(tmp_path / "real")

    assert safe_open.read(tmp_path / "root", "users/it.md", 4) == b"text"
    assert safe_open.read(tmp_path / "root", "users/no.md", 4) is None
    with pytest.raises(NotPlain, match="upwards"):
        safe_open.read(tmp_path / "root", "users/../users/it.md", 4)


def test_files_of_the_system_that_say_they_are_empty_are_bounded() -> None:
    with pytest.raises(NotPlain, match="larger"):
        safe_open.read(Path("/proc/self"), "status", 10)


def test_writing_replaces_a_link_and_never_what_it_leads_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    root = tmp_path / "root"
    root.mkdir()
    for name in ("it.md", ".it.md.new"):  # the file itself, and the draft that stands beside it for a moment
        (root / name).symlink_to(victim)

    safe_open.replace(root, "it.md", b"new")

    assert victim.read_text() == "kept"
    assert (root / "it.md").read_bytes() == b"new"
    assert not (root / "it.md").is_symlink()
    assert [file.name for file in root.iterdir()] == ["it.md"]
    (root / "more").symlink_to(victim)
    with safe_open.opened_folder(root) as folder, pytest.raises(FileExistsError):
        atomic_file.create("more", b"x", folder=folder)
    assert victim.read_text() == "kept"


def test_a_file_that_is_exchanged_all_the_time_never_shows_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "plain").write_text("plain")
    (tmp_path / "link").symlink_to("secret")
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            for source in ("plain", "link"):
                os.link(tmp_path / source, tmp_path / "next", follow_symlinks=False)
                (tmp_path / "next").rename(tmp_path / "it.md")

    other = threading.Thread(target=exchange)
    other.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                seen.add(safe_open.read(tmp_path, "it.md", LIMIT))
            except OSError as error:
                seen.add(type(error).__name__.encode())
    finally:
        stop.set()
        other.join()
    assert b"secret" not in seen
    (tmp_path / "plain").rename(tmp_path / "it.md")
    assert safe_open.read(tmp_path, "it.md", LIMIT) == b"plain"


@pytest.mark.parametrize(
    ("user", "folder"), [("anna", "anna"), ("a.b", "a%2Eb"), ("Ёлка", "%D0%81%D0%BB%D0%BA%D0%B0"), ("..", "%2E%2E")]
)
def test_a_users_path_is_that_of_their_folder(user: str, folder: str) -> None:
    assert below_of_user(UserId(user), "USER.md") == f"users/{folder}/USER.md"
    assert below_of_user(LOCAL_USER, "USER.md") == "USER.md"
    assert below_of_user(LOCAL_USER, "") == ""
