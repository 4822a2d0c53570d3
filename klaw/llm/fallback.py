"""A chain of models: the next one is asked when one fails before it said anything."""

from collections.abc import Sequence

import attrs
import structlog

from klaw.errors import ContextTooLong, ProviderError
from klaw.llm.adapt import estimate_tokens, schema_in_prompt, without_images, without_tools
from klaw.llm.dialect import EmptyAnswer
from klaw.llm.provider import OnDelta, Provider
from klaw.llm.types import Completion, Delta, Request, Unanswered

log = structlog.get_logger("klaw.llm")


@attrs.frozen(kw_only=True)
class Link:
    """One model of a chain.

    Args:
        provider: who answers; belongs to the router.
        name: the whole name, ``provider/model``.
        model: the provider's own name of the model.
        context_tokens: prompt and answer together.
        max_output_tokens: longest answer.
        tools: whether the model can call tools.
        images: whether the model takes images.
        json_schema: whether the API takes a JSON schema for the answer.
    """

    provider: Provider
    name: str
    model: str
    context_tokens: int
    max_output_tokens: int
    tools: bool
    images: bool
    json_schema: bool = True


class FallbackProvider:
    """See ``klaw.llm.provider.Provider``. Requests are made for the first link and adapted to the others.

    Args:
        links: the models in the order in which they are asked; at least one.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = tuple(links)

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """See ``Provider.stream``. ``Completion.model`` says who answered.

        Raises:
            ContextTooLong: of the first link, or of the one whose turn it is, with its context length; a shorter
                prompt goes through the chain from its beginning.
            ProviderError: all failed; the first link's error.
        """
        begun = False

        def relay(delta: Delta) -> None:
            nonlocal begun
            begun = True
            on_delta(delta)

        first: ProviderError | None = None
        unanswered: list[Unanswered] = []
        for place, link in enumerate(self._links):
            try:
                fit = _adapted(request, link) if place else request
                completion = await link.provider.stream(fit if link.json_schema else schema_in_prompt(fit), relay)
                return attrs.evolve(completion, unanswered=(*unanswered, *completion.unanswered))
            except ContextTooLong as error:
                if place and error.context_tokens is None:
                    error.context_tokens = link.context_tokens
                raise
            except ProviderError as error:
                if isinstance(error, EmptyAnswer):
                    unanswered += [attrs.evolve(each, model=each.model or link.name) for each in error.calls]
                    error.calls = tuple(unanswered)
                if begun:
                    raise
                first = first or error
                log.warning("llm_fallback", model=link.name, code=error.code, attempt=place)
        assert first is not None
        if isinstance(first, EmptyAnswer):
            first.calls = tuple(unanswered)
        raise first

    async def aclose(self) -> None:
        """Does nothing: the links' providers belong to the router."""


def _adapted(request: Request, link: Link) -> Request:
    """The request as the link can take it. Raises ContextTooLong without asking when it surely does not fit."""
    if not link.tools and (request.tools or any(message.role == "tool" for message in request.messages)):
        request = without_tools(request)
    if not link.images and any(message.images for message in request.messages):
        request = without_images(request)
    if estimate_tokens(request) > link.context_tokens:
        error = ContextTooLong("the prompt is too long for the model that stands in", status=400, retryable=False)
        error.context_tokens = link.context_tokens
        raise error
    most = link.max_output_tokens if request.max_tokens is None else min(request.max_tokens, link.max_output_tokens)
    return attrs.evolve(request, model=link.model, max_tokens=most)
