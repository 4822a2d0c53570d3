"""What the handler of an operation is given beside its arguments: who asks, and the parts of the server.

The command line imports this module, so it imports none of the parts itself.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from klaw.domain.names import LOCAL_USER, ChatId, UserId

if TYPE_CHECKING:
    from klaw.actor.clock import Clock
    from klaw.agent.agent import Agent
    from klaw.chats.directory import ChatDirectory
    from klaw.config.paths import Paths
    from klaw.config.schema import EngineConfig
    from klaw.core import Core
    from klaw.knowledge.parts import Knowledge
    from klaw.llm.budget import DailyBudget
    from klaw.llm.client import Llm
    from klaw.llm.registry import Registry
    from klaw.llm.voice import Voice
    from klaw.memory.embed.embedder import Embedder
    from klaw.memory.parts import MemoryParts
    from klaw.memory.recall.recall import Recall
    from klaw.memory.search.search import MemorySearch
    from klaw.runs.parts import TaskParts
    from klaw.settings import ChangeResult
    from klaw.store.engine.database import Readers
    from klaw.store.engine.writer import Writer
    from klaw.store.rebuild.actor import Reindexer
    from klaw.toolbox.tools import Tools


async def _no_turn(_reason: str) -> bool:
    return False


@attrs.frozen(kw_only=True)
class Caller:
    """Who asks. A handler sees as ``user`` whose data it is about."""

    user: UserId = LOCAL_USER
    operator: bool = False
    """May ask for the data of other users."""
    everybody: bool = False
    """An operator who asks as no user in particular: where no user is named, all are meant if that makes sense."""
    chat: ChatId | None = None
    """Where a slash command was given."""
    stop_turn: Callable[[str], Awaitable[bool]] = _no_turn
    """Ends the running turn of that chat, for the reason given."""
    client: str | None = None
    """The program that asks on behalf of a model: what it writes down is not the user's own words."""
    token: str | None = None
    """The id of the token or login with which is asked."""

    @property
    def here(self) -> ChatId:
        """The chat of an operation whose scope is a chat."""
        assert self.chat is not None
        return self.chat


OPERATOR = Caller(operator=True, everybody=True)
"""Who asks at the server itself."""


class HasReaders(Protocol):
    """What carrying out any operation takes."""

    @property
    def readers(self) -> "Readers": ...


class DatabaseParts(HasReaders, Protocol):
    """What there is without a server. There all but ``readers``, ``paths`` and ``clock`` may raise ConfigError."""

    @property
    def paths(self) -> "Paths": ...
    @property
    def clock(self) -> "Clock": ...
    @property
    def config(self) -> "EngineConfig": ...
    @property
    def embedder(self) -> "Embedder": ...
    @property
    def recall(self) -> "Recall": ...
    @property
    def search(self) -> "MemorySearch": ...
    @property
    def budget(self) -> "DailyBudget | None":
        """The daily limits, which only a server counts."""
        ...

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the server; nothing without one: it may not have this shell's."""
        ...

    async def registry(self) -> "Registry":
        """What is known of models."""
        ...

    async def change(self, changes: Mapping[str, Any]) -> "ChangeResult":
        """Change settings (``config.edit``). Raises ConfigError: nothing was changed."""
        ...


@attrs.frozen(kw_only=True)
class Listeners:
    """What a server has once it listens."""

    connections: Callable[[], list[dict[str, Any]]]
    http_connections: Callable[[], int]
    address: Callable[[], str | None]
    tokens: Callable[[], Any]
    """All tokens and logins (``gateway.tokens``)."""
    add_token: Callable[..., tuple[Any, str]]
    """Makes one for a user, and returns it with its secret."""
    revoke: Callable[..., Sequence[Any]]
    """Revokes those of a user, or the one of an id, and returns them."""
    make_code: Callable[..., tuple[str, str]]
    """A code with which a browser can log in, and until when."""
    check_up: Callable[..., Awaitable[dict[str, Any]]]
    """What ``klaw doctor`` finds, of a server whose status and health are these."""
    channels: Any
    """The accounts of messengers (``channels.channels.Channels``)."""


def _at(path: str) -> Any:
    """The default of a field that is a part of another one."""
    return attrs.Factory(attrgetter(path), takes_self=True)


@attrs.frozen(kw_only=True)
class Parts:
    core: "Core"
    reindexer: "Reindexer"
    llm: "Llm"
    memory: "MemoryParts"
    knowledge: "Knowledge"
    tools: "Tools"
    agent: "Agent"
    tasks: "TaskParts"
    chats: "ChatDirectory"
    voice: "Voice"
    _listeners: Listeners | None = None

    readers: "Readers" = attrs.field(init=False, default=_at("core.readers"))
    writer: "Writer" = attrs.field(init=False, default=_at("core.writer"))
    paths: "Paths" = attrs.field(init=False, default=_at("core.paths"))
    clock: "Clock" = attrs.field(init=False, default=_at("core.clock"))
    embedder: "Embedder" = attrs.field(init=False, default=_at("memory.embedder"))
    recall: "Recall" = attrs.field(init=False, default=_at("memory.recall"))
    search: "MemorySearch" = attrs.field(init=False, default=_at("memory.search"))
    budget: "DailyBudget | None" = attrs.field(init=False, default=_at("llm.budget"))
    environ: Mapping[str, str] = attrs.field(init=False, factory=lambda: os.environ, repr=False)

    @property
    def config(self) -> "EngineConfig":
        return self.core.config

    @property
    def listeners(self) -> Listeners:
        assert self._listeners is not None
        return self._listeners

    async def registry(self) -> "Registry":
        return self.llm.registry

    async def change(self, changes: Mapping[str, Any]) -> "ChangeResult":
        from klaw.settings import change_settings

        return await change_settings(self.core, changes)

    def now(self) -> str:
        """The time, as it is stored."""
        from klaw.actor.clock import iso

        return iso(self.clock.now())
