"""Commands that run beside the server, each in a process of its own, whose memory goes with it; and backups, which one
of them makes."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, cast

import attrs

from klaw.errors import KlawError
from klaw.operations.handler import Caller, Parts
from klaw.operations.operation import Nothing, Noun, OperationError, Scope, argument

if TYPE_CHECKING:
    from klaw.actor.supervisor import TaskStarted, Vitals
    from klaw.config.paths import Paths
    from klaw.store.backup_mark import BackupMark

BACKUP = Noun("backup", "make, check and restore backups (docs/operations.md)")
BACKUP_ACTOR = "backup"


class CommandState(TypedDict):
    """``state``: none, running, done or failed; ``answer``: what the command answered; ``field``: the argument that
    ``error`` is about, if it is about one."""

    state: str
    answer: Any
    error: str
    field: str


_REFUSED = partial(OperationError, "refused")
NOT_BEGUN = CommandState(state="none", answer=None, error="", field="")


async def run_beside(
    parts: Parts,
    actor: str,
    words: Sequence[str],
    /,
    *,
    stdin: BinaryIO | None = None,
    refused: Callable[[str], OperationError] = _REFUSED,
    after: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None,
    **about: Any,
) -> CommandState:
    """Start a ``klaw`` command as an actor. ``Core.beside`` tells by the actor's name how it is, and ``about`` it.
    ``stdin`` is closed in the end; ``refused`` makes an error of what the command said; ``after`` is given how it
    ended. Raises OperationError: one is running."""
    from klaw.actor.supervisor import ActorSpec

    supervisor = parts.core.supervisor
    if supervisor.alive(actor):
        if stdin is not None:
            stdin.close()
        raise OperationError("busy", "another one is at work: wait for its end")
    told = parts.core.beside[actor] = {**NOT_BEGUN, "state": "running", **about}

    async def run(vitals: "Vitals", started: "TaskStarted") -> None:
        started.started()
        vitals.doing("waiting for the command")
        with stdin or nullcontext():
            try:
                ended = {"answer": await _command(parts.paths, words, stdin, refused), "state": "done"}
            except (KlawError, OSError) as error:
                wrong = getattr(error, "problems", ())
                field, text = (wrong[0].path, wrong[0].message) if wrong else ("", str(error))
                ended = {"error": text, "field": field, "state": "failed"}
            if after is not None:
                with suppress(KlawError):
                    await after(ended)
            told.update(ended)

    await supervisor.start(ActorSpec(name=actor, run=run))
    return cast("CommandState", told)


async def _command(
    paths: "Paths", words: Sequence[str], stdin: BinaryIO | None, refused: Callable[[str], OperationError]
) -> Any:
    import json
    import subprocess
    import sys

    import trio

    import klaw

    root = paths.config_dir.parent
    is_home = attrs.evolve(paths, named_config=None) == type(paths).resolve(root)  # else the environment names it, too
    done = await trio.run_process(
        [sys.executable, "-m", "klaw", *words, "--json", *(["--home", str(root)] if is_home else [])],
        stdin=subprocess.DEVNULL if stdin is None else stdin.fileno(),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=Path(klaw.__file__).parents[1],
        env={name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "JOURNAL_STREAM")},
        start_new_session=True,
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        said = re.findall(r"^klaw: (.+)$", done.stderr.decode(errors="replace"), re.MULTILINE)
        raise refused("; ".join(said) or f"the command ended with {done.returncode}") from None


class BackupList(TypedDict):
    folder: str
    backups: list[dict[str, bool | int | str | list[str] | None]]
    making: CommandState


@BACKUP.operation("backup_list", Nothing, scope=Scope.OPERATOR)
async def backups(_asked: Nothing, _caller: Caller, parts: Parts) -> BackupList:
    """List the backups, the oldest first, and whether one is being made."""
    from klaw.backup import folder as made
    from klaw.store.backup_mark import last_forgetting

    folder = parts.paths.backups_dir

    def look() -> list[dict[str, Any]]:
        last = last_forgetting(parts.paths.database)
        with made.os_errors_refused(folder):
            return [made.told(each, last) for each in made.listed(folder)]

    making = cast("CommandState", parts.core.beside.get(BACKUP_ACTOR, NOT_BEGUN))
    return {"folder": str(folder), "backups": await parts.core.files.run(look, abandon=True), "making": making}


@BACKUP.operation("backup_create", Nothing, scope=Scope.OPERATOR, changes=True)
async def create(_asked: Nothing, _caller: Caller, parts: Parts) -> CommandState:
    """Begin a backup, without secrets; backup_list tells how far it is."""
    return await run_beside(parts, BACKUP_ACTOR, ["backup", "create"])


@attrs.frozen(kw_only=True)
class MarkOptions:
    logs: bool = argument("also the size of every log", default=True)


@BACKUP.operation("backup_mark", MarkOptions, scope=Scope.OPERATOR, deadline_s=60)
async def mark(asked: MarkOptions, _caller: Caller, parts: Parts) -> "BackupMark":
    """Tell how far the store is, between two commits: up to there every log is whole."""
    from klaw.store import backup_mark as store_mark

    return await parts.writer.run_alone(store_mark.mark, logs=asked.logs)
