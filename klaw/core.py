"""What all parts of a running Klaw share. Whatever else a part needs, it is given when it is built.

Settings may change while it runs (``klaw.settings``). A part reads them from ``Core.config`` when it needs them, or
keeps a view (``Core.live``); one with state of its own that follows from them has itself told (``Changing.told``)."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast

import attrs
import trio

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


T = TypeVar("T")


class _View:
    """A part of the configuration in effect: every attribute is read from it anew."""

    __slots__ = ("_now",)

    def __init__(self, now: Callable[[], object]) -> None:
        self._now = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now(), name)


@attrs.define(eq=False)
class Changing:
    """Changes of the settings, and who has to do with them."""

    checks: list[Callable[[EngineConfig], Awaitable[None]]] = attrs.field(factory=list, init=False)
    """Each refuses, with a ConfigError, settings with which the server could not be started again."""
    told: list[Callable[[EngineConfig], Awaitable[None]]] = attrs.field(factory=list, init=False)
    """Each is called when ``Core.config`` was replaced, with the former one."""
    lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    wrong: str | None = attrs.field(default=None, init=False)
    """Why the file as it is now is not in effect."""
    waiting: tuple[str, ...] = attrs.field(default=(), init=False)
    """Keys that were changed since the start and take effect after the next one."""
    failed: bool = attrs.field(default=False, init=False)
    """A part could not take the last change up."""
    fixed: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Keys that the command line has set: the file's values mean nothing."""
    undo: Mapping[str, Any] = attrs.field(factory=dict, init=False)
    """Changes (``config.edit``) that take the last one back."""
    read_at: float | None = attrs.field(default=None, init=False)
    """The file's change time when it was last read."""

    def problems(self) -> Mapping[str, str]:
        found = {}
        if self.wrong is not None:
            found["config_wrong"] = (
                "the changed configuration is wrong and not in effect; `klaw config check` says what is wrong"
            )
        if self.failed:
            found["config_not_taken_up"] = "a part could not take up the changed configuration: restart the server"
        return found


@attrs.define(kw_only=True, eq=False)
class Core:
    config: EngineConfig
    """The settings in effect."""
    paths: Paths
    clock: Clock
    store: Store
    events: EventSink
    supervisor: Supervisor
    new_id: Callable[[], str] = new_id
    health: Health = attrs.Factory(lambda self: Health(self.clock), takes_self=True)
    metrics: Metrics = attrs.Factory(Metrics)
    files: Threads = attrs.Factory(lambda: Threads("files", 2))
    changing: Changing = attrs.Factory(Changing)
    beside: dict[str, dict[str, Any]] = attrs.Factory(dict)
    """How the commands are that run beside the server, by the names of their actors (``operations.host.beside``)."""
    started_at: float = attrs.field(init=False, default=attrs.Factory(lambda self: self.clock.now(), takes_self=True))
    """Unix seconds."""

    @cached_property
    def attachments(self) -> Attachments:
        return Attachments(self.paths.data_dir, self.live(lambda now: now.attachments), self.clock)

    @cached_property
    def originals(self) -> Originals:
        return Originals(self.paths.data_dir, self.config.kb.max_file_bytes)

    def live(self, of: Callable[[EngineConfig], T]) -> T:
        """A view of a section (or of all, ``lambda all: all``) for parts that keep it: it always shows what is in
        effect."""
        return cast("T", _View(lambda: of(self.config)))

    def config_changed(self) -> bool:
        """Whether the configuration file was changed after it was read, so that what it says now is not in effect."""
        return self.config_time() > (self.changing.read_at or self.started_at)

    def config_time(self) -> float:
        """When the configuration file was changed, in Unix seconds; 0: there is none. Blocks."""
        with suppress(OSError):
            return self.paths.config_file.stat().st_ctime
        return 0.0

    @property
    def writer(self) -> Writer:
        return self.store.writer

    @property
    def readers(self) -> Readers:
        return self.store.readers
