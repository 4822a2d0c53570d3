"""The command line: where options may stand, words without quotes, and what is said to a typo."""

import argparse
import re
import subprocess
from collections.abc import Iterator

import pytest

from klaw.cli.arguments import MEANT
from klaw.cli.main import main, parser
from klaw.operations.perform import nouns
from tests.support.processes import KLAW
from tests.support.repository import REPOSITORY


def parse(*words: str) -> argparse.Namespace:
    return parser(words).parse_args(words)


def helps(of: argparse.ArgumentParser) -> Iterator[str]:
    yield of.format_help()
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from helps(each)


def test_help_has_no_words_of_the_code() -> None:
    told = "\n".join(helps(parser()))
    words = re.findall(
        r"(?<!--)\b(segments?|windows?|turns?|archivist|degraded|coverage|uncovered|pending|drawn|bound)\b", told
    )
    assert words == ["turn"], "in 20 minutes turn off the oven"


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
    assert parse("search", "summer", "house", "--limit", "3").asked_query == ["summer", "house"]
    assert parse("search", "--limit", "3", "летний", "дом").asked_query == ["летний", "дом"]
    assert parse("search", "chat", "about", "tea").asked_query == ["chat", "about", "tea"]
    assert parse("--home", "chat", "search", "serve").asked_query == ["serve"]
    assert parse("kb", "chat", "--chat", "workshop").asked_chat == "workshop"
    assert parse("chat", "Name", "a", "tree").question == ["Name", "a", "tree"]
    assert parse("chat", "--chat", "x", "Name", "a tree").question == ["Name", "a tree"]
    assert parse("chat").question == []
    assert parse("--home=chat", "chat", "Tea?").question == ["Tea?"]
    assert parse("facts", "add", "Anna", "likes", "tea").asked_text == ["Anna", "likes", "tea"]
    assert parse("people", "add", "Анна", "Петрова", "--relation", "sister").asked_name == ["Анна", "Петрова"]


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
            "kb remove: error: unexpected 'lease.pdf'. `klaw kb remove --help`",
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("remember", "I am allergic to nuts"), 'Did you mean klaw facts add "…"?'),
        (("kb", "chat", "papers"), "unexpected 'papers'. Did you mean --chat papers?"),
        (("serve", "9000"), "Did you mean --port 9000?"),
        (("schedule", "add", "x", "every", "1d"), "Did you mean --every …?"),
        (("start",), "Did you mean klaw serve?"),
        (("stop",), "Ctrl-C ends klaw serve"),
        (("uninstall",), "Did you mean klaw service uninstall?"),
        (("restore",), "Did you mean klaw backup restore?"),
        (("token", "create", "anna"), "Did you mean add?"),
        (("kb", "new", "papers"), "Did you mean add or create?"),
        (("chats", "rm", "garden"), "Did you mean delete?"),
        (("chats", "remove", "garden"), "Did you mean delete?"),  # neither rename nor restore
        (("serach", "riga"), "Did you mean search?"),
        (("tasks",), "Did you mean klaw schedule?"),
        (("models", "use", "qwen3:8b"), "Did you mean klaw init --provider NAME --model NAME?"),
        (("import", "export.zip"), "There are: list, undo, chatgpt, claude"),
    ],
)
def test_what_newcomers_type_is_answered_with_the_command_that_they_mean(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """26.D3"""
    with pytest.raises(SystemExit):
        parse(*words)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("meant", [each for each in MEANT.values() if each.startswith("klaw ")])
def test_the_commands_that_are_suggested_exist(meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    for each in meant.split(" or "):
        words = [word for word in each.split()[1:] if not word.startswith(("-", '"')) and not word.isupper()]
        with pytest.raises(SystemExit) as ended:
            parse(*words, "--help")
        assert ended.value.code == 0


def test_a_command_has_all_words_of_its_noun_in_a_process_that_imports_no_more_than_it_needs() -> None:
    for noun in nouns():
        if len({each.handler.__module__ for each in noun.operations}) > 1:
            done = subprocess.run([*KLAW, noun.word, "--help"], cwd=REPOSITORY, capture_output=True, check=True)
            shown = done.stdout.decode().split()
            assert [each.cli for each in noun.operations if each.cli and each.cli not in shown] == [], noun.word


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "kb", "add"])
    assert (ended.value.code, "klaw kb add" in capsys.readouterr().out) == (0, True)
