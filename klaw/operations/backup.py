"""What a backup beside a running server asks of it (``klaw backup``)."""

from typing import TYPE_CHECKING

import attrs

from klaw.operations.handler import Caller, Parts
from klaw.operations.operation import Noun, Scope, argument

if TYPE_CHECKING:
    from klaw.store.backup_mark import Mark

NOUN = Noun("backup", "make, check and restore backups (docs/operations.md)")


@attrs.frozen(kw_only=True)
class Marked:
    logs: bool = argument("also the size of every log", default=True)


@NOUN.operation("backup_mark", Marked, scope=Scope.OPERATOR, deadline_s=60)
async def mark(asked: Marked, _caller: Caller, parts: Parts) -> "Mark":
    """Tell how far the store is, between two commits: up to there every log is whole."""
    from klaw.store import backup_mark as store_mark

    return await parts.writer.run_alone(store_mark.mark, logs=asked.logs)
