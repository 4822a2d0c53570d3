"""What all parts of a running Klaw share. Whatever else a part needs, it is given when it is built."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TypeAlias

import attrs

from klaw.actor.clock import Clock, new_id
from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import Supervisor
from klaw.actor.threads import Threads
from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.domain.events import EventSink
from klaw.store.attachments import Attachments
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.originals import Originals
from klaw.store.store import Store

Problems: TypeAlias = Callable[[], Mapping[str, str]]
"""What is degraded in a part now: code to text, in words for users; empty when all works."""


class Health:
    """What is degraded now: asked of the parts on demand, so it is never stale."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: list[Problems] = []
        self.since: dict[str, float] = {}
        """Code to the time (Unix seconds) when each was first noticed; ``klaw.health`` looks every other second."""

    def add(self, *sources: Problems) -> None:
        self._sources += sources

    def problems(self) -> Mapping[str, str]:
        found = {code: text for source in self._sources for code, text in source().items()}
        now = self._clock.now()
        self.since = {code: self.since.get(code, now) for code in found}
        return found


@attrs.frozen(kw_only=True)
class Core:
    config: EngineConfig
    paths: Paths
    clock: Clock
    store: Store
    events: EventSink
    supervisor: Supervisor
    new_id: Callable[[], str] = new_id
    health: Health = attrs.Factory(lambda self: Health(self.clock), takes_self=True)
    metrics: Metrics = attrs.Factory(Metrics)
    files: Threads = attrs.Factory(lambda: Threads("files", 2))
    started_at: float = attrs.field(init=False, default=attrs.Factory(lambda self: self.clock.now(), takes_self=True))
    """Unix seconds."""

    @cached_property
    def attachments(self) -> Attachments:
        return Attachments(self.paths.data_dir, self.config.attachments, self.clock)

    @cached_property
    def originals(self) -> Originals:
        return Originals(self.paths.data_dir, self.config.kb.max_file_bytes)

    def config_changed(self) -> bool:
        """Whether the configuration file was changed after the start, so that what it says now is not in effect."""
        with suppress(OSError):
            return self.paths.config_file.stat().st_ctime > self.started_at
        return False

    @property
    def writer(self) -> Writer:
        return self.store.writer

    @property
    def readers(self) -> Readers:
        return self.store.readers
