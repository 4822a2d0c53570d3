"""A tool call in words: what was done, and the argument that says most. Pure."""

import json
from collections.abc import Mapping

MAX_READ = 20_000
"""Characters of arguments that are read; longer ones are not summarised."""
MAX_ABOUT = 120
TITLED: Mapping[str, tuple[str, str]] = {
    "current_time": ("Looked at the clock", "zone"),
    "file_glob": ("Looked for files", "pattern"),
    "file_list": ("Listed files", "path"),
    "file_patch": ("Changed a file", "path"),
    "file_read": ("Read a file", "path"),
    "file_write": ("Wrote a file", "path"),
    "history_search": ("Searched earlier messages", "query"),
    "host_exec": ("Ran a command", "command"),
    "memory_core_delete": ("Changed core memory", "key"),
    "memory_core_get": ("Read core memory", ""),
    "memory_core_update": ("Changed core memory", "key"),
    "memory_save": ("Saved to memory", "text"),
    "memory_search": ("Searched memory", "query"),
    "schedule_add": ("Added a task", "name"),
    "schedule_list": ("Listed tasks", ""),
    "send_message": ("Sent a message", "chat"),
    "skill_load": ("Read a skill", "name"),
    "subagent_spawn": ("Started a subagent", "prompt"),
    "web_fetch": ("Read a web page", "url"),
    "web_search": ("Searched the web", "query"),
}


def in_words(name: str, arguments: str) -> tuple[str | None, str | None]:
    """What a call of a tool of Klaw does, None for others; and its main argument in one line, if it has any.

    Args:
        arguments: as the model wrote them, meant to be JSON.
    """
    title, main = TITLED.get(name, (None, None))
    try:
        given = json.loads(arguments) if len(arguments) <= MAX_READ else None
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return title, None
    texts = [given.get(main)] if main is not None else list(given.values())
    about = next((each for each in texts if isinstance(each, str)), "")
    line = "".join(filter(lambda each: each.isprintable(), " ".join(about[: 2 * MAX_ABOUT].split())))
    return title, (line if len(line) <= MAX_ABOUT else f"{line[: MAX_ABOUT - 1]}…") or None
