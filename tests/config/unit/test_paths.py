"""Where files live, and how outside names become folder names."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.config.paths import NAME_MAX_BYTES, Paths, encode_name, ensure_private_dir
from klaw.errors import ConfigError


def test_home_puts_everything_under_one_folder():
    paths = Paths.resolve("/srv/k", {"KLAW_WORKSPACE": "/other", "KLAW_HOME": "/no", "XDG_DATA_HOME": "/no"})
    assert paths.config_file == Path("/srv/k/config/engine.yaml")
    assert paths.data_dir == Path("/srv/k/data")
    assert paths.database == Path("/srv/k/data/klaw.db")
    assert paths.conversations == Path("/srv/k/data/conversations")
    assert paths.state_dir == Path("/srv/k/state")
    assert paths.models_dir == Path("/srv/k/models")
    assert paths.admin_socket == Path("/srv/k/run/admin.sock")
    assert paths.workspace == Path("/srv/k/workspace")


def test_klaw_home_works_like_home_but_leaves_the_workspace_to_its_variable():
    assert Paths.resolve(None, {"KLAW_HOME": "/srv/k"}) == Paths.resolve("/srv/k", {})
    both = Paths.resolve(None, {"KLAW_HOME": "/srv/k", "KLAW_WORKSPACE": "/w"})
    assert (both.data_dir, both.workspace) == (Path("/srv/k/data"), Path("/w"))


def test_xdg_defaults():
    paths = Paths.resolve(None, {"HOME": "/home/anna"})
    assert paths.config_file == Path("/home/anna/.config/klaw/engine.yaml")
    assert paths.data_dir == Path("/home/anna/.local/share/klaw")
    assert paths.state_dir == Path("/home/anna/.local/state/klaw")
    assert paths.models_dir == Path("/home/anna/.cache/klaw/models")
    assert paths.admin_socket == Path("/home/anna/.local/state/klaw/run/admin.sock")
    assert paths.workspace == Path("/home/anna/.local/share/klaw/workspace")


def test_xdg_variables_are_followed_and_relative_ones_ignored():
    environ = {
        "HOME": "/h",
        "XDG_CONFIG_HOME": "/c",
        "XDG_DATA_HOME": "relative",
        "XDG_CACHE_HOME": "/cache",
        "XDG_RUNTIME_DIR": "/run/user/1000",
        "KLAW_WORKSPACE": "~/notes",
    }
    paths = Paths.resolve(None, environ)
    assert paths.config_dir == Path("/c/klaw")
    assert paths.data_dir == Path("/h/.local/share/klaw")
    assert paths.models_dir == Path("/cache/klaw/models")
    assert paths.admin_socket == Path("/run/user/1000/klaw/admin.sock")
    assert paths.workspace == Path("/h/notes")


def test_a_relative_home_becomes_absolute():
    assert Paths.resolve("here", {}).data_dir == Path.cwd() / "here" / "data"


def test_a_socket_path_at_the_limit_passes_and_one_byte_more_is_refused_by_name():
    tail = len("/run/admin.sock")
    at_limit = "/" + "d" * (107 - tail - 1)
    assert len(os.fsencode(Paths.resolve(at_limit, {}).admin_socket)) == 107
    with pytest.raises(ConfigError, match=f"{at_limit}d/run/admin.sock"):
        Paths.resolve(at_limit + "d", {})


def test_the_socket_limit_counts_bytes_not_characters():
    with pytest.raises(ConfigError, match="107"):
        Paths.resolve("/" + "я" * 60, {})


def test_a_home_with_nul_is_refused():
    with pytest.raises(ConfigError, match="NUL"):
        Paths.resolve("/a\0b", {})


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("anna_K-9", "anna_K-9"),
        ("../x", "%2E%2E%2Fx"),
        (".", "%2E"),
        ("", "%"),
        ("a%2Eb", "a%252Eb"),
        ("чат", "%D1%87%D0%B0%D1%82"),
        ("a\0b", "a%00b"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_encode_name_examples(name, folder):
    assert encode_name(name) == folder


def test_long_names_are_cut_at_a_whole_escape_and_stay_different():
    first, second = encode_name("я" * 100), encode_name("я" * 101)
    assert first != second
    assert len(first) <= NAME_MAX_BYTES
    assert first.rsplit("~")[0].removesuffix("%D1%8F").endswith("%D1%8F")
    assert encode_name("a" * 120) == "a" * 120
    assert len(encode_name("a" * 121)) == 120


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_encode_name_is_injective_and_safe(one, other):
    encoded = encode_name(one)
    assert (encoded == encode_name(other)) == (one == other)
    assert 0 < len(encoded) <= NAME_MAX_BYTES
    assert set(encoded) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-%~")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_ensure_private_dir_makes_every_missing_folder_private(tmp_path):
    made = ensure_private_dir(tmp_path / "a" / "b")
    assert mode_of(made) == 0o700
    assert mode_of(made.parent) == 0o700


def test_ensure_private_dir_closes_an_open_folder_and_keeps_its_contents(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    (folder / "file").write_text("x")
    ensure_private_dir(folder)
    assert mode_of(folder) == 0o700
    assert (folder / "file").read_text() == "x"


@pytest.mark.parametrize("below", [".", "child"])
def test_ensure_private_dir_names_the_file_in_the_way(tmp_path, below):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        ensure_private_dir(tmp_path / "file" / below)
