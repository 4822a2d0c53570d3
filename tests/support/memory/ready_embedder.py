"""An embedder without an actor and without a model."""

from collections.abc import Callable

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.memory.embed.token_coder import Reading


class ReadyEmbedder(Embedder):
    """Answers every query by a function, which may block."""

    def __init__(self, read: Callable[[str], Reading], random_cosine: float, clock: Clock) -> None:
        super().__init__(clock, enabled=True)
        self._read = read
        self._threads = Threads("onnx", 1)
        self.random_cosine = random_cosine
        self.enter(EmbedderState.READY)

    async def read(self, text: str) -> Reading:
        return await self._threads.run(self._read, text)
