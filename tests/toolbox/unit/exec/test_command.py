"""Commands as words, what runs without asking, and what is kept of an output. Pure."""

import json

import pytest

from klaw.config.load import parse
from klaw.domain.text import printable
from klaw.errors import ConfigError, ToolRefused
from klaw.toolbox.host_exec import split
from klaw.toolbox.program import KeptOutput


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls -la", ("ls", "-la")),
        ("echo 'один два' \"три\" четыре\\ пять", ("echo", "один два", "три", "четыре пять")),
        ("grep 'a|b' file", ("grep", "a|b", "file")),
        ('echo "a;b > c"', ("echo", "a;b > c")),
        ("echo a\\;b", ("echo", "a;b")),
        ("sh -c 'cat a | wc > b; echo $(date)'", ("sh", "-c", "cat a | wc > b; echo $(date)")),
        ("printf 'a\nb'", ("printf", "a\nb")),
        ("echo $HOME *.txt", ("echo", "$HOME", "*.txt")),
    ],
)
def test_command_is_split_like_a_shell_would(command: str, words: tuple[str, ...]) -> None:
    assert split(command) == words


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("cat a | wc", r"\| is not understood"),
        ("date; rm -rf x", "; is not understood"),
        ("date && rm x", "& is not understood"),
        ("echo x > file", "> is not understood"),
        ("date\nrm x", "a line end is not understood"),
        ("echo $(rm x)", r"\$\(…\) is not understood"),
        ('echo "$(rm x)"', r"\$\(…\) is not understood"),
        ("echo `rm x`", "` is not understood"),
        ("echo 'open", "left open"),
        ("echo open\\", "left open"),
        ("", "empty"),
        ("   ", "empty"),
        ("'' x", "empty"),
    ],
)
def test_what_only_a_shell_understands_is_refused(command: str, reason: str) -> None:
    with pytest.raises(ToolRefused, match=reason):
        split(command)


@pytest.mark.parametrize(
    "pattern", ["*", "?at x", "ls | wc", "ls 'a", "$HOME/x", "", " ls", "date; rm", "a `b`", "x\ny"]
)
def test_pattern_that_could_mean_anything_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"tools\.exec\.allow"):
        parse(json.dumps({"tools": {"exec": {"allow": [pattern]}}}), {})


def test_outside_tools_are_off_unless_switched_on() -> None:
    config, _ = parse("{}", {})

    assert not config.tools.web.enabled
    assert not config.tools.exec.enabled


def test_question_shows_what_does_not_print() -> None:
    assert printable("ls 'a\u202eb' \x1b[2K\n\u200b Привет") == "ls 'a\\u202eb' \\x1b[2K\\n\\u200b Привет"


def test_output_is_kept_at_both_ends_in_bounded_memory() -> None:
    kept = KeptOutput(head=10, tail=5)
    kept.add(b"0123456")
    assert kept.text() == "0123456"
    kept.add(b"789ab")
    assert kept.text() == "0123456789ab"
    for _ in range(1000):
        kept.add(b"xyz")
    kept.add(b"END")

    assert kept.text() == f"0123456789\n[… {12 + 3000 + 3 - 15} bytes left out …]\nyzEND"
    assert len(kept._tail) <= 2 * 5
