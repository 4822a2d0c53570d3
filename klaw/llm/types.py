"""Values of one LLM call, the same for all providers, and the models that calls go to. No I/O."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import attrs

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@attrs.frozen(kw_only=True)
class ToolCall:
    """The model asks for a tool. ``arguments`` is its text: meant to be JSON, not checked here."""

    id: str
    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class Image:
    data: bytes = attrs.field(repr=False)
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]


@attrs.frozen(kw_only=True)
class Echo:
    """What a provider wants back with a message of its model: signatures, reasoning. Not shown, recalled or exported,
    and sent to no other model. ``calls`` belong to its tool calls, in their order."""

    model: str = ""
    message: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    calls: tuple[Mapping[str, Any], ...] = attrs.field(default=(), repr=False)

    def of_call(self, place: int, count: int) -> Mapping[str, Any]:
        """Nothing where the count is another one."""
        return self.calls[place] if len(self.calls) == count else {}


@attrs.frozen(kw_only=True)
class ChatMessage:
    """One message of the request.

    Args:
        content: may be empty beside tool calls or images.
        tool_call_id: with role tool: the call that it answers.
        images: with role user, and only for a model that takes them.
        stable_chars: of the first system message, for prompt caches: what is the same in the chat's next turn.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    echo: Echo | None = None
    images: tuple[Image, ...] = ()
    stable_chars: int = 0


@attrs.frozen(kw_only=True)
class ToolDescription:
    """A tool offered to the model; ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class JsonSchema:
    """The answer must be a JSON value that fits ``schema``.

    Args:
        name: 1 to 64 letters, digits, ``_`` and ``-``; models are shown it.
        schema: of type object. Each object in it lists all its properties as ``required`` and has
            ``additionalProperties: false``, as every provider takes it.
    """

    name: str
    schema: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Request:
    """One call.

    Args:
        model: the provider's own name of it.
        messages: oldest first, system messages first.
        temperature, max_tokens: None leaves it to the provider.
        json_schema: of the answer; not together with ``tools``.
        stable_messages: how many of the first are sent again with the next request, for prompt caches.
    """

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDescription, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    json_schema: JsonSchema | None = None
    stable_messages: int = 0


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens as counted by the provider. ``prompt_tokens`` includes those that were read from its cache or written to
    it; these are None if it does not say."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


@attrs.frozen
class TextDelta:
    """The next piece of the answer; never empty."""

    text: str


@attrs.frozen
class ReasoningDelta:
    """The next piece of the model's thinking; never empty."""

    text: str


@attrs.frozen
class TakenBack:
    """All text so far was thinking, as only its end showed: the answer begins again. ``text`` is that text."""

    text: str


Delta: TypeAlias = TextDelta | ReasoningDelta | TakenBack


@attrs.frozen(kw_only=True)
class Completion:
    """A finished call.

    Args:
        text: without thinking: the joined ``TextDelta`` behind the last ``TakenBack``. Empty only with tool calls or
            images.
        finish_reason: ``stop``, ``length``, ``tool_calls``, ``content_filter`` or another word of the provider.
        usage: None when the provider does not count.
        model: who answered, ``provider/model``.
        images: files that the model made, unchecked.
        adapted: what the request was sent without, because the model refuses it.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage | None = None
    model: str = ""
    echo: Echo | None = None
    images: tuple[bytes, ...] = attrs.field(default=(), repr=False)
    adapted: tuple[str, ...] = ()


OnDelta: TypeAlias = Callable[[Delta], None]
"""Called for every piece, in order. It must return at once and must not raise."""


class Provider(Protocol):
    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """Send a request and pass on the answer as it arrives.

        A callback and not an async generator, because a generator left half-way through runs its clean-up whenever the
        garbage collector likes.

        Raises:
            ProviderError: what was passed to ``on_delta`` before it is a torn answer.

        Cancellation: the connection is closed at once.
        """
        ...

    async def aclose(self) -> None:
        """Bounded in time. Calls still running fail."""
        ...


@attrs.frozen(kw_only=True)
class Model:
    """A model that can be asked.

    Args:
        name: ``provider/model``; ``model`` is the provider's own name of it.
        context_tokens: prompt and answer together.
        max_output_tokens: never more than ``llm.maxReplyTokens``.
        json_schema: whether the API takes one.
    """

    provider: Provider
    name: str
    model: str
    context_tokens: int
    max_output_tokens: int
    tools: bool
    images: bool = False
    json_schema: bool = True


@attrs.frozen(kw_only=True)
class Route(Model):
    """A model, and those that are asked in turn when it fails before the first delta."""

    stand_ins: tuple[Model, ...] = ()
