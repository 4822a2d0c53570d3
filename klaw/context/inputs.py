"""The snapshot that a turn's context is made from."""

from collections.abc import Mapping

import attrs

from klaw.domain.knowledge import Document
from klaw.domain.message import Message
from klaw.domain.summary import Summary
from klaw.llm.types import Image

SAFETY = 0.9
"""Share of the context length that is planned for; the estimate may be off by the rest."""


@attrs.frozen(kw_only=True)
class Budget:
    context_tokens: int
    reply_reserve_tokens: int
    correction: float = 1.0
    """Provider's tokens per estimated token, learned from the usage that it reports."""

    @property
    def usable(self) -> int:
        """Estimated tokens that the prompt may take."""
        free = self.context_tokens * SAFETY - self.reply_reserve_tokens
        # A small model may be shorter than twice the reserve; then prompt and answer share it.
        return max(1, int(max(free, self.context_tokens * SAFETY / 2) / self.correction))


@attrs.frozen(kw_only=True)
class FileText:
    """What was read of a file of a message."""

    document: Document
    text: str
    """All of it; of a long one, which has passages by themselves, the beginning."""
    whole: bool


@attrs.frozen(kw_only=True)
class Settings:
    sliding_window: int
    recall_enabled: bool
    recall_max_tokens: int
    hold_uncovered: bool = False
    """``summaries.holdUncovered``: what no summary holds stays in the window while it fits."""
    topics_max_tokens: int = 0
    """``topics.maxTokens``; 0: no topics come into the prompt by themselves."""
    knowledge_max_tokens: int = 0
    """``kb.maxTokens``; 0: the chat is bound to no knowledge base, and has no long files."""
    names_gap: bool = False
    """The model is told that messages before the window are left out."""
    pairs: int | None = None
    """``kb.pairs`` of a chat that is bound: the window has at most so many exchanges."""


@attrs.frozen(kw_only=True)
class Snapshot:
    system_prompt: str
    core_memory: str
    history: tuple[Message, ...]
    """The newest messages of the segment's dialogue before the pending ones, oldest first."""
    has_older: bool
    """Whether ``history`` lacks older messages of the dialogue that no summary has: its first exchange may be torn."""
    pending: tuple[Message, ...]
    """The user messages that the turn is to answer, oldest first; at least one."""
    tools_tokens: int
    """Estimated; 0 when the model is offered none: then it is shown no earlier tool calls and results either."""
    budget: Budget
    settings: Settings
    unfinished: tuple[Message, ...] = ()
    """Tool calls and results that an interrupted turn left on the pending messages: it goes on with them."""
    summaries: tuple[Summary, ...] = ()
    """The segment's summaries that stand in the context, oldest first."""
    summarised_to: int = 0
    """The last message that a summary was made of, or 0; ``history`` begins after it."""
    sees: bool = False
    pictures: Mapping[str, Image] = attrs.field(factory=dict, repr=False)
    """The pictures of these messages, by SHA-256."""
    documents: Mapping[str, FileText] = attrs.field(factory=dict, repr=False)
    """What was read of their files, by SHA-256."""
    beside: Mapping[int, tuple[Image, ...]] = attrs.field(factory=dict, repr=False)
    """Those that are given, by the row id of their message; see ``attachments.with_files``."""

    @property
    def summary(self) -> str:
        return "\n\n".join(summary.text for summary in self.summaries)
