"""Provider-neutral values of one LLM call: request, deltas, completion; what every provider offers to the rest of Klaw,
and the models that calls go to. No I/O and no identity of stored rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import attrs

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@attrs.frozen(kw_only=True)
class ToolCall:
    """The model asks for a tool. ``arguments`` is the text that the model wrote: meant to be JSON, not checked here."""

    id: str
    name: str
    arguments: str


@attrs.frozen(kw_only=True)
class Image:
    """A picture that is part of a message: the bytes of the file as it is."""

    data: bytes = attrs.field(repr=False)
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]


@attrs.frozen(kw_only=True)
class Echo:
    """What a provider wants back, as it came, with a message of its model: signatures, reasoning. Neither shown nor
    recalled nor exported, and sent to no other model.

    Args:
        model: whose it is, ``provider/model``.
        message: members of the message.
        calls: members of its tool calls, in their order.
    """

    model: str = ""
    message: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    calls: tuple[Mapping[str, Any], ...] = attrs.field(default=(), repr=False)

    def of_call(self, place: int, count: int) -> Mapping[str, Any]:
        """The members of one of ``count`` calls; none where these are others."""
        return self.calls[place] if len(self.calls) == count else {}


@attrs.frozen(kw_only=True)
class ChatMessage:
    """One message of the request.

    Args:
        role: who speaks.
        content: the text; may be empty beside tool calls or images.
        tool_calls: only with role assistant.
        tool_call_id: only with role tool: the call that it answers.
        echo: only with role assistant.
        images: only with role user, and only for a model that takes them (``Route.images``).
        stable_chars: so many characters of the beginning are the same in the chat's next turn; for the prompt caches
            of providers that want to be told. Only read of the first system message.
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
        schema: JSON schema of type object. What every provider takes: each object lists all its properties as
            ``required`` and has ``additionalProperties: false``.
    """

    name: str
    schema: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Request:
    """One call.

    Args:
        model: the provider's own name of the model, without the provider's part.
        messages: oldest first, system messages first.
        tools: what the model may call; empty for none.
        temperature: 0..2; None leaves it to the provider.
        max_tokens: most tokens of the answer; None leaves it to the provider.
        json_schema: what the text of the answer must be; not together with ``tools``.
        stable_messages: so many of the first messages will be sent again unchanged with the next request, as in a
            round of tool calls; for the prompt caches of providers that want to be told. 0 if none will.
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
    """Tokens as counted by the provider.

    Args:
        prompt_tokens: the whole prompt, whether cached or not.
        completion_tokens: text, thinking and tool calls.
        cached_tokens: the part of the prompt that was read from the provider's cache; None if it does not say.
        cache_write_tokens: the part of the prompt that was written to it, which some charge for; None if it does not
            say.
    """

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
    """The next piece of the model's thinking, which is no part of the answer; never empty."""

    text: str


@attrs.frozen
class TakenBack:
    """All text so far was thinking, as only its end showed: the answer begins anew. ``text`` is what was said."""

    text: str


Delta: TypeAlias = TextDelta | ReasoningDelta | TakenBack


@attrs.frozen(kw_only=True)
class Completion:
    """A finished call.

    Args:
        text: the whole answer without thinking; equals the joined ``TextDelta`` behind the last ``TakenBack``. May be
            empty only with tool calls or images.
        tool_calls: in the order of the provider's index.
        finish_reason: ``stop``, ``length``, ``tool_calls``, ``content_filter`` or another word of the provider.
        usage: None when the provider does not count.
        model: who answered, ``provider/model``; another one than was asked first if that one failed.
        echo: what must come back with the message; None for nothing.
        images: pictures that the model made: files, unchecked.
        adapted: what the request had to do without or was changed in, because the model refuses it.
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
"""Called for every piece as it arrives, in order. It must return at once and must not raise."""


class Provider(Protocol):
    """One place that answers requests. Safe to use from many tasks at once."""

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """Send a request and pass on the answer as it arrives.

        A callback and not an async generator, because a generator left half-way through runs its clean-up whenever the
        garbage collector likes.

        Args:
            request: what to ask; ``request.model`` is the provider's own name.
            on_delta: see ``OnDelta``.

        Returns:
            The finished answer.

        Raises:
            ProviderError: one of its subclasses; what was passed to ``on_delta`` before it is a torn answer.

        Cancellation: the connection is closed at once; what was passed to ``on_delta`` stays passed.
        """
        ...

    async def aclose(self) -> None:
        """Close idle connections, bounded in time. Calls still running fail."""
        ...


@attrs.frozen(kw_only=True)
class Model:
    """A model that can be asked.

    Args:
        provider: who answers; belongs to the router, and is shared by all its models.
        name: the whole name, ``provider/model``.
        model: the provider's own name of it, for ``Request.model``.
        context_tokens: prompt and answer together.
        max_output_tokens: longest answer; never more than ``llm.maxReplyTokens``.
        tools: whether it can call tools.
        images: whether it takes images.
        json_schema: whether the API takes a JSON schema for the answer.
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
    """Where a call goes: a model, and those that are asked in turn when it fails before it says anything."""

    stand_ins: tuple[Model, ...] = ()
