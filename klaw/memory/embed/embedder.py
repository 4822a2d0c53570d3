"""The embedder actor: turns texts into vectors without ever delaying a reply.

Who sends to it: recall asks for query vectors (the mailbox is the query lane); chats nudge it after a commit (the
backfill lane). The database is the queue of the backfill: rows without a vector are found by query, so a dropped
nudge, a crash or a failed embed loses nothing. A query has a thread of its own, so it waits for no batch.
"""

from collections import deque
from typing import Literal

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.mailbox import Mailbox, Nudge, Reply
from klaw.domain.embedding import EmbedderState, EmbedderStatus
from klaw.errors import ActorStopped, EmbeddingUnavailable
from klaw.memory.embed.token_coder import Reading

QUERY_CAPACITY = 64
"""Filled by recall, at most one query a turn; a full lane answers at once with "busy" and recall goes on without
vectors."""
MAX_QUERY_CHARACTERS = 1_500
"""Only the beginning of a longer question is embedded: one run of the model, not several."""
QUERY_S = 2.0
"""How long a search that somebody asked for waits for its vector."""
SLOW_CAPACITY = 4
"""Texts that wait in the slow lane, filled by the archivist; more are refused as busy."""

log = structlog.get_logger("klaw.embedder")


@attrs.frozen
class EmbedQuery:
    """Ask for a text's vector, and of a query for what scores tokens."""

    text: str
    reply: Reply[Reading]
    kind: Literal["query", "passage"] = "query"


