"""Changing the settings of a running server. A change is checked as a whole, written to the configuration file, and
then in effect: ``Core.config`` is replaced, and the parts that have to do something are told (``core.Changing``). Keys
that need a restart wait for it. What is wrong changes nothing."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.config.describe import differing, in_effect
from klaw.config.edit import TRIES, Draft
from klaw.config.load import load
from klaw.config.schema import EngineConfig
from klaw.core import Core
from klaw.errors import ConfigError, Problem

APPLY_S = 60.0
"""Stopping an MCP server takes some seconds."""

log = structlog.get_logger("klaw.settings")


@attrs.frozen(kw_only=True)
class ChangeResult:
    file: str
    changed: tuple[str, ...]
    """Keys that have another value now, or after the next start."""
    restart: tuple[str, ...]
    """All keys that wait for a restart, also of earlier changes."""
    warnings: Sequence[Problem]
    in_effect: bool = True
    """False: no server runs, and the next one goes by it."""


async def change_settings(core: Core, changes: Mapping[str, Any], *, undo: bool = False) -> ChangeResult:
    """Change keys (see ``config.edit.edited``) in the file as it is now, and take up what it says. ``undo``: they were
    in the file before, also keys of accounts. Raises ConfigError: they are refused, and nothing was changed."""
    async with core.changing.lock:
        for _ in range(TRIES):
            draft = await core.files.run(partial(Draft.of, core.paths.config_file, changes, undo=undo))
            await _check(core, draft.config)
            # From here on nothing is cancelled: what is written is taken up.
            written, at = await core.files.run(_write, draft, core)
            if written:
                core.changing.undo = draft.before
                return await _take_up(core, draft.config, draft.warnings, at)
    raise ConfigError.of("the configuration file is changed by another program all the time")


def _write(draft: Draft, core: Core) -> tuple[bool, float]:
    return draft.write(), core.config_time()


async def reload_settings(core: Core) -> ChangeResult:
    """Take up what the file says now. Raises ConfigError: it is wrong, which is shown as degraded until it is right."""
    changing, file = core.changing, core.paths.config_file
    async with changing.lock:
        try:
            at, (config, warnings) = await core.files.run(lambda: (core.config_time(), load(file)))
            await _check(core, config)
        except ConfigError as error:
            changing.wrong = str(error)
            log.error("configuration_wrong", path=str(file), reason=changing.wrong)
            raise
        return await _take_up(core, config, warnings, at)


async def _check(core: Core, config: EngineConfig) -> None:
    for check in core.changing.checks:
        await check(config)


async def _take_up(core: Core, wanted: EngineConfig, warnings: Sequence[Problem], at: float) -> ChangeResult:
    changing, before = core.changing, core.config
    core.config = now = in_effect(before, wanted)
    changing.wrong, changing.failed, changing.read_at = None, False, at
    with trio.CancelScope(deadline=trio.current_time() + APPLY_S, shield=True) as scope:
        for told in changing.told:
            try:
                await told(before)
            except Exception as error:  # noqa: BLE001 - the others have to be told all the same
                changing.failed = True
                log.error("settings_not_taken_up", error=error_class(error), where=where(error))
    if scope.cancelled_caught:
        changing.failed = True
        log.error("settings_not_taken_up", error="too_slow")
    waiting = tuple(key for key in differing(now, wanted) if key not in changing.fixed)
    changed = (*differing(before, now), *(key for key in waiting if key not in changing.waiting))
    changing.waiting = waiting
    log.info("settings_taken_up", count=len(changed), missing=len(waiting))
    file = str(core.paths.config_file)
    return ChangeResult(file=file, changed=changed, restart=waiting, warnings=tuple(warnings))
