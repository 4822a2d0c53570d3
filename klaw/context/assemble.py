"""Context assembly around the recall: ``plan`` fits the window, ``assemble`` makes the request. Both are pure.

No message falls between window and recall: ``plan`` reserves ``autoRag.maxTokens`` and fits the window into what is
left; the caller searches before the window; ``assemble`` gives the unused reserve back to the window and drops recalled
items that the longer window, or a topic in full, now shows. Likewise with chosen topics (``topics.maxTokens``) and
passages of knowledge bases (``kb.maxTokens``), which make room for the window's newest exchange.
"""

import enum
from itertools import groupby

import attrs

from klaw.context.attachments import with_files
from klaw.context.inputs import Snapshot
from klaw.context.passages import PackedPassages
from klaw.context.passages import pack as pack_passages
from klaw.context.repair import OPENING, repair, spoken
from klaw.context.request import cost, exchanges, fit, is_tool, make_room, shorten
from klaw.context.topics import NO_TOPICS, PackedTopics, Present, pack, without
from klaw.domain import tokens
from klaw.domain.context_used import ContextUsed
from klaw.domain.message import Message
from klaw.domain.search import NOTHING, Decision, RecallOutcome
from klaw.domain.text import CORE_MEMORY_HEADER, RECALL_HEADER, SUMMARY_HEADER, hanging, prose, quoted
from klaw.domain.topic import ChosenTopics
from klaw.llm.providers.adapt import IMAGE_TOKENS, request_tokens
from klaw.llm.types import ChatMessage

FIXED_SHARE = 0.2
"""Prompt files, core memory and summary may each take this share of the usable budget; longer ones are shortened."""
PENDING_SHARE = 0.6
"""The pending messages may take this share, less where prompt files and tools leave less; longer ones are shortened."""
TOPICS_SHARE = 0.2
"""Chosen topics may take this share, whatever ``topics.maxTokens`` is."""
PASSAGES_SHARE = 0.35
"""Passages of knowledge bases may take this share, whatever ``kb.maxTokens`` is."""
_HEADER_TOKENS = tokens.estimate(RECALL_HEADER) + 2
ROOM_FOR_BOTH = 160
"""With less room than this recall has all of it, and topics none."""
ROUNDS_SHARE, ROUNDS_MOST = 0.25, 16_000
"""Kept free for tool calls and results of a turn with tools: this share, at most so many tokens."""


class Guard(enum.StrEnum):
    SEARCH = "search"
    DISABLED = "disabled"
    ALL_IN_CONTEXT = "all_in_context"
    """Every message of the segment is in the window, itself and not in a summary."""


@attrs.frozen(kw_only=True)
class Layer:
    """A layer of the context as the receipt shows it; ``cut``: it was shortened to its share of the budget."""

    name: str
    text: str
    tokens: int
    cut: bool = False


@attrs.frozen(kw_only=True)
class Plan:
    snapshot: Snapshot
    fixed: tuple[Layer, ...]
    pending: tuple[ChatMessage, ...]
    """Joined; where an interrupted turn goes on, its rounds stand after the messages that it answers."""
    pending_tokens: int
    pending_cut: bool
    window: tuple[Message, ...]
    window_tokens: int
    """Estimated tokens that the window may take while what is reserved is kept."""
    guard: Guard
    topics_tokens: int
    recall_tokens: int
    passages_tokens: int = 0

    @property
    def reserved(self) -> int:
        recall = self.recall_tokens + _HEADER_TOKENS if self.recall_tokens else 0
        return self.topics_tokens + self.passages_tokens + recall

    @property
    def search_end_seq(self) -> int:
        """The first seq that the recall must not search."""
        return (self.window or self.snapshot.pending)[0].seq


@attrs.frozen(kw_only=True)
class Context:
    messages: tuple[ChatMessage, ...]
    layers: tuple[Layer, ...]
    window: tuple[Message, ...]
    recalled: RecallOutcome
    tokens: int
    topics: PackedTopics = NO_TOPICS
    chosen: ChosenTopics | None = None
    """None: nobody looked for topics."""
    passages: PackedPassages | None = None
    """None: the chat is bound to no knowledge base, and no file of it says anything."""


