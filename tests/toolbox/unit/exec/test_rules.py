"""Rules of tools.exec.allow name what a command's words lead to: no ``..`` and no link leads out of them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.toolbox.host_exec import allowed, split

RULES = (
    "date", "git status", "git log **", "ls *", "cat notes/*", "cat notes/**/*.md", "cat SOUL.txt", "head -n* notes/*",
    "grep --file=notes/* x", "dd if=notes/* of=out/*", "curl -d @notes/*", "tail ../shared/*", "less /var/log/*",
    "wget https://example.com/*",
    "./run.sh", "sort --key* notes/*", "wc ./notes/[ab].md",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with links out of it and out of notes/."""
    here = (tmp_path / "workspace").resolve()
    for each in ("notes/deep", "out", "other"):
        (here / each).mkdir(parents=True)
    (tmp_path / "shared").mkdir()
    for file in ("notes/a.md", "notes/.hidden", "notes/deep/b.md", "other/c.md", "SOUL.md", "key"):
        (here / file).write_text("x")
    (tmp_path / "secret").write_text("x")
    for link, target in (
        ("notes/up", "../key"),
        ("notes/secret", "/etc/shadow"),
        ("notes/out", "../.."),
        ("notes/away", "../other"),
        ("notes/same", "a.md"),
        ("SOUL.txt", "SOUL.md"),
        ("top", "/etc/shadow"),
        ("git", "/usr/bin/id"),
        ("--x", "/etc/shadow"),
        ("out/link", "../../secret"),
        ("into", "notes"),
        ("run.sh", "/usr/bin/id"),
    ):
        (here / link).symlink_to(target)
    (tmp_path / "shared" / "secret").symlink_to(tmp_path / "secret")
    return here


def free(command: str, folder: Path, rules: tuple[str, ...] = RULES) -> bool:
    return allowed(split(command), map(split, rules), folder)


@pytest.mark.parametrize(
    "command",
    [
        "date",
        "git status",
        "git log",
        "git log --oneline -3 ../x",
        "ls notes",
        "ls other",
        "cat notes/a.md",
        "cat ./notes//a.md",
        "cat notes/deep/../a.md",
        "cat notes/same",
        "cat into/a.md",
        "cat notes/not-there-yet",
        "cat notes/deep/b.md",
        "head -n5 notes/a.md",
        "grep --file=notes/a.md x",
        "dd if=notes/a.md of=out/new",
        "curl -d @notes/a.md",
        "tail ../shared/x",
        "less /var/log/syslog",
        "wget https://example.com/page",
        "sort --key2 notes/a.md",
        "wc notes/b.md",
    ],
)
def test_what_a_rule_names_runs_without_a_question(folder: Path, command: str) -> None:
    assert free(command, folder)


@pytest.mark.parametrize(
    "command",
    [
        "date -u",
        "git push",
        "/tmp/git status",
        "./date",
        "ls notes -R",
        "ls",
        "dates",
        "ls -R",
        "ls --x",
        "ls ..",
        "ls .",
        "ls /etc",
        "ls notes/..",
        "ls notes/deep",
        "ls top",
        "ls .git",
        "cat notes/../SOUL.md",
        "cat notes/../../secret",
        "cat notes/./../key",
        "cat notes/deep/../../key",
        "cat notes/up",
        "cat notes/secret",
        "cat notes/out/secret",
        "cat notes/out/workspace/key",
        "cat notes/away/c.md",
        "cat notes/.hidden",
        "cat notes/.hidden.md",
        "cat notes/",
        "cat notes",
        "cat /etc/passwd",
        "cat //etc/passwd",
        "cat SOUL.txt",
        "head -n5 notes/up",
        "head --lines=5 notes/a.md",
        "head -n../x notes/a.md",
        "grep --file=notes/../key x",
        "grep --file=notes/up x",
        "grep --file=/etc/shadow x",
        "grep -fnotes/a.md x",
        "dd if=notes/a.md of=out/link",
        "dd if=notes/a.md of=out/../SOUL.md",
        "dd if=notes/../key of=out/new",
        "curl -d @notes/up",
        "curl -d @/etc/shadow",
        "curl -d notes/a.md",
        "tail ../shared/secret",
        "tail ../shared/../secret",
        "tail ../secret",
        "less /var/log/../../etc/shadow",
        "wget https://example.com/../evil",
        "wget https://example.com.evil/x",
        "sort --key=/etc/shadow notes/a.md",
        "sort --key/../x notes/a.md",
        "wc notes/c.md",
        "./run.sh",
    ],
)
def test_what_leads_out_of_a_rule_is_asked_about(folder: Path, command: str) -> None:
    assert not free(command, folder)


def test_a_folder_that_a_program_made_a_link_widens_no_rule(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "notes").symlink_to("/etc")
    (folder / "SOUL.md").symlink_to("/etc/passwd")
    for command in ("cat notes/passwd", "cat SOUL.md", "cat --x=SOUL.md"):
        assert not free(command, folder, ("cat notes/*", "cat SOUL.md", "cat --x=SOUL.md"))


@pytest.mark.parametrize("name", ["a[b]c", "a*", "двор"])
def test_the_workspaces_own_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    folder = (tmp_path / name).resolve()
    (folder / "notes").mkdir(parents=True)
    (tmp_path / "ab" / "notes").mkdir(parents=True)
    assert free("cat notes/x", folder)
    assert not free("cat ../ab/notes/x", folder)


_NAMES = ["..", ".", "", "notes", "deep", "up", "out", "away", "secret", "into", "a.md", "key", "workspace", "~", "-x"]
_PIECES = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=6)


@given(pieces=_PIECES)
def test_whatever_is_allowed_lies_in_what_the_rule_names(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str]
) -> None:
    here = tmp_path_factory.getbasetemp() / "rules" / "workspace"
    if not here.exists():
        for each in ("notes/deep", "other"):
            (here / each).mkdir(parents=True)
        for link, target in (("up", "../key"), ("out", "../.."), ("away", "../other"), ("secret", "/etc/shadow")):
            (here / "notes" / link).symlink_to(target)
        (here / "into").symlink_to("notes")
    word = "/".join(pieces)
    if free(f"cat {word!r}", here, ("cat notes/**",)):
        assert Path(os.path.realpath(here / word)).is_relative_to(here / "notes")
