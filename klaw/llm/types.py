"""Provider-neutral values of one LLM call: request, deltas, completion. Pure; no I/O and no identity of stored rows."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@attrs.frozen(kw_only=True)
class ToolCall:
    """The model asks for a tool. ``arguments`` is the text that the model wrote: meant to be JSON, not checked here."""

    id: str
    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class ChatMessage:
    """One message of the request.

    ``tool_calls`` only with role assistant; ``tool_call_id`` only with role tool, naming the call it answers.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@attrs.frozen(kw_only=True)
class ToolDescription:
    """A tool offered to the model; ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Request:
    """One call.

    Args:
        model: the provider's own name of the model, without the provider's part.
        messages: oldest first, system messages first.
        tools: what the model may call; empty for none.
        temperature: 0..2; None leaves it to the provider.
        max_tokens: most tokens of the answer; None leaves it to the provider.
    """

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDescription, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens as counted by the provider.

    ``cached_tokens`` is the part of the prompt that it had cached; None if it does not say.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@attrs.frozen
class TextDelta:
    """The next piece of the answer; never empty."""

    text: str


@attrs.frozen
class ReasoningDelta:
    """The next piece of the model's thinking, which is no part of the answer; never empty."""

    text: str


Delta: TypeAlias = TextDelta | ReasoningDelta


@attrs.frozen(kw_only=True)
class Completion:
    """A finished call.

    Args:
        text: the whole answer without thinking; equals the joined ``TextDelta``. May be empty only with tool calls.
        tool_calls: in the order of the provider's index.
        finish_reason: ``stop``, ``length``, ``tool_calls``, ``content_filter`` or another word of the provider.
        usage: None when the provider does not count.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage | None = None
