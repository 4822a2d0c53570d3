"""Check the structure that docs/architecture.md promises: imports point down the layers, and down the storeys of the
store, and never in a circle; pure modules stay pure; modules and folders stay small; only the store imports apsw, and
only migrations and kinds name the tables of what Klaw keeps. Prints every violation; exit code 1 if there is any."""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "klaw"

LAYERS = (
    {"errors"},
    {"convert", "atomic_file", "json_schema"},
    {"actor", "domain"},
    {"bounded_body", "config", "guarded_http"},
    {"models", "prompts", "web"},
    {"store"},
    {"backup", "imports"},
    {"core", "upkeep"},
    {"settings"},
    {"llm"},
    {"memory", "context", "toolbox", "knowledge"},
    {"agent"},
    {"chats", "runs"},
    {"health", "wire"},
    {"operations"},
    {"gateway"},
    {"channels"},
    {"api"},
    {"admin", "client", "doctor", "service", "setup"},
    {"app"},
    {"cli"},
    {"__main__"},
)
"""Low to high. A package imports its own layer's packages only where SAME_LAYER allows it."""

SAME_LAYER = {
    ("actor", "domain"),
    ("json_schema", "convert"),
    ("memory", "context"),
    ("toolbox", "context"),
    ("toolbox", "memory"),
    ("knowledge", "memory"),
    ("knowledge", "context"),
    ("knowledge", "toolbox"),
    ("chats", "runs"),
}
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

PURE = (
    "convert.py",
    "json_schema.py",
    "actor/backoff.py",
    "domain",
    "context",
    "channels/markup.py",
    "channels/matrix_events.py",
    "channels/matrix_html.py",
    "channels/telegram_updates.py",
    "chats/commands.py",
    "knowledge/citations.py",
    "knowledge/follow_up.py",
    "knowledge/passage_features.py",
    "memory/recall/message_features.py",
    "memory/recall/ranker.py",
    "memory/recall/token_overlap.py",
    "memory/recall/gate.py",
    "memory/recall/query.py",
    "memory/recall/excerpt.py",
    "memory/recall/reasons.py",
    "memory/recall/sessions.py",
    "memory/summaries/choosing.py",
    "doctor/judge.py",
    "client/markdown.py",
    "client/screen.py",
    "client/transcript.py",
    "knowledge/reading/passages.py",
    "memory/embed/passage.py",
    "memory/search/format_results.py",
    "memory/topics/splitter.py",
    "memory/topics/texts.py",
    "operations/lines.py",
    "operations/operation.py",
    "web/markdown.py",
    "wire",
    "gateway/connection_limits.py",
    "agent/claims.py",
    "agent/linked_answer.py",
    "toolbox/search_services.py",
    "toolbox/spec.py",
    "toolbox/web_sources.py",
    "toolbox/files/text.py",
    "setup/answers.py",
    "toolbox/html_text.py",
    "llm/types.py",
    "llm/providers/adapt.py",
    "llm/providers/anthropic.py",
    "llm/providers/dialect.py",
    "llm/providers/openai.py",
    "llm/providers/refusals.py",
    "llm/providers/thinking.py",
    "runs/task_input.py",
    "runs/due.py",
    "runs/limits.py",
    "runs/triggers.py",
    "llm/repetition.py",
    "llm/budget.py",
)
IMPURE_IMPORTS = {"trio", "apsw", "httpx2", "trio_websocket"}

STOREYS = (
    {"rows", "changes", "engine", "migrations", "attachments", "originals"},
    {"kinds"},
    {"search"},
    {"forget"},
    {"rebuild"},
    {"backup_mark", "store"},
)
"""Of klaw/store, low to high; what is in a storey may import its own and what is below."""
STOREY = {name: rank for rank, storey in enumerate(STOREYS) for name in storey}

TABLE = re.compile(r"CREATE (?:TABLE|VIEW)(?: IF NOT EXISTS)? (\w+)")
SEARCHED = re.compile(r"vec_\w+|\w+_search|token_codes|message_traits|meta")
"""Tables of indexes, and of settings: of no noun."""
NAMED = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+(\w+)")
CALLS_WITH_TABLES = {"Rows", "insert", "upsert", "index_row", "unindex_row", "table", "full_text", "entries"}

