"""Nothing outside the workspace is ever opened: bad paths, links, pipes, and folders that are swapped meanwhile."""

import ctypes
import os
import socket
import stat
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import NotThere, ToolRefused
from klaw.toolbox.files import access, beneath
from klaw.toolbox.files.beneath import Root, root_of

AT_FDCWD, RENAME_EXCHANGE = -100, 2
CANARY = b"canary: nobody may read this"


@pytest.fixture
def place(tmp_path):
    """A workspace with a few files, and a canary beside it."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "canary.txt").write_bytes(CANARY)
    (outside / "deep" / "canary.txt").write_bytes(CANARY)
    (outside / "deep" / "only-outside.txt").write_bytes(CANARY)
    workspace = tmp_path / "workspace"
    (workspace / "notes").mkdir(parents=True)
    (workspace / "notes" / "a.md").write_text("alpha")
    (workspace / "USER.md").write_text("Анна")
    return workspace


@pytest.fixture
def root(place):
    return Root(folder=place, closed=frozenset({"users"}))


def test_paths_inside_are_read_also_with_dots(root):
    assert access.read_bytes(root, "notes/a.md") == b"alpha"
    assert access.read_bytes(root, "./notes//a.md") == b"alpha"
    assert access.read_bytes(root, "notes/../USER.md").decode() == "Анна"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("../outside/canary.txt", "leads out"),
        ("notes/../../outside/canary.txt", "leads out"),
        ("..", "leads out"),
        ("/etc/passwd", "must be relative"),
        ("~/x", "must be relative"),
        ("a\0b", "NUL"),
        ("a\nb", "control characters"),
        ("\ud800", "not valid Unicode"),
        ("x" * 256, "255"),
        ("x/" * 600, "the limit is 1024"),
        ("x/" * 40, "folders deep"),
        ("notes", "is a folder"),
        ("", "is a folder"),
        (".env", "secrets"),
        ("notes/.git/config", "secrets"),
        ("keys/server.PEM", "secrets"),
        ("credentials.json", "secrets"),
        ("id_ed25519.pub", "secrets"),
        ("users/bob/USER.md", "no such file"),
        ("USERS/bob/USER.md", "no such file"),
        ("notes/../users", "no such file"),
        ("nowhere.md", "no such file"),
        ("USER.md/x", "not a folder"),
    ],
)
def test_bad_paths_are_refused_with_their_reason(root, path, said):
    with pytest.raises(ToolRefused, match=said):
        access.read_bytes(root, path)
    for mode in ("create", "replace", "append"):
        if said != "no such file":
            with pytest.raises(ToolRefused):
                access.write(root, path, b"x", mode)


def test_links_that_stay_inside_work_and_links_out_are_refused(place, root):
    (place / "inside").symlink_to("notes")
    (place / "absolute").symlink_to(place / "notes" / "a.md")
    (place / "notes" / "up").symlink_to("../USER.md")
    (place / "out").symlink_to("../outside")
    (place / "out-absolute").symlink_to(place.parent / "outside" / "canary.txt")
    (place / "prefix").symlink_to(str(place) + "-other/canary.txt")
    (place / "secret-inside").symlink_to(".env")
    (place / ".env").write_text("KEY=1")
    (place / "loop").symlink_to("loop")
    assert access.read_bytes(root, "inside/a.md") == b"alpha"
    assert access.read_bytes(root, "absolute") == b"alpha"
    assert access.read_bytes(root, "inside/up").decode() == "Анна"
    for path in ("out/canary.txt", "out/deep/canary.txt", "out-absolute", "prefix", "secret-inside", "loop"):
        with pytest.raises(ToolRefused):
            access.read_bytes(root, path)
        for mode in ("create", "replace", "append"):
            with pytest.raises(ToolRefused):
                access.write(root, path, b"x", mode)
    assert (place.parent / "outside" / "canary.txt").read_bytes() == CANARY


def test_the_workspace_itself_may_be_reached_by_a_link(place, tmp_path):
    (tmp_path / "home").symlink_to(place)
    root = Root(folder=tmp_path / "home")
    assert access.read_bytes(root, "notes/a.md") == b"alpha"
    (place / "absolute").symlink_to(place / "notes" / "a.md")
    assert access.read_bytes(root, "absolute") == b"alpha"


def test_pipes_sockets_and_devices_are_refused_without_waiting(place, root, tmp_path_factory):
    os.mkfifo(place / "pipe")
    (place / "to-null").symlink_to("/dev/null")
    short = tmp_path_factory.mktemp("s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short / "s"))
        (short / "s").rename(place / "socket")
        for path in ("pipe", "socket", "to-null"):
            with pytest.raises(ToolRefused):
                access.read_bytes(root, path)
            for mode in ("create", "replace", "append"):
                with pytest.raises(ToolRefused):
                    access.write(root, path, b"x", mode)
    assert stat.S_ISFIFO((place / "pipe").stat().st_mode)
    kinds = {entry.path: entry.kind for entry in access.list_folder(root, "", 100).entries}
    assert kinds["pipe"] == kinds["socket"] == "other"
    assert kinds["to-null"] == "link"


def test_a_pipe_that_takes_the_place_of_a_file_does_not_block(place, root, monkeypatch):
    """The name is looked at, then becomes a pipe before it is opened."""
    real = os.stat

    def swapping(path, **named):
        found = real(path, **named)
        if path == "a.md" and (place / "notes" / "a.md").is_file():
            (place / "notes" / "a.md").unlink()
            os.mkfifo(place / "notes" / "a.md")
        return found

    monkeypatch.setattr(beneath.os, "stat", swapping)
    with pytest.raises(ToolRefused, match="pipe"):
        access.read_bytes(root, "notes/a.md")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_swapped_in_during_the_call_is_refused(place, root, monkeypatch, what):
    """Right before the open, the name that was no link becomes one."""
    real = os.open

    def swapping(path, flags, mode=0o777, *, dir_fd=None):
        if what == "folder" and path == "notes" and not (place / "notes").is_symlink():
            (place / "notes").rename(place / "moved")
            (place / "notes").symlink_to("../outside")
        if what == "file" and path == "a.md" and not (place / "notes" / "a.md").is_symlink():
            (place / "notes" / "a.md").unlink()
            (place / "notes" / "a.md").symlink_to("../../outside/canary.txt")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(beneath.os, "open", swapping)
    with pytest.raises(ToolRefused):
        access.read_bytes(root, "notes/canary.txt" if what == "folder" else "notes/a.md")


def test_a_folder_swapped_all_the_time_never_lets_anything_out(place, root):
    """Another thread exchanges a folder for a link out, as fast as it can, while files are read and written."""
    (place / "link").symlink_to("../outside")
    exchange = partial(
        ctypes.CDLL(None, use_errno=True).renameat2,
        AT_FDCWD,
        bytes(place / "notes"),
        AT_FDCWD,
        bytes(place / "link"),
        RENAME_EXCHANGE,
    )
    if exchange() != 0:
        pytest.skip("this file system cannot exchange two names at once")
    stop, exchanged = threading.Event(), 0

    def swap():
        nonlocal exchanged
        while not stop.is_set():
            exchanged += exchange() == 0

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(400):
            with suppress(ToolRefused):
                assert access.read_bytes(root, "notes/a.md") == b"alpha"
            with suppress(ToolRefused):
                assert access.read_bytes(root, "notes/canary.txt") == b"overwritten"
            with suppress(ToolRefused):
                access.write(root, "notes/canary.txt", b"overwritten", "replace")
            assert not any("only-outside" in entry.path for entry in access.find(root, "**/*.txt", 100).entries)
    finally:
        stop.set()
        thread.join()
    assert exchanged
    outside = place.parent / "outside"
    assert (outside / "canary.txt").read_bytes() == CANARY
    assert sorted(path.name for path in outside.iterdir()) == ["canary.txt", "deep"]


def test_no_descriptor_is_left_open(place, root):
    (place / "out").symlink_to("../outside")

    def use():
        for path in ("notes/a.md", "../x", "out/canary.txt", "nowhere/x", "notes/../USER.md", "notes"):
            for operation in (
                lambda p: access.read_bytes(root, p),
                lambda p: access.write(root, p, b"x", "create"),
                lambda p: access.list_folder(root, p, 1),
                lambda p: access.find(root, f"{p}/**/*", 1),
            ):
                with suppress(ToolRefused):
                    operation(path)

    use()
    before = len(list(Path("/proc/self/fd").iterdir()))
    use()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


_NAMES = st.sampled_from(
    ["..", ".", "", "notes", "a.md", "out", "in", "up", "canary.txt", "deep", "users", "~", "/", "outside", "workspace"]
) | st.text(max_size=6)
_PATHS = st.lists(_NAMES, max_size=8).map("/".join) | st.text(max_size=30)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=_PATHS)
def test_no_path_reaches_the_canary(place, root, path):
    """Whatever is asked for: reading gives nothing from outside, writing changes nothing there, no other error."""
    for name, target in (("out", "../outside"), ("in", "notes"), ("notes/up", "..")):
        if not (place / name).is_symlink():
            (place / name).symlink_to(target)
    for operation in (
        lambda: access.read_bytes(root, path),
        lambda: access.write(root, path, b"written", "replace"),
        lambda: access.write(root, path, b"written", "create"),
        lambda: access.change(root, path, lambda data, _name: data + b"changed"),
    ):
        with suppress(ToolRefused):
            assert operation() != CANARY
    for lister in (access.list_folder, access.find):
        try:
            found = lister(root, path, 1000)
        except ToolRefused:
            continue
        assert not any("only-outside" in entry.path for entry in found.entries)
    outside = place.parent / "outside"
    assert (outside / "canary.txt").read_bytes() == CANARY
    assert (outside / "deep" / "canary.txt").read_bytes() == CANARY
    assert sorted(path.name for path in outside.iterdir()) == ["canary.txt", "deep"]
    assert sorted(path.name for path in place.parent.iterdir()) == ["outside", "workspace"]


def test_each_user_has_their_own_part(place):
    """The owner sees the workspace without the others' folders, everybody else their folder alone."""
    anna, bob = root_of(place, UserId("anna")), root_of(place, UserId("bob"))
    owner = root_of(place, LOCAL_USER)
    assert access.list_folder(anna, "", 10).entries == ()
    with pytest.raises(NotThere):
        access.read_bytes(anna, "USER.md")
    assert access.write(anna, "USER.md", b"I am Anna", "create") == "USER.md"
    assert (place / "users" / "anna" / "USER.md").read_bytes() == b"I am Anna"
    for path in ("../../USER.md", "../bob/USER.md", "../anna/USER.md"):
        with pytest.raises(ToolRefused, match="leads out"):
            access.read_bytes(anna, path)
    with pytest.raises(NotThere):
        access.read_bytes(bob, "USER.md")
    assert all(not entry.path.startswith("users") for entry in access.find(owner, "**/*", 100).entries)
    (place / "users" / "anna" / "link").symlink_to(place / "USER.md")
    with pytest.raises(ToolRefused, match="out of the workspace"):
        access.read_bytes(anna, "link")
    (place / "users" / "eve").symlink_to("anna")
    with pytest.raises(ToolRefused):
        access.read_bytes(root_of(place, UserId("eve")), "USER.md")
