"""All operations, by the modules of this package: a new module is found by being there."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

import klaw.operations
from klaw.operations.operation import Noun, Operation


@cache
def modules() -> tuple[str, ...]:
    """Names of the package's modules."""
    return tuple(sorted(each.name for each in pkgutil.iter_modules(klaw.operations.__path__)))


def nouns_of(module: str) -> list[Noun]:
    """The nouns that a module makes."""
    return [each for each in vars(import_module(module)).values() if isinstance(each, Noun)]


@cache
def nouns() -> tuple[Noun, ...]:
    """All nouns."""
    return tuple(noun for module in modules() for noun in nouns_of(f"klaw.operations.{module}"))


@cache
def operations() -> Mapping[str, Operation]:
    """All operations by their names in requests."""
    return {each.name: each for noun in nouns() for each in noun.operations}
