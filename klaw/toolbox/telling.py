"""The schema of a tool's parameters as a model is told it: without what the tool checks by itself. Pure.

Every request carries all tools, so each word is paid for in every round. Left out is what helps no model to write a
call: that unknown members are refused, and that an optional member may be null (it may be left out). ``shapes`` refuses
the first and takes the second all the same. Bounds stay: grammars of local models are made of them.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]


def told(schema: Schema) -> dict[str, Any]:
    """The schema in short. For schemas of ``shapes`` only: in those of others null may mean something."""
    kept = dict(schema)
    if kept.get("additionalProperties") is False:
        del kept["additionalProperties"]
    kinds = kept.get("type")
    if isinstance(kinds, list):
        (kept["type"],) = (kind for kind in kinds if kind != "null")
        if "enum" in kept:
            kept["enum"] = [each for each in kept["enum"] if each is not None]
    if "properties" in kept:
        kept["properties"] = {name: told(member) for name, member in kept["properties"].items()}
    if isinstance(kept.get("items"), Mapping):
        kept["items"] = told(kept["items"])
    return kept
