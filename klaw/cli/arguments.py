"""What all of Klaw's command lines share: a parser that asks "did you mean", and arguments."""

import argparse
import difflib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

MAX_WORD = 64
MAX_DIGITS = 7
_CHOICE = re.compile(r"invalid choice: '(.{1,64}?)' \(choose from")


class Parser(argparse.ArgumentParser):
    """Names the commands that are like a mistyped one."""

    commands: Mapping[str, object] = {}
    group: Any = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:  # type: ignore[override]  # argparse has overloads
        """Names the options that are like an unknown one, or might take a word too many. What stands behind ``--`` goes
        to the last argument, also if options stand before."""
        last, behind = next((each for each in self._actions if each.nargs == "*" and not each.option_strings), None), []
        if args and last is not None and "--" in args:
            args, behind = args[: args.index("--")], args[args.index("--") + 1 :]
        found, rest = super().parse_known_args(args, namespace)
        if last is not None and behind:
            setattr(found, last.dest, [*getattr(found, last.dest, []), *behind])
        unknown = next((each.partition("=")[0] for each in rest if each.startswith("-")), None)
        if unknown is not None and len(unknown) <= MAX_WORD:
            close = difflib.get_close_matches(unknown, self._option_string_actions, n=2)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            self.error(f"there is no option {unknown}.{hint} `{self.prog} --help` lists the options")
        if rest:
            word = rest[0][:MAX_WORD]
            valued = [each for each in self._actions if each.option_strings and each.nargs != 0]
            told = [(each.option_strings[0], each.metavar == "N") for each in valued if each.help != argparse.SUPPRESS]
            hint = meant_option(word, told)
            self.error(f"unexpected {word!r}.{hint} `{self.prog} --help` shows the arguments")
        return found, rest

    def error(self, message: str) -> NoReturn:
        found = _CHOICE.search(message)
        if found is not None and self.commands and "COMMAND" in message:
            hint = meant_command(self.prog.partition(" ")[2], found[1], self.commands)
            if found[1] == "list" and self.get_default("command") is not None:
                hint = f" `{self.prog}` alone lists them."
            message = f"there is no command {found[1]!r}.{hint} `{self.prog} --help` lists the commands"
        super().error(message)

    def new_group(self) -> Any:
        made = self.group = self.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
        self.commands = made.choices
        return made


def add_home(parser: argparse.ArgumentParser, default: Any = argparse.SUPPRESS) -> None:
    """``--home`` may stand before or after any command's name; only the root has a default for it."""
    text = "keep everything under this folder (default: the XDG folders)"
    parser.add_argument("--home", metavar="DIR", default=default, help=text)


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config``, where the command reads the configuration."""
    text = "the configuration file (default: engine.yaml of the home)"
    parser.add_argument("--config", metavar="FILE", type=there, help=text)


class Missing(argparse.ArgumentTypeError, ValueError):
    """A file is missing: for argparse, and for the arguments of operations."""


def there(text: str) -> str:
    """A file that exists: with a mistyped name the defaults would be taken in silence."""
    if not os.path.exists(text):  # noqa: PTH110  pathlib is not loaded for the commands that need no path
        raise Missing("there is no such file")
    return text


def port(text: str) -> int:
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) > 65_535:
        raise argparse.ArgumentTypeError("must be a number from 0 to 65535")
    return int(text)


# -- what a mistyped command means -------------------------------------------------------------------------------------

MOST_LISTED = 12
_SAME = (
    {"add", "create", "make", "new"},
    {"delete", "remove", "rm", "del", "revoke", "forget", "undo"},
    {"list", "ls", "show", "get", "open", "view"},
    {"edit", "set", "change", "update", "rename"},
    {"install", "pull", "download"},
    {"search", "find"},
)
"""Words of commands that stand for one another."""
MEANT = {
    ("remember", "memorize", "note", "learn"): 'klaw facts add "…"',
    ("ask", "say", "tell", "talk"): 'klaw chat "…"',
    ("version",): "klaw --version",
    ("start", "run", "up"): "klaw serve",
    ("stop", "down", "restart"): "Ctrl-C ends klaw serve, and systemctl stop klaw the service.",
    ("install",): "klaw service install",
    ("uninstall",): "klaw service uninstall",
    ("logs",): "klaw service logs",
    ("upgrade",): "klaw update",
    ("setup", "configure", "onboard"): "klaw init",
    ("users", "user", "login", "tokens"): "klaw token",
    ("restore",): "klaw backup restore",
    ("task", "tasks", "cron"): "klaw schedule",
    ("reminder", "reminders"): "klaw remind",
    ("list", "ls", "history", "sessions"): "klaw chats list",
    ("delete", "remove", "rm"): "klaw forget or klaw chats delete",
    ("knowledge", "rag", "docs", "documents", "upload"): "klaw kb add",
    ("web", "page", "ui", "dashboard", "open", "browser"): "Open http://127.0.0.1:8181/ in a browser.",
    ("settings", "set"): "klaw config show",
    ("chats new", "chats create", "chats add"): "klaw chat --chat NAME",
    ("models use", "models add", "models set", "models switch", "models default"): (
        "klaw init --provider NAME --model NAME"
    ),
    ("config set", "config edit"): "Edit engine.yaml, then: klaw config check.",
    ("config get", "config list"): "klaw config show",
    ("facts remember", "memory add"): 'klaw facts add "…"',
}
"""Words of newcomers, and a command, or a sentence."""
_OF = {word: meant for words, meant in MEANT.items() for word in words}
_NOT_GUESSED = frozenset(
    {"--home", "--json", "--user", "--to", "--from", "--config", "--url", "--token", "--watch", "--yes"}
)


def meant_command(group: str, word: str, commands: Collection[str]) -> str:
    """What a mistyped command of a group (``kb``; or empty) means: a sentence with a space before it, or nothing."""
    known = _OF.get(f"{group} {word}".strip())
    if known is not None:
        return f" {known}" if known.endswith(".") else f" Did you mean {known}?"
    close = sorted(each for same in _SAME if word in same for each in same & set(commands))
    close = close or difflib.get_close_matches(word, commands, n=2, cutoff=0.7)
    if close:
        return f" Did you mean {' or '.join(close)}?"
    return f" There are: {', '.join(commands)}." if group and len(commands) <= MOST_LISTED else ""


def meant_option(word: str, options: Sequence[tuple[str, bool]]) -> str:
    """The same for a word too many. ``options``: those with a value, and whether that is a number."""
    named = [name for name, _ in options if name == f"--{word}"]
    fitting = [name for name, number in options if name not in _NOT_GUESSED and number == word.isdecimal()]
    if named:
        return f" Did you mean {named[0]} …?"
    return f" Did you mean {fitting[0]} {word}?" if len(fitting) == 1 else ""
