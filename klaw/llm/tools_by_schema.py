"""Tools for models that cannot call them by themselves: a provider that asks for calls by a JSON schema."""

import attrs

from klaw.actor.clock import new_id
from klaw.llm.adapt import without_tools
from klaw.llm.calling import ask_by_schema
from klaw.llm.dialect import empty_answer
from klaw.llm.provider import OnDelta, Provider
from klaw.llm.replying import ReplyReader
from klaw.llm.subset import Rules
from klaw.llm.types import Completion, Delta, Request, TextDelta


class ToolsBySchema:
    """See ``klaw.llm.provider.Provider``. Requests with tools become requests for an answer of a given form; to the
    caller the result looks like that of a provider with tools of its own.

    Args:
        inner: who is asked; belongs to the router.
        rules: what its engine takes.
        constrained: whether its API takes a schema; without, the model is told the form and may break it.
    """

    def __init__(self, inner: Provider, rules: Rules, *, constrained: bool = True) -> None:
        self._inner = inner
        self._rules = rules
        self._constrained = constrained

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """See ``Provider.stream``. The text of an answer is passed on as it arrives; calls are not.

        Raises:
            ProviderMalformed: what the model wrote is neither an answer nor a call.
        """
        if not request.tools:
            has_rounds = any(message.role == "tool" or message.tool_calls for message in request.messages)
            return await self._inner.stream(without_tools(request) if has_rounds else request, on_delta)
        reader = ReplyReader(request.tools)

        def relay(delta: Delta) -> None:
            if not isinstance(delta, TextDelta):
                on_delta(delta)
                return
            for text in reader.feed(delta.text):
                on_delta(TextDelta(text))

        asked = ask_by_schema(request, self._rules, constrained=self._constrained)
        completion = await self._inner.stream(asked, relay)
        for text in reader.end():
            on_delta(TextDelta(text))
        calls = reader.calls(new_id)
        if not reader.text.strip() and not calls:
            raise empty_answer(thought=False, reason=completion.finish_reason, usage=completion.usage)
        cut = completion.finish_reason == "length"
        return attrs.evolve(
            completion,
            text=reader.text,
            tool_calls=calls,
            finish_reason="tool_calls" if calls and not cut else completion.finish_reason,
        )

    async def aclose(self) -> None:
        """Does nothing: the inner provider belongs to the router."""