def plan(snapshot: Snapshot) -> Plan:
    usable = snapshot.budget.usable
    share = int(_coarse(usable) * FIXED_SHARE)
    fixed = tuple(
        layer(name, text, share)
        for name, text in (
            ("system_prompt", snapshot.system_prompt),
            ("core_memory", headed(CORE_MEMORY_HEADER, snapshot.core_memory)),
            ("summary", headed(SUMMARY_HEADER, snapshot.summary)),
        )
        if text
    )
    if not snapshot.tools_tokens:
        snapshot = attrs.evolve(snapshot, history=_without_tools(snapshot.history), unfinished=())
    left = usable - sum(layer.tokens for layer in fixed) - snapshot.tools_tokens
    limit = max(min(int(usable * PENDING_SHARE), left), int(usable * FIXED_SHARE))
    snapshot = with_files(snapshot, limit)
    pending, pending_cut = _pending(snapshot, limit)
    pending_tokens = request_tokens(pending)
    rounds = min(int(usable * ROUNDS_SHARE), ROUNDS_MOST) if snapshot.tools_tokens else 0
    left -= pending_tokens + rounds
    # What is remembered goes before half of what tools may need. Where there is not room for all, recall and topics
    # take half of it each; where there is hardly any, it is recall's.
    settings, room = snapshot.settings, max(0, left + rounds // 2)
    passages_tokens = 0
    if settings.knowledge_max_tokens:
        before = exchanges(_without_tools(snapshot.history))
        room = max(0, room - (cost(before[-1]) if before and settings.pairs else 0))
        passages_tokens = min(settings.knowledge_max_tokens, int(usable * PASSAGES_SHARE), room)
        room -= passages_tokens
    recall_tokens = settings.recall_max_tokens if settings.recall_enabled else 0
    topics_tokens = min(
        settings.topics_max_tokens,
        int(usable * TOPICS_SHARE),
        max(room // 2 if room >= ROOM_FOR_BOTH else 0, room - recall_tokens - _HEADER_TOKENS)
        if recall_tokens
        else room,
    )
    # Topics come into any chat: what they may push out of the window must be in reach of recall.
    unreserved = _fit(snapshot, left - topics_tokens - passages_tokens)
    if not snapshot.settings.recall_enabled:
        guard = Guard.DISABLED
    elif len(_without_tools(unreserved)) == len(_without_tools(snapshot.history)) and not (
        snapshot.has_older or snapshot.summarised_to
    ):
        guard = Guard.ALL_IN_CONTEXT
    else:
        guard = Guard.SEARCH
    if guard is not Guard.SEARCH:
        recall_tokens = 0
    recall_tokens = max(0, min(recall_tokens, room - topics_tokens - _HEADER_TOKENS))
    planned = Plan(
        snapshot=snapshot,
        fixed=fixed,
        pending=pending,
        pending_tokens=pending_tokens,
        pending_cut=pending_cut,
        window=(),
        window_tokens=left,
        guard=guard,
        topics_tokens=topics_tokens,
        recall_tokens=recall_tokens,
        passages_tokens=passages_tokens,
    )
    least = left - planned.reserved
    return attrs.evolve(planned, window=_fit(snapshot, least), window_tokens=least)


def assemble(
    plan: Plan,
    recalled: RecallOutcome = NOTHING,
    chosen: ChosenTopics | None = None,
    looked_up: ContextUsed | None = None,
) -> Context:
    snapshot = plan.snapshot
    window = plan.window
    topics = pack(chosen, _present(snapshot, window), plan.topics_tokens)
    passages = pack_passages(looked_up, plan.passages_tokens) if looked_up is not None else None
    if plan.reserved:
        used = tokens.estimate(recall_block(recalled)) + topics.tokens + (passages.tokens if passages else 0)
        window = _fit(snapshot, plan.window_tokens + plan.reserved - used)
        topics = without(topics, _present(snapshot, window))
        recalled = _without(recalled, window, topics)
    block = recall_block(recalled)
    stands = [layer for layer in plan.fixed if layer.name != "summary"]
    rest = [layer for layer in plan.fixed if layer.name == "summary"]
    if topics.shown:
        rest.insert(0, Layer(name="topics", text=topics.text, tokens=topics.tokens))
    layers = [*stands, *rest]
    # What changes with every turn stands last, as far as it may: providers' prompt caches keep the part before it.
    stable = len("\n\n".join(layer.text for layer in (stands if topics.shown else layers)))
    if block:
        layers.append(Layer(name="recall", text=block, tokens=tokens.estimate(block)))
    # One system message: models whose template allows only one work too.
    system = "\n\n".join(layer.text for layer in layers)
    messages = [ChatMessage(role="system", content=system, stable_chars=stable)] if system else []
    has_gap = snapshot.settings.names_gap and (snapshot.has_older or len(window) < len(snapshot.history))
    gap = [ChatMessage(role="user", content=OPENING)] * has_gap
    messages += repair([*gap, *spoken(window, snapshot.beside), *_below(passages, plan.pending)])
    if passages is not None and passages.text:
        layers.append(Layer(name="passages", text=passages.text, tokens=passages.tokens))
    layers += [
        Layer(name="window", text="", tokens=cost(window)),
        Layer(name="pending", text="", tokens=plan.pending_tokens, cut=plan.pending_cut),
        Layer(name="tools", text="", tokens=snapshot.tools_tokens),
    ]
    return Context(
        messages=tuple(messages),
        layers=tuple(layers),
        window=window,
        recalled=recalled,
        topics=topics,
        chosen=chosen,
        passages=passages,
        tokens=sum(layer.tokens for layer in layers),
    )


def _below(passages: PackedPassages | None, pending: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    last = max((place for place, message in enumerate(pending) if message.role == "user"), default=None)
    if passages is None or not passages.text or last is None:
        return pending
    asked = attrs.evolve(pending[last], content=f"{passages.text}\n\n{pending[last].content}")
    return (*pending[:last], asked, *pending[last + 1 :])


def recall_block(recalled: RecallOutcome) -> str:
    lines = [f"[{candidate.message.role}] {hanging(candidate.text)}" for candidate in recalled.kept]
    return "\n".join([RECALL_HEADER, *lines]) if lines else ""


def layer(name: str, text: str, max_tokens: int) -> Layer:
    """A layer of the system prompt; a line of a person's that looks like one of ours is marked."""
    shown = shorten(text, max_tokens)
    marked = prose(shown) if name == "system_prompt" else shown
    return Layer(name=name, text=marked, tokens=tokens.estimate(marked), cut=shown != text)


def _coarse(number: int) -> int:
    """The number with its three leading bits only. The usable budget moves a little with every answer, as the token
    estimate learns; a text that is cut to a share of it must not, or no provider's prompt cache would know it again."""
    dropped = max(0, number.bit_length() - 3)
    return number >> dropped << dropped


def headed(header: str, text: str) -> str:
    return f"{header}\n{quoted(text)}" if text else ""


def _fit(snapshot: Snapshot, max_tokens: int) -> tuple[Message, ...]:
    return fit(
        snapshot.history,
        has_older=snapshot.has_older,
        max_messages=len(snapshot.history) if snapshot.settings.hold_uncovered else snapshot.settings.sliding_window,
        max_tokens=max_tokens,
        max_exchanges=None if snapshot.settings.hold_uncovered else snapshot.settings.pairs,
    )


def _present(snapshot: Snapshot, window: tuple[Message, ...]) -> Present:
    rowids = frozenset(message.rowid for message in (*window, *snapshot.pending, *snapshot.unfinished))
    live = snapshot.summaries
    if not live or not snapshot.pending:
        return Present(rowids=rowids)
    return Present(rowids=rowids, summarised=(snapshot.pending[0].chat, live[0].first_seq, live[-1].last_seq))


def _without(recalled: RecallOutcome, window: tuple[Message, ...], topics: PackedTopics) -> RecallOutcome:
    where = dict.fromkeys(topics.whole, Decision.IN_TOPIC)
    where |= {message.rowid: Decision.IN_WINDOW for message in window}
    shown = (
        attrs.evolve(each, decision=where[each.message.rowid]) if each.passed and each.message.rowid in where else each
        for each in recalled.candidates
    )
    return attrs.evolve(recalled, candidates=tuple(shown))


def _without_tools(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(message for message in messages if not is_tool(message))


def _pending(snapshot: Snapshot, limit: int) -> tuple[tuple[ChatMessage, ...], bool]:
    """What stands behind the window, in about ``limit`` tokens at most, and whether it was shortened. A turn that goes
    on after a stop finds what it had done behind the messages that it was for."""
    groups = [
        list(group)
        for _, group in groupby(sorted((*snapshot.pending, *snapshot.unfinished), key=lambda m: m.seq), is_tool)
    ]
    asked = sum(not is_tool(group[0]) for group in groups)
    images = [image for message in snapshot.pending for image in snapshot.beside.get(message.rowid, ())]
    room = limit - IMAGE_TOKENS * len(images)
    shown: list[ChatMessage] = []
    cut = False
    for group in groups:
        if is_tool(group[0]):
            shown += spoken(group)
            continue
        text = "\n".join(message.content for message in group)
        given = tuple(image for message in group for image in snapshot.beside.get(message.rowid, ()))
        shown.append(ChatMessage(role="user", content=shorten(text, room // asked), images=given))
        cut = cut or shown[-1].content != text
    return (make_room(repair(shown), 1, limit) if snapshot.unfinished else tuple(shown)), cut
