"""Rebuilding the database while the server runs. ``klaw reindex`` asks this, and does it itself without a server."""

from typing import TYPE_CHECKING, Literal

import attrs

from klaw.operations.operation import Noun, Scope, argument

if TYPE_CHECKING:
    from klaw.store.rebuild.actor import Reindexer, ReindexStatus

NOUN = Noun("reindex", "rebuild the database from the logs")


@attrs.frozen(kw_only=True)
class Options:
    accept_differences: bool = argument("use the new database even if it differs from the old one", default=False)
    embed_again: bool = argument("make all vectors again (default: take them over)", default=False)


@attrs.frozen(kw_only=True)
class Reindex(Options):
    action: Literal["start", "status", "cancel"] = argument("start it, ask how far it is, or stop it", default="status")


@NOUN.operation("reindex", Reindex, scope=Scope.OPERATOR, changes=True)
async def reindex(asked: Reindex, reindexer: "Reindexer") -> "ReindexStatus":
    """Rebuild the database from the logs, compare the two, and swap them if they are equal."""
    from klaw.store.rebuild.values import Options

    if asked.action == "start":
        await reindexer.start(Options(accept_differences=asked.accept_differences, embed_again=asked.embed_again))
    elif asked.action == "cancel":
        await reindexer.cancel()
    return reindexer.status
