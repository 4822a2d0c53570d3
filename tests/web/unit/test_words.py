"""The page in Russian."""

import ast
import json
import re
from pathlib import Path

import pytest

import klaw
import klaw.web
from klaw.chats.commands import meanings
from klaw.domain.fact import Fact
from klaw.domain.knowledge import Base
from klaw.domain.notes import Column, Edit, notes
from klaw.domain.person import Person, SpokenOf
from klaw.domain.task import Task, TriggerInput
from klaw.domain.tool_calls import TITLED, in_words
from klaw.domain.topic import Topic
from klaw.operations.slash import OperationCommands

STATIC = Path(klaw.web.__file__).parent / "static"
RUSSIAN = {text: words for path in STATIC.glob("ru*.json") for text, words in json.loads(path.read_text()).items()}
CODE = "\n".join(path.read_text() for path in STATIC.rglob("*.js"))
HOLE = re.compile(r"\{(\w+)\}")
MADE = re.compile(r"(1|\{count\}) \w+|It was (recalled|found and cut): .*|no time was .*|\{key\}: the environment .*")
"""Numbers of things, and sentences that are put together of several texts."""

TEXT = r'"((?:[^"\\]|\\.)+)"'
TOLD = (
    rf"\b(?:t|(?:mainB|b)utton|act|heading|section|searchField|term|formDialog|askFor|done|showChanges)\({TEXT}",
    rf'\b(?:iconButton|backTo)\("[^"]+", {TEXT}',
    rf"\[{TEXT}, \(\) =>",
    rf"\bdeed: {TEXT}",
)
"""How the code gives a text to what translates it."""


def test_what_the_page_says_has_russian_words():
    """Texts that are made of others are told by the views, so they are not looked for here."""
    said = {text for form in TOLD for text in re.findall(form, CODE)}
    assert said - RUSSIAN.keys() == set()


@pytest.mark.parametrize("cls", [Fact, Person, SpokenOf, Base, Topic, Task, TriggerInput])
def test_what_the_page_makes_of_a_class_has_russian_words(cls):
    fields = [text for note in notes(cls, Edit).values() for text in (note.title, note.help)]
    columns = [note.title or name for name, note in notes(cls, Column).items()]
    assert {*filter(None, fields), *columns} - RUSSIAN.keys() == set()


def test_commands_and_calls_of_tools_have_russian_words():
    calls = {in_words(name, "{}")[0] for name in TITLED}
    assert {*calls, *meanings(OperationCommands().meanings).values()} - RUSSIAN.keys() == set()


def test_what_is_filled_in_is_named_alike():
    for english, russian in RUSSIAN.items():
        names = HOLE.findall(english)
        assert len(set(names)) == len(names), english
        assert set(HOLE.findall(russian)) <= set(names), english


CODE_WORDS = re.compile(
    r"\b(segments?|windows?|turns?|archivist|degraded|coverage|uncovered|pending|drawn|bound)\b"
    r"|сегмент|архивариус|\bокн[оаеу]м?\b|деградир",
    re.IGNORECASE,
)
ORDINARY = re.compile(r"in turn|по очереди|context window", re.IGNORECASE)
"""Where such a word is one that people use."""
CODES = {"turns", "in_window"}
"""Of receipts and sums, which are translated by their code."""


def test_people_are_told_nothing_in_words_of_the_code():
    told = {text: words for text, words in RUSSIAN.items() if text not in CODES and not text.startswith("#")}
    assert [text for text, words in told.items() if CODE_WORDS.search(ORDINARY.sub("", f"{text} {words}"))] == []
    shown = set(re.findall(r'(?<!import\()"((?:[A-Z]|[a-z]+ )[^"\\$<>{}]*)"', CODE))
    assert [text for text in shown if CODE_WORDS.search(ORDINARY.sub("", text))] == []


def test_what_is_undone_is_not_called_what_is_restored():
    for one, other in (("Undo", "Restore"), ("Delete", "Remove"), ("Undo", "Cancel"), ("Forget", "Delete")):
        assert RUSSIAN[one] != RUSSIAN[other]


def texts_of_the_server():
    """All texts of its code, in the parts between what is filled in."""
    found = set()
    for path in Path(klaw.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [each.value if isinstance(each, ast.Constant) else "\0" for each in node.values]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = [node.value]
            else:
                continue
            if sum(map(str.isalpha, "".join(parts))) >= 2:
                found.add(tuple("".join(parts).split("\0")))
    return found


def looks_like(text, parts):
    """Whether it is this one with something filled in."""
    return all(each in text for each in parts) and re.fullmatch(".*".join(map(re.escape, parts)), text, re.DOTALL)


def test_no_word_is_left_of_a_text_that_is_gone():
    server = texts_of_the_server()
    filled_in = [parts for parts in server if len(parts) > 1]
    begin = "\0".join(parts[0] for parts in server)
    gone = []
    for text in json.loads((STATIC / "ru.json").read_text()):
        if json.dumps(text, ensure_ascii=False) in CODE or f"{text}:" in CODE or MADE.fullmatch(text):
            continue
        filled = HOLE.sub("7", text.removeprefix("#").replace("timed out", "timed_out"))
        if (filled,) in server or f": {filled}" in begin:  # the second follows a field's name
            continue
        if not any(looks_like(filled, parts) for parts in filled_in):
            gone.append(text)
    assert gone == []
