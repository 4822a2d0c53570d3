"""A command as words: there is no shell, so what is shown to the user, matched and run is the same list. Pure."""

import shlex

_OPERATORS = frozenset("|&;<>\n")
_SUBSTITUTIONS = ("`", "$(")


class BadCommand(ValueError):
    """Why a text is no command; for the model."""


def split(command: str) -> tuple[str, ...]:
    """The words of a command, by the quoting rules of POSIX shells.

    Raises:
        BadCommand: it has no words, an open quote, or something that only a shell understands. Taken literally that
            would do something else than it seems to.
    """
    operator = _shell_syntax(command)
    if operator is not None:
        raise BadCommand(
            f"There is no shell: {operator} is not understood. Quote it, run the commands one by one, or write "
            "sh -c '…'."
        )
    try:
        words = shlex.split(command)
    except ValueError:
        raise BadCommand("A quotation mark or a backslash at the end is left open.") from None
    if not words or not words[0]:
        raise BadCommand("The command is empty.")
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
