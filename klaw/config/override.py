"""``key=value`` of a command line -> a changed ``EngineConfig``, by the rules and with the errors of the file."""

from collections.abc import Sequence
from typing import Any

import attrs

from klaw.config.document import plain_scalar
from klaw.config.keys import file_key
from klaw.config.schema import EngineConfig
from klaw.config.structure import structure
from klaw.errors import ConfigError, Problem


def override_section(config: EngineConfig, section: str, given: Sequence[str]) -> EngineConfig:
    """The configuration with some keys of one section changed.

    Args:
        config: what the others are taken from.
        section: whose keys may be changed, as in the file: ``autoRag``.
        given: ``autoRag.topK=5``, the value as it would stand in the file.

    Raises:
        ConfigError: every one that has another form, is given twice, is unknown or breaks its rule.
    """
    problems: list[Problem] = []
    values: dict[str, dict[str, Any]] = {}
    for each in given:
        path, equals, text = each.partition("=")
        name, dot, key = path.strip().partition(".")
        if not equals or not dot or not name or not key:
            problems.append(
                Problem(path="", message=f"must have the form {section}.KEY=VALUE, for instance {section}.topK=5")
            )
        elif key in values.get(name, {}):
            problems.append(Problem(path=f"{name}.{key}", message="is given twice"))
        else:
            try:
                values.setdefault(name, {})[key] = plain_scalar(text.strip())
            except ValueError as error:
                problems.append(Problem(path=f"{name}.{key}", message=str(error)))
    changed = structure(values, tuple(problems))
    others = [f"{name}.{key}" for name, keys in values.items() if name != section for key in keys]
    if others:
        raise ConfigError(
            [Problem(path=path, message=f"cannot be changed here, only keys of {section}") for path in others]
        )
    attribute = next(field.name for field in attrs.fields(EngineConfig) if file_key(field.name) == section)
    wanted, now = getattr(changed, attribute), getattr(config, attribute)
    names = {file_key(field.name): field.name for field in attrs.fields(type(now))}
    new = {names[key]: getattr(wanted, names[key]) for key in values.get(section, {})}
    return attrs.evolve(config, **{attribute: attrs.evolve(now, **new)})
