"""A person's control of topics over a real store and a scripted model, for tests."""

from collections.abc import Callable

from klaw.actor.clock import SystemClock
from klaw.config.memory import TopicsConfig
from klaw.memory.embed.embedder import Embedder
from klaw.memory.topics.control import TopicControl
from klaw.memory.topics.maker import TopicMaker
from klaw.store.store import Store
from tests.support.scripted import Scripted, one_topic


def controlling(
    store: Store,
    scripted: Scripted | None = None,
    *,
    embedder: Embedder | None = None,
    enabled: bool = True,
    changed: Callable[[], None] = lambda: None,
    embed_s: float = 20.0,
) -> TopicControl:
    return TopicControl(
        config=TopicsConfig(enabled=enabled),
        maker=TopicMaker(
            store.readers, store.writer, embedder or Embedder(SystemClock(), enabled=False), SystemClock()
        ),
        asker=(scripted or Scripted(one_topic)).asker(),
        changed=changed,
        embed_s=embed_s,
    )
