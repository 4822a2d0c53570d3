"""Check the structure that docs/architecture.md promises: imports point down the layers and never in a circle, pure
modules stay pure, modules stay small, and only the store imports apsw. Prints every violation; exit code 1 if there is
any."""

import ast
import sys
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "klaw"

LAYERS = (
    {"errors"},
    {"convert", "atomic_file", "heap", "json_input", "json_schema"},
    {"actor", "domain"},
    {"config", "guarded_http"},
    {"models", "prompts", "web"},
    {"store"},
    {"backup", "imports"},
    {"core"},
    {"llm"},
    {"memory", "context", "toolbox", "knowledge"},
    {"agent"},
    {"chats", "runs"},
    {"health", "notices", "wire"},
    {"operations"},
    {"gateway"},
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
    "json_input.py",
    "json_schema.py",
    "actor/backoff.py",
    "domain",
    "context",
    "chats/debounce.py",
    "chats/commands.py",
    "knowledge/citations.py",
    "knowledge/follow_up.py",
    "memory/recall/rank.py",
    "memory/recall/gate.py",
    "memory/recall/stopwords.py",
    "memory/recall/dates.py",
    "memory/recall/excerpt.py",
    "memory/recall/reasons.py",
    "memory/search/search_order.py",
    "memory/summaries/choosing.py",
    "memory/summaries/rendering.py",
    "doctor/judge.py",
    "client/markdown.py",
    "client/screen.py",
    "client/transcript.py",
    "knowledge/reading/passages.py",
    "knowledge/reading/report.py",
    "memory/embed/passage.py",
    "memory/search/format_results.py",
    "memory/facts/chunking.py",
    "memory/topics/splitter.py",
    "memory/topics/texts.py",
    "operations/operation.py",
    "web/markdown.py",
    "wire",
    "gateway/admission.py",
    "toolbox/calls.py",
    "agent/claims.py",
    "toolbox/spec.py",
    "toolbox/files/text.py",
    "service/units.py",
    "setup/answers.py",
    "toolbox/web/convert.py",
    "llm/types.py",
    "llm/providers/adapt.py",
    "llm/providers/anthropic.py",
    "llm/providers/dialect.py",
    "llm/providers/habits.py",
    "llm/providers/openai.py",
    "llm/providers/refusals.py",
    "llm/providers/thinking.py",
    "runs/context.py",
    "runs/cron.py",
    "runs/drafting.py",
    "runs/due.py",
    "runs/limits.py",
    "runs/triggers.py",
    "llm/repetition.py",
    "llm/budget.py",
)
IMPURE_IMPORTS = {"trio", "apsw", "httpx2", "trio_websocket"}

HARD_LIMIT = 500


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
    if lines > HARD_LIMIT:
        yield f"{relative}: {lines} lines, the limit is {HARD_LIMIT}"


def circle(paths: Sequence[Path]) -> Iterator[str]:
    """A circle of modules that import each other, if there is one; imports for types and inside functions count too."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    try:
        TopologicalSorter({name: names.keys() & set(imported(path)) for name, path in names.items()}).prepare()
    except CycleError as error:
        yield f"imports in a circle: {' <- '.join(error.args[1])}"


def main() -> int:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    found = [*circle(paths), *(problem for path in paths for problem in problems_of(path))]
    for problem in found:
        print(problem)
    print(f"{len(found)} problems in the structure" if found else "the structure holds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
