"""The command line: where options may stand, words without quotes, and what is said to a typo."""

import argparse

import pytest

from klaw.cli.main import parser


def parse(*words: str) -> argparse.Namespace:
    return parser(words).parse_args(words)


@pytest.mark.parametrize(
    "words",
    [
        ("--home", "/x", "facts", "list"),
        ("facts", "--home", "/x", "list"),
        ("facts", "list", "--home", "/x"),
        ("--home", "/x", "runs", "show", "abc"),
        ("runs", "--home", "/x", "show", "abc"),
        ("--home", "/x", "status"),
        ("--home", "/wrong", "status", "--home", "/x"),
    ],
)
def test_home_stands_before_or_after_the_command(words: tuple[str, ...]) -> None:
    assert parse(*words).home == "/x"


def test_without_home_there_is_none() -> None:
    assert parse("facts", "list").home is None
    assert parse("status").home is None


def test_texts_need_no_quotes() -> None:
    assert parse("search", "summer", "house", "--limit", "3").asked_query == "summer house"
    assert parse("search", "--limit", "3", "летний", "дом").asked_query == "летний дом"
    assert parse("search", "chat", "about", "tea").asked_query == "chat about tea"
    assert parse("--home", "chat", "search", "serve").asked_query == "serve"
    assert parse("kb", "chat", "--chat", "workshop").asked_chat == "workshop"
    assert parse("--home=chat", "chat", "Tea?").question == "Tea?"
    assert parse("facts", "add", "Anna", "likes", "tea").asked_text == "Anna likes tea"
    assert parse("people", "add", "Анна", "Петрова", "--relation", "sister").asked_name == "Анна Петрова"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stauts",), "there is no command 'stauts'. Did you mean status?"),
        (("facts", "lst"), "there is no command 'lst'. Did you mean list?"),
        (("schedule", "ad", "x"), "Did you mean add"),
        (("serve", "--config", "/no/such.json"), "argument --config: there is no such file"),
        (("runs", "list"), "there is no command 'list'. `klaw runs` alone lists them."),
        (
            ("kb", "remove", "Workshop", "lease.pdf"),
            "kb remove: error: 'lease.pdf' is too much; `klaw kb remove --help`",
        ),
        (("zzzzzz",), "there is no command 'zzzzzz'. `klaw --help` lists the commands"),
        (("usage", "--by", "modle"), "invalid choice: 'modle'"),
        (("serve", "--prot", "1"), "there is no option --prot. Did you mean --port? `klaw serve --help`"),
        (("serve", "--port", "0000000001999999"), "must be a number from 0 to 65535"),
        (("--hmoe=/x", "status"), "there is no option --hmoe. Did you mean --home or --help?"),
    ],
)
def test_a_typo_is_answered_with_what_was_meant(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(*words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_long_typo_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("x" * 100_000)
    assert "invalid choice" in capsys.readouterr().err
