"""The tree of actors as the admin socket shows it, built from flat reports. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from klaw.actor.vitals import ActorReport
from klaw.llm.slots import SlotsReport

ROOT = "supervisor"
GATEWAY = "gateway"
SLOTS = "llm.slots"


def actor_tree(
    reports: Sequence[ActorReport], slots: SlotsReport | None, connections: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Nest actors by their ``parent``, else by the dotted prefix of their name.

    A parent that is no actor (``chats``, ``store`` ...) appears as a node of kind ``group``. Connections hang below
    ``gateway``; the LLM's slots stand as a node of kind ``slots`` below ``llm``.

    Args:
        reports: all actors in start order.
        slots: of the LLM.
        connections: one mapping each, with an ``id``.

    Returns:
        The root, of kind ``group``. Every node has ``name``, ``kind`` (actor, group, slots, connection) and
        ``children``; an actor also all of ``ActorReport`` and its ``mailbox`` (None without one).
    """
    root = _group(ROOT)
    nodes: dict[str, dict[str, Any]] = {report.name: _actor(report) for report in reports}
    parents: dict[str, str | None] = {report.name: _parent_of(report.name, report.parent) for report in reports}
    if slots is not None:
        nodes[SLOTS] = {"name": SLOTS, "kind": "slots", **attrs.asdict(slots), "children": []}
        parents[SLOTS] = _parent_of(SLOTS, None)
    for connection in connections:
        # Named by a prefix that no actor has: an id is not a name.
        name = f"connection {connection['id']}"
        nodes[name] = {"name": name, "kind": "connection", **connection, "children": []}
        parents[name] = GATEWAY
    _add_groups(nodes, parents)
    for name, node in nodes.items():
        parent = parents[name]
        (nodes[parent] if parent is not None else root)["children"].append(node)
    return root


def _parent_of(name: str, parent: str | None) -> str | None:
    """The given parent, else the part before the dot of a plain dotted name (chat names may hold dots and spaces)."""
    if parent is not None:
        return parent
    prefix, dot, _ = name.rpartition(".")
    return prefix if dot and " " not in name else None


def _add_groups(nodes: dict[str, dict[str, Any]], parents: dict[str, str | None]) -> None:
    """Add parents that are no actors, each before its first child."""
    missing: Iterable[str] = [parent for parent in parents.values() if parent is not None and parent not in nodes]
    for name in dict.fromkeys(missing):
        nodes[name] = _group(name)
        parents[name] = None


def _group(name: str) -> dict[str, Any]:
    return {"name": name, "kind": "group", "children": []}


def _actor(report: ActorReport) -> dict[str, Any]:
    return {**attrs.asdict(report), "kind": "actor", "state": report.state.value, "children": []}
