"""Values of one LLM call, the same for all providers, and the models that calls go to. No I/O."""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import count
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from klaw.domain.message import ThinkingLevel

MAX_TOOL_NAME = 64

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
class Thinking:
    """How much a model that can think is asked to think. ``level`` None leaves it to the model."""

    level: ThinkingLevel | None = None
    tokens: int = 0
    """Most tokens that it may take beside those of the answer."""
    adapts: bool | None = None
    """Whether Anthropic's API is to find out how much is needed, in place of a budget; None: by the model's name."""


@attrs.frozen(kw_only=True)
class Echo:
    """What a provider wants back with a message of its model: signatures, thinking. Not shown, recalled or exported,
    and sent to no other model. Only signatures are stored (``adapt.stored_echo``). ``calls`` belong to its tool calls,
    in their order."""

    model: str = ""
    message: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    calls: tuple[Mapping[str, Any], ...] = attrs.field(default=(), repr=False)

    def of_call(self, place: int, count: int) -> Mapping[str, Any]:
        """Nothing where the count is another one."""
        return self.calls[place] if len(self.calls) == count else {}


@attrs.frozen(kw_only=True)
class ChatMessage:
    role: Role
    content: str
    """May be empty beside tool calls or images."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """The call that a message with role tool answers."""
    echo: Echo | None = None
    images: tuple[Image, ...] = ()
    """With role user, and only for a model that takes them."""
    stable_chars: int = 0
    """How much of the first system message is the same in the chat's next turn, for prompt caches."""


@attrs.frozen(kw_only=True)
class ToolDescription:
    """A tool offered to the model; ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class JsonSchema:
    """The answer must be a JSON value that fits ``schema``, of type object. ``name``, which models are shown, has 1 to
    64 letters, digits, ``_`` and ``-``."""

    name: str
    schema: Mapping[str, Any]
    """Empty: any object."""
    strict: bool = True
    """Each object in it lists all its properties as ``required`` and has ``additionalProperties: false``, as every
    provider takes it."""


@attrs.frozen(kw_only=True)
class ModelOptions:
    """What a program asks of the model for one answer; what is None or empty is left to Klaw."""

    tools: tuple[ToolDescription, ...] = ()
    """Its own, which it carries out itself; names are unique."""
    tool_choice: str = "auto"
    """``auto``, ``none``, ``required``, or the name of the tool that must be called."""
    parallel_calls: bool = True
    """False: at most one of its tools is called at a time."""
    form: JsonSchema | None = None
    """Of the answer."""
    max_tokens: int | None = None
    temperature: float | None = None
    sampling: Mapping[str, Any] = attrs.Factory(dict)
    """By their names in OpenAI's API: ``stop`` (a list), ``seed``, ``top_p``, ``logit_bias``, ``presence_penalty``,
    ``frequency_penalty``. A provider that has no such member refuses the request."""
    thinking: ThinkingLevel | None = None

    @property
    def forced(self) -> str | None:
        """See ``Request.tool_choice``."""
        return None if self.tool_choice in ("auto", "none") else self.tool_choice

    def offered(self, taken: Container[str] = ()) -> dict[str, ToolDescription]:
        """The tools that may be called, by the names under which the model is told of them: those that are ``taken``
        get a prefix."""
        own, named = {tool.name for tool in self.tools}, dict[str, ToolDescription]()
        for tool in self.tools:
            if self.tool_choice in ("auto", "required", tool.name):
                prefixed = (f"client{number or ''}_{tool.name}"[:MAX_TOOL_NAME] for number in count())
                free = (each for each in prefixed if each not in taken and each not in own and each not in named)
                named[next(free) if tool.name in taken else tool.name] = tool
        return named


def is_offered_as(name: str, told: str) -> bool:
    """Whether ``ModelOptions.offered`` may have told a model of the tool under this name."""
    prefix = re.match("client[0-9]*_", told)
    return told == name or (prefix is not None and told == f"{prefix[0]}{name}"[:MAX_TOOL_NAME])


def own_name(told: str, names: Sequence[str]) -> str:
    """The one of a program's ``names`` for the tool that a model calls so, or else what the model was told."""
    return told if told in names else next((each for each in names if is_offered_as(each, told)), told)


@attrs.frozen(kw_only=True)
class Request:
    """One call. ``temperature`` or ``max_tokens`` None leaves it to the provider."""

    model: str
    """The provider's own name of it."""
    messages: tuple[ChatMessage, ...]
    """Oldest first, system messages first."""
    tools: tuple[ToolDescription, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    """Of the answer; ``adapt.fitted`` adds those of thinking."""
    most_tokens: int | None = None
    """Of answer and thinking together, where a limit of the caller's leaves no more."""
    thinking: Thinking | None = None
    """None: the model is not known to think, and nothing is said of it."""
    json_schema: JsonSchema | None = None
    """The form that the answer must have."""
    tool_choice: str | None = None
    """``required``, or the name of the tool that must be called; None: as the model likes."""
    parallel_calls: bool = True
    sampling: Mapping[str, Any] = attrs.Factory(dict)
    """See ``ModelOptions.sampling``."""
    context_tokens: int | None = None
    """The context that the model is to be loaded with: only Ollama can be asked for one."""
    stable_messages: int = 0
    """How many of the first are sent again with the next request, for prompt caches."""


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens as counted by the provider. Those of its cache are part of the prompt; None if it does not say."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    thinking_tokens: int | None = None
    """A part of the completion."""


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
    text: str
    """The ``TextDelta`` behind the last ``TakenBack``, joined. Empty only with tool calls or images."""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    """``stop``, ``length``, ``tool_calls``, ``content_filter`` or another word of the provider."""
    usage: Usage | None = None
    """None when the provider does not count."""
    model: str = ""
    """Who answered, ``provider/model``."""
    echo: Echo | None = None
    images: tuple[bytes, ...] = attrs.field(default=(), repr=False)
    """Files that the model made, unchecked."""
    thinking_tokens: int = 0
    """Estimated where the provider does not count them."""
    adapted: tuple[str, ...] = ()
    """What the request was sent without, because the model refuses it."""


OnDelta: TypeAlias = Callable[[Delta], None]
"""Called for every piece, in order. It must return at once and must not raise."""


class Provider(Protocol):
    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """Send a request and pass on the answer as it arrives. Raises ProviderError: what ``on_delta`` got is torn. No
        async generator: one left half-way through runs its clean-up whenever the garbage collector likes."""
        ...

    async def aclose(self) -> None:
        """Bounded in time. Calls still running fail."""
        ...


@attrs.frozen(kw_only=True)
class Model:
    """A model that can be asked, and whether it takes tools, images and a JSON schema."""

    provider: Provider
    name: str
    """``provider/model``; ``model`` is the provider's own name of it."""
    model: str
    context_tokens: int
    """Prompt and answer together."""
    max_output_tokens: int
    """Never more than ``llm.maxReplyTokens``."""
    tools: bool
    images: bool = False
    json_schema: bool = True
    loads_context: bool = False
    """Each request asks for ``context_tokens`` (``Request.context_tokens``)."""
    thinking: Thinking | None = None
    """None: it is not known to think."""

    @property
    def thinking_tokens(self) -> int:
        return self.thinking.tokens if self.thinking is not None else 0


@attrs.frozen(kw_only=True)
class Route(Model):
    """A model, and those that are asked in turn when it fails before the first delta."""

    stand_ins: tuple[Model, ...] = ()
