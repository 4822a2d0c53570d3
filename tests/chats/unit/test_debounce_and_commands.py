"""Debounce and slash commands: pure decisions."""

import pytest

from klaw.chats import commands
from klaw.chats.chat import Debounce
from klaw.chats.commands import Command, SlashCommand, UnknownCommand
from klaw.llm.client import TokenCorrection
from klaw.operations.chat import context_lines


@pytest.fixture
def debounce() -> Debounce:
    return Debounce(quiet_s=1.5, longest_s=15)


def test_each_message_restarts_the_timer(debounce: Debounce) -> None:
    assert debounce.due is None
    debounce.add(10)
    assert debounce.due == 11.5
    debounce.add(11)
    assert debounce.due == 12.5


def test_a_steady_stream_is_answered_at_the_latest_after_the_longest_time(debounce: Debounce) -> None:
    for second in range(30):
        debounce.add(float(second))
    assert debounce.due == 15


def test_hurry_is_due_at_once_and_clear_forgets(debounce: Debounce) -> None:
    debounce.hurry(100)
    debounce.add(101)
    assert debounce.due == 100
    debounce.clear()
    assert debounce.due is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/new", SlashCommand(Command.NEW)),
        ("  /STOP ", SlashCommand(Command.STOP)),
        ("/retry please", SlashCommand(Command.RETRY, "please")),
        ("/nonsense", UnknownCommand("/nonsense")),
        ("/etc/hosts", None),
        ("/привет", UnknownCommand("/привет")),
        ("/help", SlashCommand(Command.HELP)),
        ("/Retry  openai/gpt-5 ", SlashCommand(Command.RETRY, "openai/gpt-5")),
        ("/retry модель по умолчанию", SlashCommand(Command.RETRY, "модель по умолчанию")),
        ("/foo is a path I like", None),
        ("hello /new", None),
        ("/", None),
        ("", None),
    ],
)
def test_commands_are_recognised(text: str, expected: object) -> None:
    assert commands.parse(text) == expected


def test_help_names_every_command() -> None:
    text = commands.help_text({"/notes": "list the notes"})
    assert all(word in text for word in [*map(str, Command), "/notes     list the notes"])
    assert commands.parse("/Notes on tea", {"/notes"}) == SlashCommand("/notes", "on tea")


def test_a_typo_with_more_behind_it_is_not_said_to_the_model() -> None:
    others = {"/forget", "/topics", "/models"}
    assert commands.parse("/forgt last", others) == UnknownCommand("/forgt")
    assert commands.parse("/topcs garden gate", others) == UnknownCommand("/topcs")
    for text in ("/etc is a folder", "/home of mine", "/news of today", "/помощь нужна"):
        assert commands.parse(text, others) is None, text


def test_a_typo_is_told_in_one_line_with_what_was_meant() -> None:
    assert commands.unknown_text(UnknownCommand("/hlep")) == (
        "There is no command /hlep. Did you mean /help? /help lists all commands."
    )
    assert commands.unknown_text(UnknownCommand("/" + "я" * 5000)).count("\n") == 0
    assert len(commands.unknown_text(UnknownCommand("/" + "я" * 5000))) < 120


def test_context_text_of_a_chat_without_turns() -> None:
    assert "Nothing was answered" in str(context_lines({"receipt": None}))
    assert "No context was put together" in str(context_lines({"receipt": {}}))  # stopped before


def test_token_correction_learns_and_stays_bounded() -> None:
    correction = TokenCorrection()
    assert correction.of("m") == 1.0
    correction.learn("m", estimated=100, reported=150)
    assert correction.of("m") == 1.5
    correction.learn("m", estimated=100, reported=100)
    assert 1.0 < correction.of("m") < 1.5


def test_a_correction_begins_with_what_was_known_before_a_restart() -> None:
    correction = TokenCorrection()
    correction.learn("m", estimated=100, reported=150)
    correction.seed({"m": 3.0, "old": 1.2, "broken": 1e9})
    assert (correction.of("m"), correction.of("old"), correction.of("broken")) == (1.5, 1.2, 16.0)


def test_after_a_refusal_the_next_prompt_is_shorter() -> None:
    correction = TokenCorrection()
    usable, refused = 6000, 5000
    correction.overflowed("m", refused=refused, usable=usable)
    assert usable / correction.of("m") <= 0.7 * refused + 1
    for _ in range(50):
        correction.overflowed("m", refused=10, usable=usable)
    assert correction.of("m") == 16.0
    assert correction.of("other") == 1.0
