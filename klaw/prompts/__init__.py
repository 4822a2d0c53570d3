"""Prompt texts as Markdown files."""

from functools import cache
from importlib import resources


@cache
def prompt(name: str) -> str:
    """The text of ``<name>.md`` of this folder."""
    return (resources.files(__name__) / f"{name}.md").read_text(encoding="utf-8").strip()
