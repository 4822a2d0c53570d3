"""Questions to the person at the terminal, on standard error: ``--json`` leaves standard output to the report."""

import sys
from collections.abc import Callable, Sequence
from getpass import getpass
from typing import TypeVar

from klaw.domain.text_width import harmless
from klaw.errors import KlawError

FEW = 3
"""At most this many choices stand in one line."""
T = TypeVar("T")


def answer(question: str, default: str, read: Callable[[str], T], choices: Sequence[str] = ()) -> T:
    """What the person says, who is asked until ``read`` raises no KlawError. One of the ``choices``, which may be
    described behind two spaces, can be named by its number. Raises EOFError, KeyboardInterrupt."""
    if len(choices) > FEW:
        tell(f"{question}:", *(f"{at:>3}  {each}" for at, each in enumerate(choices, 1)))
        question = "Its number or name"
    elif choices:
        question += f" ({' or '.join(choices)})"
    while True:
        print(f"{question} [{default}]: " if default else f"{question}: ", end="", file=sys.stderr, flush=True)
        text = input().strip() or default
        if choices and text.isdecimal() and 1 <= int(text[:4]) <= len(choices):
            text = choices[int(text[:4]) - 1].partition("  ")[0]
        try:
            return read(text)
        except KlawError as error:
            tell(f"  {str(error).partition(': ')[2] or error}")


def hidden(question: str) -> str:
    """A text that is not shown while it is typed. Raises EOFError, KeyboardInterrupt."""
    return getpass(f"{question}: ", stream=sys.stderr).strip()


def tell(*lines: str) -> None:
    print(*map(harmless, lines), sep="\n", file=sys.stderr, flush=True)
