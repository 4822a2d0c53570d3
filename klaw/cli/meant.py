"""What somebody meant who typed a command that there is not. Pure."""

import difflib
from collections.abc import Collection, Sequence

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
    ("task", "tasks", "cron", "remind", "reminder", "reminders"): "klaw schedule",
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


def command(group: str, word: str, commands: Collection[str]) -> str:
    """A sentence with a blank before it, or nothing.

    Args:
        group: the words before it, without the program: ``kb``; empty for none.
        word: that is no command there.
        commands: that are there.
    """
    known = _OF.get(f"{group} {word}".strip())
    if known is not None:
        return f" {known}" if known.endswith(".") else f" Did you mean {known}?"
    close = sorted(each for same in _SAME if word in same for each in same & set(commands))
    close = close or difflib.get_close_matches(word, commands, n=2, cutoff=0.7)
    if close:
        return f" Did you mean {' or '.join(close)}?"
    return f" There are: {', '.join(commands)}." if group and len(commands) <= MOST_LISTED else ""


def option(word: str, options: Sequence[tuple[str, bool]]) -> str:
    """The same for a word where none is expected.

    Args:
        word: that is too much.
        options: of the command that take a value, and whether it is a number.
    """
    named = [name for name, _ in options if name == f"--{word}"]
    fitting = [name for name, number in options if name not in _NOT_GUESSED and number == word.isdecimal()]
    if named:
        return f" Did you mean {named[0]} …?"
    return f" Did you mean {fitting[0]} {word}?" if len(fitting) == 1 else ""
