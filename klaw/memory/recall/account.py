"""The account that one search keeps of itself: what was missing, how long its steps took, what it read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs
import structlog
import trio

from klaw.actor.failure import error_class
from klaw.domain.search import Candidate
from klaw.errors import StorageError
from klaw.memory.embed.token_coder import Floats, Reading
from klaw.memory.recall.late import max_sim
from klaw.memory.recall.met import Met

LEAST_SHARE = 0.5
"""Of the time budget that a step has at least, however late the query's vector came."""

log = structlog.get_logger("klaw.recall")


@attrs.define
class Account:
    """What one search for a turn has to say of itself."""

    budget_s: float
    """Time for all of it, from now on."""
    deadline: float = attrs.field(init=False)
    degraded: list[str] = attrs.Factory(list)
    timings_ms: dict[str, float] = attrs.Factory(dict)
    reading: Reading | None = None
    """Of the query, when it came in time."""
    codes: Mapping[int, bytes] = attrs.Factory(dict)
    """Of the candidates' tokens, by row id, as far as they were read."""

    def __attrs_post_init__(self) -> None:
        self.deadline = trio.current_time() + self.budget_s

    @property
    def soon(self) -> float:
        """Until when a step may take that begins now: the deadline, or what a late step before it must leave to it."""
        return max(self.deadline, trio.current_time() + self.budget_s * LEAST_SHARE)

    @property
    def query_tokens(self) -> Floats | None:
        return self.reading.tokens if self.reading is not None else None

    def token_scores(self) -> dict[int, float]:
        """How well the words of each message meet the query's, as far as both have codes. For a thread."""
        if self.query_tokens is None:
            return {}
        scores = zip(self.codes, max_sim(self.query_tokens, list(self.codes.values())), strict=True)
        return {rowid: score for rowid, score in scores if score is not None}

    def met_in(self, candidate: Candidate) -> Met | None:
        """Where a candidate's message meets the query, if its tokens have codes."""
        query, codes = self.query_tokens, self.codes.get(candidate.message.rowid)
        return Met(query, codes) if query is not None and len(query) and codes else None

    def say(self, code: str) -> None:
        """Name what was missing, once."""
        if code not in self.degraded:
            self.degraded.append(code)

    @contextmanager
    def degrading(self, what: str, event: str) -> Iterator[None]:
        """Go on when the store is late or fails in the body, and name it: ``search_late``, ``search_failed``."""
        try:
            yield
        except trio.TooSlowError:
            self.say(f"{what}_late")
        except StorageError as error:
            log.warning(event, error=error_class(error))
            self.say(f"{what}_failed")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begin = trio.current_time()
        try:
            yield
        finally:
            self.timings_ms[name] = self.timings_ms.get(name, 0.0) + (trio.current_time() - begin) * 1000
