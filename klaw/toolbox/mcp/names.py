"""The names under which a server's tools are offered: ``server__tool``. Pure.

A server's own name holds no ``__`` and ends in no ``_`` (the configuration sees to it), so tools of two servers never
share a name. Within a server, two names may become one when they are cleaned or cut; then a digest tells them apart.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping

from klaw.toolbox.calls import MAX_NAME

SEPARATOR = "__"
_DIGEST = 8

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def offered_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """The server's name of each tool -> the name that models see; the same for the same set of names.

    Names that every provider takes stay as they are; others that become the same get a digest.
    """
    given = list(dict.fromkeys(tools))
    wanted = {tool: _cleaned(server, tool) for tool in given}
    counts: dict[str, int] = {}
    for name in wanted.values():
        counts[name] = counts.get(name, 0) + 1
    return {
        tool: name if counts[name] == 1 or name == f"{server}{SEPARATOR}{tool}" else _with_digest(server, tool)
        for tool, name in wanted.items()
    }


def _cleaned(server: str, tool: str) -> str:
    plain = _NOT_IN_NAME.sub("_", tool).strip("_") if _NOT_IN_NAME.search(tool) else tool
    name = f"{server}{SEPARATOR}{plain}"
    return name if plain and len(name) <= MAX_NAME else _with_digest(server, tool)


def _with_digest(server: str, tool: str) -> str:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    room = MAX_NAME - len(server) - len(SEPARATOR) - _DIGEST - 1
    plain = _NOT_IN_NAME.sub("_", tool).strip("_")[:room] or "tool"
    return f"{server}{SEPARATOR}{plain}_{digest}"
