"""``tools.exec.allow``: which commands run without a question. A word of a rule is matched against what the command's
word leads to as a path, so that neither ``..`` nor a link leads out of what the rule names.

Any word may be a path, and one that is none (``5``, ``origin``) is one that does not exist: it stays what it is.
Blocks; run it in a thread.
"""

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from klaw.errors import ToolRefused
from klaw.toolbox.files.reading import Pattern

_OPERATORS = frozenset("|&;<>\n")
_SUBSTITUTIONS = ("`", "$(")


def split(command: str) -> tuple[str, ...]:
    """The words of a command, by the quoting rules of POSIX shells.

    Raises:
        ToolRefused: it is empty, has an open quote, or needs a shell. Taken literally it would do something else.
    """
    operator = _shell_syntax(command)
    if operator is not None:
        raise ToolRefused(
            f"There is no shell: {operator} is not understood. Quote it, run the commands one by one, or write "
            "sh -c '…'."
        )
    try:
        words = shlex.split(command)
    except ValueError:
        raise ToolRefused("A quotation mark or a backslash at the end is left open.") from None
    if not words or not words[0]:
        raise ToolRefused("The command is empty.")
    return tuple(words)


def _shell_syntax(command: str) -> str | None:
    """The first operator outside of quotes, or substitution outside of single quotes."""
    quote = ""
    skip = False
    for place, character in enumerate(command):
        if skip:
            skip = False
        elif quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            skip = True
        elif character in "'\"" and quote in ("", character):
            quote = "" if quote else character
        elif command.startswith(_SUBSTITUTIONS, place):
            return "`" if character == "`" else "$(…)"
        elif not quote and character in _OPERATORS:
            return "a line end" if character == "\n" else character
    return None


REST = "**"
"""As the last word of a rule: any further words, or none."""

_WILD = re.compile(r"[*?\[]")
_PARTS = re.compile(r"[=:@,]")
"""A path may begin behind these inside a word: ``--file=notes/x``, ``if=x``, ``@x``."""
_SHORT_OPTION = re.compile(r"-[^-]")


def allowed(words: Sequence[str], rules: Iterable[Sequence[str]], folder: Path) -> bool:
    """Whether a command that would run in ``folder`` (without links) fits one of the rules, word by word."""
    return any(_fits(words, rule, folder) for rule in rules)


def _fits(words: Sequence[str], rule: Sequence[str], folder: Path) -> bool:
    if rule and rule[-1] == REST:
        rule = rule[:-1]
        words = words[: len(rule)]
    if len(words) != len(rule):
        return False
    pairs = list(zip(words, rule, strict=True))
    if words[0] == rule[0] and "/" not in words[0]:
        pairs = pairs[1:]  # a program's name, which is looked for in the system's folders
    return all(_word_fits(*pair, folder) for pair in pairs)


def _word_fits(word: str, rule: str, folder: Path) -> bool:
    wild = _WILD.search(rule)
    if wild is None:
        return word == rule and not any(_is_led_away(each, folder) for each in (word, *_PARTS.split(word)[1:]))
    name = _name(rule[: wild.start()])
    if not word.startswith(name) or (not name and word.startswith("-")):
        return False  # a wildcard stands for no option
    rule, word = rule[len(name) :], word[len(name) :]
    if name.startswith("--") and not name.endswith("="):
        return not {"/", "="} & set(word) and fnmatchcase(word, rule)
    return _path_fits(word, rule, folder)


def _name(literal: str) -> str:
    """What stands before the path, in the part of a rule's word before its wildcard: ``--file=``, ``-f``, ``@``."""
    ends = [part.end() for part in _PARTS.finditer(literal)]
    if ends:
        return literal[: ends[-1]]
    if literal.startswith("--"):
        return literal
    return literal[:2] if _SHORT_OPTION.match(literal) else ""


def _path_fits(word: str, rule: str, folder: Path) -> bool:
    parts = Path(os.path.normpath(folder / rule)).parts
    fixed = next((at for at, part in enumerate(parts) if at >= _length(folder, parts) and _WILD.search(part)), None)
    if fixed is None or "\0" in word:
        return False
    begin = Path(*parts[:fixed])
    if not begin.is_relative_to(folder):
        # Outside of the workspace links are the system's; inside they may be a program's, and the rule means none.
        begin = Path(os.path.realpath(begin))
    real = Path(os.path.realpath(folder / word))
    if not real.is_relative_to(begin):
        return False
    pattern = Pattern(parts[fixed:])
    state = pattern.start()
    for at, part in enumerate(real.parts[len(begin.parts) :]):
        if part.startswith(".") and not _names_hidden(pattern, at):
            return False
        state = pattern.step(state, part)
    return pattern.matches(state)


def _length(folder: Path, parts: Sequence[str]) -> int:
    """How many parts of a rule are the workspace's own name, in which no character is a wildcard."""
    return len(folder.parts) if tuple(parts[: len(folder.parts)]) == folder.parts else 0


def _names_hidden(pattern: Pattern, at: int) -> bool:
    """As in a shell: hidden files are those of rules that write the dot."""
    return at < len(pattern.parts) and pattern.parts[at].startswith(".")


def _is_led_away(word: str, folder: Path) -> bool:
    """Whether a link of the workspace leads a path of it elsewhere: the rule names the file, not what it is now."""
    if not word or "\0" in word:
        return False
    path = Path(os.path.normpath(folder / word))
    return path.is_relative_to(folder) and os.path.realpath(folder / word) != str(path)
