"""What every provider of language models offers to the rest of Klaw, and the models that calls go to."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import attrs

from klaw.llm.types import Completion, Delta, Request

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