MOST_LINES = 400
MOST_IN_FOLDER = 24
FULLER = {"domain"}
"""Folders with more modules; to become none."""
MOST_MODULES = 552
"""Python files below klaw/."""


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def station(path: Path) -> str:
    """The package or top-level module of klaw that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def problems_of(path: Path) -> Iterator[str]:
    relative = path.relative_to(PACKAGE)
    own = station(path)
    if own not in RANK:
        yield f"{relative}: {own} is in no layer of tools/check_layers.py"
        return
    if own == "store":
        yield from storey_problems(path)
    pure = any(str(relative) == name or name in str(relative.parent).split("/")[:1] for name in PURE)
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top == "klaw" and rest:
            other = rest.split(".")[0]
            if other in RANK and other != own:
                upward = RANK[other] > RANK[own]
                sideways = RANK[other] == RANK[own] and (own, other) not in SAME_LAYER
                if upward or sideways:
                    yield f"{relative}: {own} must not import {other}"
        if top == "apsw" and own != "store":
            yield f"{relative}: only klaw/store imports apsw"
        if pure and top in IMPURE_IMPORTS:
            yield f"{relative}: a pure module must not import {top}"
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines > MOST_LINES:
        yield f"{relative}: {lines} lines, the limit is {MOST_LINES}"


def storey_problems(path: Path) -> Iterator[str]:
    """Imports of a module of the store that point up its storeys."""
    relative = path.relative_to(PACKAGE / "store")
    own = relative.parts[0].removesuffix(".py")
    if own not in STOREY:
        yield f"store/{relative}: {own} is in no storey of tools/check_layers.py"
        return
    for name in set(imported(path)):
        parts = name.split(".")
        if parts[:2] == ["klaw", "store"] and len(parts) > 2 and STOREY.get(parts[2], 0) > STOREY[own]:
            yield f"store/{relative}: {own} must not import {name}"


def tables() -> set[str]:
    """The tables and views of what Klaw keeps; without indexes."""
    scripts = "".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "store/migrations").glob("*.sql"))
    return {name for name in TABLE.findall(scripts) if not SEARCHED.fullmatch(name)}


def named_tables(path: Path) -> Iterator[str]:
    """What stands in a module where SQL names a table."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from NAMED.findall(node.value)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in CALLS_WITH_TABLES:
                yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def table_problems(paths: Sequence[Path]) -> Iterator[str]:
    """Modules that name a noun's table and are no kind's."""
    known = tables()
    for path in paths:
        name, found = str(path.relative_to(PACKAGE)), sorted(known.intersection(named_tables(path)))
        if found and not name.startswith("store/kinds/"):
            yield f"{name}: only migrations and kinds name {', '.join(found)}"


def size_problems(paths: Sequence[Path]) -> Iterator[str]:
    """Folders with too many modules, and too many in all."""
    folders = Counter(str(path.parent.relative_to(PACKAGE)) for path in paths)
    for folder, count in folders.items():
        if count > MOST_IN_FOLDER and folder not in FULLER:
            yield f"{folder}: {count} modules, the limit is {MOST_IN_FOLDER}"
    if (count := len(list(PACKAGE.rglob("*.py")))) > MOST_MODULES:
        yield f"{count} modules, the limit is {MOST_MODULES}"


def circle(paths: Sequence[Path]) -> Iterator[str]:
    """A circle of modules that import each other, if there is one; imports for types and inside functions count too."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    try:
        TopologicalSorter({name: names.keys() & set(imported(path)) for name, path in names.items()}).prepare()
    except CycleError as error:
        yield f"imports in a circle: {' <- '.join(error.args[1])}"


def main() -> int:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    found = [*circle(paths), *table_problems(paths), *size_problems(paths)]
    found += [problem for path in paths for problem in problems_of(path)]
    for problem in found:
        print(problem)
    print(f"{len(found)} problems in the structure" if found else "the structure holds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
