"""Secrets whose reference leads nowhere here: a variable that is not set, a file that cannot be read."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from klaw.config.document import join_path
from klaw.config.keys import file_key
from klaw.config.mcp import McpServerConfig
from klaw.config.schema import EngineConfig
from klaw.config.secret import Secret
from klaw.errors import ConfigError, Problem


def unresolved_secrets(config: EngineConfig) -> tuple[Problem, ...]:
    """All of them with their key paths; reads the files that are referred to. MCP servers that are off do not count."""
    return tuple(_unresolved(config, ""))


def _unresolved(value: object, path: str) -> Iterator[Problem]:
    cls: Any = type(value)
    if isinstance(value, Secret):
        try:
            value.reveal(path)
        except ConfigError as error:
            yield from error.problems
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _unresolved(item, join_path(path, name))
    elif attrs.has(cls) and not (isinstance(value, McpServerConfig) and not value.enabled):
        for field in attrs.fields(cls):
            yield from _unresolved(getattr(value, field.name), join_path(path, file_key(field.name)))