class Embedder(Nudge):
    """Handle of the embedder actor. While its state is READY, it is idle when every message that can have a vector has
    one."""

    remedy = "`klaw models pull` fetches the model"
    """What helps when there is no model, for users."""

    def __init__(self, clock: Clock, *, enabled: bool) -> None:
        self.mailbox: Mailbox[EmbedQuery] = Mailbox("memory.embedder", QUERY_CAPACITY)
        super().__init__()
        self._clock = clock
        self._damage_reported = False
        self._slow: deque[EmbedQuery] = deque()
        """Texts that no reply waits for, served between two batches of messages; never more than SLOW_CAPACITY."""
        self.random_cosine = 0.0
        state = EmbedderState.LOADING if enabled else EmbedderState.OFF
        self.status = EmbedderStatus(state=state, reason=None, since=clock.now(), embedded=0, waiting=0)

    @property
    def is_incomplete(self) -> bool:
        """Whether fewer than half of the messages have a vector."""
        return self.status.waiting > self.status.embedded

    async def prepare(self) -> str | None:
        """Be ready, where no actor sees to it (``OfflineEmbedder``). Returns why there can be no vectors, as a
        code: ``embedding_off``, ``no_vectors``, ``no_model``, ``other_model``; None when there are, or the actor
        knows."""
        return None

    def report_damage(self) -> None:
        """Say that the vector table cannot be searched: it is rebuilt in the background. Never waits."""
        self._damage_reported = True
        self.nudge()

    def take_damage_report(self) -> bool:
        """Whether damage was reported since the last call; the actor's own method."""
        reported, self._damage_reported = self._damage_reported, False
        return reported

    def problems(self) -> dict[str, str]:
        """Why recall has full text only, or not all vectors; for users."""
        status = self.status
        match status.state:
            case EmbedderState.NO_MODEL:
                return {"no_embeddings": f"full-text search only: {status.reason}; {self.remedy}"}
            case EmbedderState.LOADING:
                return {"embeddings_loading": "full-text search only until the embedding model is loaded"}
            case EmbedderState.REEMBEDDING:
                done = f"{status.reembedded_percent} % re-embedded"
                return {"reembedding": f"full text only, {done}: the embedding model was changed"}
            case EmbedderState.READY if status.waiting > status.embedded:
                share = round(100 * status.embedded / (status.embedded + status.waiting))
                return {
                    "vectors_incomplete": f"{share} % of the messages have a vector; the rest is found by full text"
                }
            case _:
                return {}

    async def read(self, text: str) -> Reading:
        """The vector of a query, and what scores tokens if ``autoRag.tokens`` is on.

        Raises:
            EmbeddingUnavailable: there is no model, or it is busy.
            ActorStopped: the embedder is being restarted.

        Cancellation: the work is done only if it was begun.
        """
        return await self._ask(text, "query")

    async def query(self, text: str) -> bytes:
        """The vector of a query: little-endian float32. Like ``read``."""
        return (await self.read(text)).vector

    async def passage(self, text: str) -> bytes:
        """The vector of a text that is to be found, for one that cannot wait for the backfill. Like ``query``."""
        return (await self._ask(text, "passage")).vector

    def check_ready(self) -> None:
        """Raise EmbeddingUnavailable unless questions are answered now."""
        if self.status.state is EmbedderState.REEMBEDDING:
            raise EmbeddingUnavailable("reembedding", f"reembedding:{self.status.reembedded_percent}%")
        if self.status.state is not EmbedderState.READY:
            raise EmbeddingUnavailable(self.status.state.value)

    async def _ask(self, text: str, kind: Literal["query", "passage"]) -> Reading:
        self.check_ready()
        reply: Reply[Reading] = Reply()
        if not self.mailbox.tell(EmbedQuery(text, reply, kind)):
            raise EmbeddingUnavailable("busy")
        try:
            return await reply.wait()
        finally:
            # A question whose turn has gone on without it must not hold up the next one.
            reply.fail(EmbeddingUnavailable("given_up"))

    async def passage_in_background(self, text: str) -> bytes:
        """The vector of a text that is to be found, made behind everything else. Long texts take seconds.

        Raises:
            EmbeddingUnavailable: there is no model, or the lane is full.
            ActorStopped: the embedder is being restarted.

        Cancellation: the work is done only if it was begun.
        """
        self.check_ready()
        reply: Reply[Reading] = Reply()
        if len(self._slow) >= SLOW_CAPACITY:
            raise EmbeddingUnavailable("busy")
        self._slow.append(EmbedQuery(text, reply))
        self.nudge()
        try:
            return (await reply.wait()).vector
        finally:
            reply.fail(EmbeddingUnavailable("given_up"))

    def take_slow(self) -> EmbedQuery | None:
        """The next text of the slow lane; the actor's own method."""
        return self._slow.popleft() if self._slow else None

    def give_up(self, reason: str) -> None:
        """Fail who waits in the slow lane; the actor's own method."""
        while self._slow:
            self._slow.popleft().reply.fail(ActorStopped(reason))

    def enter(self, state: EmbedderState, reason: str | None = None) -> None:
        """Change the state; the actor's own method."""
        if (state, reason) != (self.status.state, self.status.reason):
            self.status = attrs.evolve(self.status, state=state, reason=reason, since=self._clock.now())
            say = log.warning if state is EmbedderState.NO_MODEL else log.info
            say("embedder_state", state=state.value, reason=reason)

    def count(self, *, embedded: int, waiting: int) -> None:
        """Set the counts; the actor's own method."""
        self.status = attrs.evolve(self.status, embedded=embedded, waiting=waiting)

    def begin_reembedding(self, messages: int) -> None:
        """Turn vector search off until so many messages have a vector of the new model; the actor's own method."""
        self.status = attrs.evolve(self.status, reembedding=messages)
        self.enter(EmbedderState.REEMBEDDING)


async def read_question(
    embedder: Embedder, text: str, deadline: float, degraded: list[str], *, off: str | None = None
) -> Reading | None:
    """What one run of the model makes of a question, or None with the reason among ``degraded``.

    Args:
        text: the question; of a very long one the beginning counts.
        deadline: in Trio's time.
        degraded: codes of what was missing, to which is added.
        off: the code where vectors are switched off; None where nothing is said of it.
    """
    try:
        with trio.move_on_at(deadline):
            return await embedder.read(text[:MAX_QUERY_CHARACTERS])
        code: str | None = "embedding_late"
    except EmbeddingUnavailable as error:
        code = error.degraded or off
    except ActorStopped:
        code = "embedding_restarting"
    if code is not None:
        degraded.append(code)
    return None
