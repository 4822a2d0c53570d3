"""What a program can leave in the workspace for a forgetting to stumble over: nothing of others is read or removed."""

import os
import threading
from pathlib import Path

import pytest

from klaw.domain.names import LOCAL_USER, UserId
from klaw.store.forget import finding, proof
from klaw.store.forget.effects import FileMade

ANNA = UserId("anna")
CHUNK = proof.CHUNK_BYTES
TEXT = "Код от калитки 4815, и больше никому его не говори."


def made(path: str) -> FileMade:
    return FileMade(path=path, own=True, content=TEXT)


@pytest.mark.parametrize("link", ["users", "users/anna", "users/anna/notes", "users/anna/notes/a.md"])
def test_no_file_behind_a_link_is_shown_or_removed(tmp_path: Path, link: str) -> None:
    workspace, other = tmp_path / "workspace", tmp_path / "other"
    target = {
        "users": "anna/notes/a.md", "users/anna": "notes/a.md", "users/anna/notes": "a.md",
    }.get(link, "")  # fmt: skip
    file = other / target if target else other
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TEXT)
    (workspace / link).parent.mkdir(parents=True)
    (workspace / link).symlink_to(other)

    files = [made("notes/a.md")]
    assert finding.things(workspace, ANNA, files, with_facts=True) == []
    finding.remove(workspace, ANNA, files, with_facts=True)
    assert file.read_text() == TEXT


def test_own_files_are_shown_and_removed_and_those_of_others_are_not(tmp_path: Path) -> None:
    for name in ("notes/a.md", "users/anna/notes/a.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(TEXT)
    files = [
        made(path) for path in ("users/anna/notes/a.md", "./users/anna/notes/a.md", "../x", "/etc/passwd", "notes/a.md")
    ]
    assert [each.name for each in finding.things(tmp_path, LOCAL_USER, files, with_facts=True)] == ["notes/a.md"]
    finding.remove(tmp_path, LOCAL_USER, files, with_facts=True)
    assert not (tmp_path / "notes" / "a.md").exists()
    assert (tmp_path / "users" / "anna" / "notes" / "a.md").exists()


def test_pipes_links_and_files_of_any_size_hold_up_no_search(tmp_path: Path) -> None:
    (tmp_path / "found.md").write_text(TEXT)
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "link.md").symlink_to(tmp_path / "found.md")
    (tmp_path / "zero.md").symlink_to("/dev/zero")
    (tmp_path / "folder").symlink_to(tmp_path.parent)
    with (tmp_path / "sparse.md").open("wb") as file:
        file.truncate(1 << 42)
    held = proof.search(tmp_path, LOCAL_USER, [TEXT], shared=True)
    assert [(each.path, each.count, each.kind) for each in held] == [
        ("found.md", 1, "file"),
        ("sparse.md", 0, "not searched"),
    ]
    assert "more than 1 GB" in held[1].remedy


@pytest.mark.parametrize("before", [0, 1, CHUNK - 20, CHUNK - 1, CHUNK])
def test_a_text_is_found_wherever_it_stands_in_a_file(tmp_path: Path, before: int) -> None:
    (tmp_path / "a.bin").write_bytes(b"x" * before + TEXT.encode() + b"y" * CHUNK + TEXT.encode())
    (held,) = proof.search(tmp_path, LOCAL_USER, [TEXT], shared=True)
    assert held.count == 2


def test_a_file_that_shrinks_while_it_is_searched_ends_no_process(tmp_path: Path) -> None:
    """A mapped one would: reading behind its end is a SIGBUS."""
    stop = threading.Event()

    def shrink() -> None:
        while not stop.is_set():
            with (tmp_path / "a.bin").open("r+b") as file:
                file.truncate(0)
                file.truncate(30_000_000)

    (tmp_path / "a.bin").touch()
    other = threading.Thread(target=shrink)
    other.start()
    try:
        for _ in range(40):
            assert proof.search(tmp_path, LOCAL_USER, [TEXT], shared=True) == []
    finally:
        stop.set()
        other.join()
