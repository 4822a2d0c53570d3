"""What operations answer: the types that their handlers name, and that the description of the API is made of. Only type
checkers and who describes the API import them: they need the store's classes, which the command line does without.

An attrs class stands for an object with all its fields (``perform.plain``).
"""

import pkgutil
from importlib import import_module
from typing import Any


def named(name: str) -> Any:
    """The type of this name, of any module here. Raises KeyError."""
    found: dict[str, Any] = {}
    for each in pkgutil.iter_modules(__path__):
        found |= vars(import_module(f"{__name__}.{each.name}"))
    return found[name]
