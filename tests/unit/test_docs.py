"""The pages for people: links lead somewhere, commands exist, and no text names a machine or a package registry."""

import json
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from klaw.chats.commands import Command
from klaw.cli.main import parser
from klaw.config.load import parse
from klaw.domain.core_memory import render as render_core_memory
from klaw.domain.text import CORE_MEMORY_HEADER, quoted
from klaw.operations.slash import OperationCommands
from tests.support.repository import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def _name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def _prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Git hosts make them."""
    titles = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_lead_to_files_and_headings(page):
    """Every link without a scheme names a file of the repository and, after #, a heading in it."""
    broken = []
    for target in _LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / unquote(path)).resolve() if path else page
        inside = file == REPOSITORY or REPOSITORY in file.parents
        if not inside or not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:sudo -u \w+ )?(?:\S*/)?klaw ([a-z-].*)")


def _command_lines(page: Path) -> list[str]:
    """What follows ``klaw`` wherever a page shows or mentions a command: in shell blocks and in inline code."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line[2:]
        for language, block in _FENCE.findall(text)
        if language == "console"
        for line in block.splitlines()
        if line.startswith(("$ ", "# "))
    ]
    lines += _CODE.findall(_FENCE.sub("", text))
    parts = [part.strip() for line in lines for part in re.split(r"\||&&|;", line.split(" #")[0])]
    return [found.group(1) for part in parts if (found := _COMMAND.match(part))]


_whole_parser = cache(parser)


def _is_accepted(words: list[str]) -> bool:
    try:
        _whole_parser().parse_args(words)
    except SystemExit as ended:
        return not ended.code
    return True


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_named_commands_exist(page):
    """Each ``klaw …`` of a page is accepted by the command line's parser, options and all."""
    commands = {line: shlex.split(re.split(r"[<>…]", line)[0]) for line in _command_lines(page)}
    # A command that is mentioned may lack its arguments (`klaw token add`, `klaw config set`).
    refused = [line for line, words in commands.items() if not any(_is_accepted([*words, *"xx"[:n]]) for n in range(3))]
    assert not refused


def test_readme_names_every_command():
    """A newcomer finds each command in the README."""
    named = {line.split()[0] for line in _command_lines(REPOSITORY / "README.md")}
    wanted = "serve chat models status actors receipt recall-replay why doctor reindex config token schedule runs"
    assert set(wanted.split()) <= named


def test_getting_started_names_every_slash_command():
    """The table of slash commands is complete."""
    text = (REPOSITORY / "docs" / "getting-started.md").read_text(encoding="utf-8")
    assert all(f"`{word}`" in text for word in [*map(str, Command), *OperationCommands().meanings])


def test_shown_configurations_are_valid():
    """The first engine.yaml of models.md can be used as it stands."""
    text = (REPOSITORY / "docs" / "models.md").read_text("utf-8")
    block = next(block for language, block in _FENCE.findall(text) if language == "yaml")
    config, warnings = parse(block, {"ANTHROPIC_API_KEY": "secret", "ZAI_API_KEY": "secret"})
    assert config.routing.default_provider in config.providers
    assert not warnings


def test_the_core_memory_example_gives_the_text_that_is_shown():
    """getting-started.md shows core_memory.json and what the model sees of it."""
    blocks = _FENCE.findall((REPOSITORY / "docs" / "getting-started.md").read_text("utf-8"))
    (example,) = [text for language, text in blocks if language == "json" and "people" in text]
    (shown,) = [text for _, text in blocks if text.startswith(CORE_MEMORY_HEADER)]
    assert shown.strip() == f"{CORE_MEMORY_HEADER}\n{quoted(render_core_memory(json.loads(example)))}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_named_tests_exist(page):
    """A test that a page points at, as `path` or `path::name`, is there."""
    missing = []
    for path, name in _TEST.findall(_prose(page)):
        file = REPOSITORY / path
        if not file.is_file() or (name and f"def {name}(" not in file.read_text(encoding="utf-8")):
            missing.append(f"{path}::{name}" if name else path)
    assert not missing


def _tracked_texts() -> list[Path]:
    """Every text file that Git tracks or would track; without Git all files outside hidden folders."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=True,
        ).stdout.decode()
        files = [REPOSITORY / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [
            path
            for path in REPOSITORY.rglob("*")
            if not any(part[0] == "." for part in path.relative_to(REPOSITORY).parts)
        ]
    return [path for path in files if path.is_file() and path != Path(__file__)]


_MACHINE = re.compile(
    r"(?<![\w.$}~-])/(?:work|root)/|"  # folders of the machine on which it was written
    r"\b(?:[\w-]+\.)*(?:pypi\.org|pythonhosted\.org|huggingface\.co|hf\.co|npmjs\.(?:com|org)|crates\.io)\b|"
    r"--(?:extra-)?index-url\b|--find-links\b"
)


def test_no_machine_paths_and_no_registry_hosts():
    """No text in the repository depends on the machine where it was written, or on one package index."""
    found = []
    for path in _tracked_texts():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(REPOSITORY)}: {match.group()}" for match in _MACHINE.finditer(text)]
    assert not found


def test_configurations_of_the_models_page_are_valid():
    """Every route and provider that the page shows can be used as it stands."""
    blocks = [
        text
        for language, text in _FENCE.findall((REPOSITORY / "docs/models.md").read_text("utf-8"))
        if language == "yaml"
    ]
    assert len(blocks) == 4
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "ZAI_API_KEY", "CLOUD_API_KEY"), "secret")
    for block in blocks:
        _, warnings = parse(block, keys)
        assert not warnings
