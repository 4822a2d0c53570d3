"""List class names of klaw/ that stand for more than one thing: names with two or more homes, and bare participles
("Told", "Met"), which say what was done instead of what the class is. With ``--most N``: exit code 1 if more than N
names have two homes, or if any is a participle."""

import argparse
import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
IRREGULAR = re.compile(
    "Asked|Become|Been|Begun|Bound|Bought|Brought|Built|Caught|Chosen|Come|Done|Drawn|Driven|Fallen|Fed|Felt|Forgot|"
    "Forgotten|Found|Given|Gone|Had|Heard|Held|Hidden|Kept|Known|Laid|Left|Lent|Lost|Made|Meant|Met|Paid|Put|Read|Said|"
    "Seen|Sent|Shown|Shut|Sold|Sought|Spent|Spoken|Stood|Stuck|Taken|Taught|Thought|Told|Understood|Won|Worn|Written"
)
REGULAR = re.compile("[A-Z][a-z]+ed")
NOUNS = frozenset({"Feed", "Seed"})


def homes() -> dict[str, list[str]]:
    """The modules of each class, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "klaw").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def is_participle(name: str) -> bool:
    """Whether a name is one word, and that a participle."""
    bare = name.lstrip("_")
    return bare not in NOUNS and bool(IRREGULAR.fullmatch(bare) or REGULAR.fullmatch(bare))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int)
    most = parser.parse_args().most
    found = homes()
    twice = {name: places for name, places in found.items() if len(places) > 1}
    bare = {name: places for name, places in found.items() if is_participle(name)}
    for title, names in (("two or more homes", twice), ("participles", bare)):
        print(f"{title}: {len(names)}")
        for name, places in sorted(names.items()):
            print(f"  {name}: {', '.join(places)}")
    if most is not None and (len(twice) > most or bare):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
