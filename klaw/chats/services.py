"""What the turns of all chats share."""

from collections.abc import Callable

import attrs

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.chats.compose import Composer
from klaw.chats.correction import TokenCorrection
from klaw.chats.models import ModelChoice
from klaw.chats.workspace import Workspace
from klaw.config.schema import EngineConfig
from klaw.domain.events import EventSink
from klaw.domain.names import ChatId
from klaw.llm.meter import Accounts
from klaw.llm.router import Router
from klaw.llm.slots import Slots
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.recall import Recall
from klaw.memory.topics.choosing import TopicChooser
from klaw.store.readers import Readers
from klaw.store.writer import Writer
from klaw.toolbox.executor import Executor


@attrs.frozen(kw_only=True)
class TurnServices:
    """What turns of all chats share."""

    config: EngineConfig
    writer: Writer
    readers: Readers
    embedder: Embedder
    recall: Recall
    topics: TopicChooser | None
    """None: no topics come into a prompt by themselves."""
    router: Router
    slots: Slots
    workspace: Workspace
    files: Threads
    events: EventSink
    clock: Clock
    new_id: Callable[[], str]
    composer: Composer
    correction: TokenCorrection
    executor: Executor
    """Its toolbox holds the tools of all models that can use them."""
    accounts: Accounts
    models: ModelChoice
    turn_ended: Callable[[ChatId], None] = lambda _chat: None
    """Told of every turn that ended; never waits."""
