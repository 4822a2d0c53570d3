"""Sources that are graphs, and a home with an RDF file in it."""

import shutil
from pathlib import Path
from typing import Any

from klaw.config.tools import EndpointConfig, KnowledgeConfig, SparqlConfig
from klaw.domain.knowledge import BaseId, Source, SourceId, SourceKind
from klaw.domain.names import LOCAL_USER, UserId
from klaw.knowledge.graph.graphs import Graphs
from tests.support.repository import REPOSITORY

PEOPLE = REPOSITORY / "tests" / "data" / "graph" / "people.ttl"
"""A few people and cities with labels in English and Russian."""


def source(
    kind: SourceKind, where: str = "", *, known_as: str = "s1", name: str = "people.ttl", user: str = LOCAL_USER
) -> Source:
    """A source that is a graph."""
    return Source(
        id=SourceId(known_as),
        user=UserId(user),
        base=BaseId("b"),
        kind=kind,
        name=name,
        where=where,
        sha256="0" * 64,
        added_by=user,
        created_at="2026-11-23T06:00:00Z",
        updated_at="2026-11-23T06:00:00Z",
    )


def file_source(
    home: Path, content: bytes | Path = PEOPLE, *, known_as: str = "s1", name: str = "people.ttl"
) -> Source:
    """A file that was uploaded."""
    kept = home / "knowledge" / known_as
    kept.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copy(content, kept)
    else:
        kept.write_bytes(content)
    return source(SourceKind.RDF, known_as=known_as, name=name)


def graphs(
    home: Path, *, timeout_s: float = 60.0, endpoints: dict[str, EndpointConfig] | None = None, **more: Any
) -> Graphs:
    """All graphs of a home."""
    config = KnowledgeConfig(sparql=SparqlConfig(timeout_s=timeout_s), endpoints={} if endpoints is None else endpoints)
    return Graphs(config, more.pop("ports", (80, 443)), home, **more)
