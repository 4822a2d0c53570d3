"""A chat as a tree: an edited question, or an answer that was made again, is a branch."""

from collections.abc import Iterable, Mapping


def way(parents: Mapping[str, str | None], made: Mapping[str, float], current: object) -> list[str]:
    """The keys from the root to the leaf that the user saw.

    Args:
        parents: of each key, in the order of the export; None for a root. A missing parent was lost: the key before it
            is taken instead, so that nothing before it is lost too.
        made: when each was made.
        current: a key on the way; without one, the leaf that was made last counts.
    """
    before: dict[str, str | None] = {}
    children: dict[str | None, list[str]] = {}
    last, has_root = None, None in parents.values()
    for key, parent in parents.items():
        before[key] = parent
        if parent is not None and (parent not in parents or parent == key):
            before[key], has_root = last if has_root else None, True
        children.setdefault(before[key], []).append(key)
        last = key
    leaf = current if isinstance(current, str) and current in parents else None
    leaf = leaf or _newest((key for key in parents if key not in children), made) or last
    down: set[str] = set()
    while leaf is not None and leaf not in down and (below := _newest(children.get(leaf, ()), made)) is not None:
        down.add(leaf)
        leaf = below
    found: dict[str, None] = {}
    while leaf is not None and leaf not in found:
        found[leaf] = None
        leaf = before[leaf]
    return [*found][::-1]


def _newest(keys: Iterable[str], made: Mapping[str, float]) -> str | None:
    newest = None
    for key in keys:
        if newest is None or made.get(key, 0.0) >= made.get(newest, 0.0):
            newest = key
    return newest
