"""The size of a request, and adapting it to another model: one that stands in, or one that refuses a part of it. Pure.

Servers of one API take different parts of it. A refusal names what is wrong, the request is sent again without it, and
if that is answered, the next ones are made so from the beginning (``Habits``).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import attrs

from klaw.convert import Form
from klaw.domain import tokens
from klaw.domain.message import ECHO
from klaw.domain.text import one_line, quoted
from klaw.llm.errors import ContextTooLong
from klaw.llm.providers.thinking_members import MEMBERS, effort_word
from klaw.llm.types import ChatMessage, Echo, Model, Request, ToolCall, ToolDescription

IMAGE_TOKENS = 1_600
"""The largest images of the providers that say so; smaller ones cost less."""
SCHEMA_WANTED = "Answer with one JSON value and nothing else. It must fit this JSON schema:"
NO_IMAGE = "[an image that this model cannot see]"


def fitted(request: Request, model: Model, *, stands_in: bool) -> Request:
    """The request as a model of its route can take it. Raises ContextTooLong: one that stands in surely cannot."""
    own = tuple(
        attrs.evolve(each, echo=None) if each.echo is not None and each.echo.model != model.name else each
        for each in request.messages
    )
    request = attrs.evolve(request, messages=own, thinking=model.thinking)
    if stands_in:
        if not model.tools and (request.tools or any(message.role == "tool" for message in request.messages)):
            request = without_tools(request)
        if not model.images and any(message.images for message in request.messages):
            request = attrs.evolve(request, messages=images_as_text(request.messages))
        if request_tokens(request.messages) > model.context_tokens:
            raise ContextTooLong("the prompt is too long for the model that stands in", status=400, retryable=False)
        most = request.max_tokens if request.max_tokens is not None else model.max_output_tokens
        request = attrs.evolve(request, model=model.model, max_tokens=min(most, model.max_output_tokens))
    if model.thinking_tokens and request.max_tokens is not None:
        most = request.max_tokens + model.thinking_tokens
        request = attrs.evolve(request, max_tokens=min(most, request.most_tokens or most))
    if model.loads_context:
        request = attrs.evolve(request, context_tokens=model.context_tokens)
    return request if model.json_schema else schema_in_prompt(request)


def without_tools(request: Request) -> Request:
    """The request for a model that cannot call tools: calls and results so far become plain text."""
    return attrs.evolve(request, messages=rounds_as_text(request.messages), tools=(), stable_messages=0)


def rounds_as_text(
    messages: Sequence[ChatMessage], keep: Callable[[ChatMessage], bool] = lambda _message: False
) -> tuple[ChatMessage, ...]:
    """The messages with calls and results as plain text. ``keep``: whether the calls of a message stay calls."""
    plain: list[ChatMessage] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    kept = {call.id for message in messages if message.tool_calls and keep(message) for call in message.tool_calls}
    for message in messages:
        if message.tool_call_id in kept or (message.tool_calls and message.tool_calls[0].id in kept):
            plain.append(message)
        elif message.role == "tool":
            name = names.get(message.tool_call_id or "", "a tool")
            _join(plain, ChatMessage(role="user", content=f"Result of {one_line(name)}:\n{quoted(message.content)}"))
        elif message.tool_calls:
            used = (f"I use {call.name} with {call.arguments}" for call in message.tool_calls)
            content = "\n".join([message.content, *used]).strip()
            _join(plain, ChatMessage(role="assistant", content=content))
        else:
            plain.append(message)
    return tuple(plain)


def _join(plain: list[ChatMessage], told: ChatMessage) -> None:
    if plain and plain[-1].role == told.role and not plain[-1].images and not plain[-1].tool_calls:
        before = plain.pop()
        told = attrs.evolve(before, content=f"{before.content}\n{told.content}")
    plain.append(told)


def system_as_user(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """For a template without system messages: they become the beginning of the first user message."""
    told = [message.content for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    if not others or others[0].role != "user":
        return (ChatMessage(role="user", content="\n\n".join(told)), *others)
    return (attrs.evolve(others[0], content="\n\n".join([*told, others[0].content])), *others[1:])


def images_as_text(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    def text(message: ChatMessage) -> str:
        return "\n".join(filter(None, [message.content, *[NO_IMAGE] * len(message.images)]))

    return tuple(attrs.evolve(message, content=text(message), images=()) for message in messages)


def schema_in_prompt(request: Request) -> Request:
    """For an API that takes no JSON schema: the prompt asks for it."""
    if request.json_schema is None:
        return request
    schema = dict(request.json_schema.schema) or {"type": "object"}
    wanted = f"{SCHEMA_WANTED}\n{json.dumps(schema, ensure_ascii=False)}"
    last = request.messages[-1]
    asked = attrs.evolve(last, content=f"{last.content}\n\n{wanted}")
    return attrs.evolve(request, messages=(*request.messages[:-1], asked), json_schema=None)


def call_tokens(calls: Sequence[ToolCall]) -> int:
    return sum(tokens.estimate(call.name + call.arguments) + tokens.PER_MESSAGE for call in calls)


def stored_echo(echo: Echo | None) -> dict[str, Any] | None:
    """What is kept of an echo beside calls, for later turns: signatures, and nothing of the thinking."""
    calls = [_signatures(call) for call in echo.calls] if echo is not None else []
    return {"model": echo.model, "message": {}, "calls": calls} if echo is not None and any(calls) else None


def echo_of(metadata: Mapping[str, Any]) -> Echo | None:
    """The echo of a stored message; of those that older versions stored, the signatures alone."""
    kept = metadata.get(ECHO)
    if not isinstance(kept, dict):
        return None
    model, calls = kept.get("model"), kept.get("calls")
    if not isinstance(model, str) or not isinstance(calls, list):
        return None
    signatures = tuple(_signatures(call) for call in calls)
    return Echo(model=model, calls=signatures) if any(signatures) else None


def _signatures(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    found = {
        key: inner if isinstance(inner, str) else _signatures(inner)
        for key, inner in value.items()
        if not isinstance(inner, str) or "signature" in key
    }
    return {key: inner for key, inner in found.items() if inner}


def echo_tokens(echo: Echo | None) -> int:
    return tokens.estimate(json.dumps([echo.message, echo.calls], ensure_ascii=False)) if echo is not None else 0


def message_tokens(message: ChatMessage) -> int:
    beside = IMAGE_TOKENS * len(message.images) + echo_tokens(message.echo)
    return tokens.estimate(message.content) + call_tokens(message.tool_calls) + beside + tokens.PER_MESSAGE


def request_tokens(messages: Sequence[ChatMessage]) -> int:
    return sum(map(message_tokens, messages))


PER_TOOL = 8


def tools_tokens(tools: Sequence[ToolDescription]) -> int:
    return sum(
        tokens.estimate(tool.name + tool.description + json.dumps(tool.parameters, ensure_ascii=False)) + PER_TOOL
        for tool in tools
    )


MAX_TRIES = 6
LEAST_TOKENS = 16
"""A smaller number in a refusal is not meant as the length of an answer."""

_REFUSALS = frozenset({400, 404, 405, 422, 424, 500, 501, 503})
_NAMES_FIELDS = frozenset({400, 422})
_LENGTHS = ("max_tokens", "max_completion_tokens")
_NOT = (
    r"(?:not (?:\w+ ){0,2}(?:support|enable|allow|avail|permit|implement|accept)|n['o]t support|unsupported|unavailable"
    r"|no endpoints|unrecognized|unknown|unexpected|requires?\b|only support|extra (?:inputs|fields)|extra_forbidden"
    r"|disabled|invalid parameter|must be (?:null|empty))"
)
_TOOLS = r"(?:\btools?\b|tool[-_ ](?:us|call|choice)|function[-_ ]?call|\bfunctions?\b)"
_NO_TOOLS = re.compile(rf"{_TOOLS}.{{0,120}}{_NOT}|{_NOT}.{{0,120}}{_TOOLS}", re.IGNORECASE | re.DOTALL)
_OF_HISTORY = re.compile(
    r"schema|(?:messages?|tools?)(?:\[|\.\d)|messages? with|must be followed|prece|tool_call_id|\brole\b", re.IGNORECASE
)
"""About one tool, or about earlier calls: not that there are tools at all."""
_NO_SYSTEM = re.compile(
    r"(?:system|developer)['`\" ]*(?:role|message|prompt|instruction)?s?.{0,60}(?:not |n't |unsupported)"
    r"|not support ['`\"]?system|unsupported.{0,40}\bsystem\b",
    re.IGNORECASE | re.DOTALL,
)
_TEMPLATE = re.compile(r"template|jinja|roles? must|tool_call|role.{0,20}tool|parse", re.IGNORECASE)
_NO_SCHEMA = re.compile(r"response.?format|json.?schema|structured.output|output_config|\bguided", re.IGNORECASE)
_NOT_OF_HISTORY = re.compile(
    r"image|vision|picture|content.?(?:filter|management)|moderation|api.?key"
    r"|model.{0,60}(?:not (?:found|exist)|n't exist)",
    re.IGNORECASE | re.DOTALL,
)
_TOO_LONG_ANSWER = re.compile(
    r"max(?:_completion|_output)?_tokens['`\"]?(?: or ['`\"]?\w+['`\"]?)? is too large", re.IGNORECASE
)
_THINKS = re.compile(r"\br1\b|qwq|think|reason", re.IGNORECASE)
_IS_REFUSED = re.compile(_NOT, re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Habits:
    """What one model takes."""

    without: Annotated[frozenset[str], Form(frozenset, sorted)] = frozenset()
    """Members of the body that are left out."""
    renamed: bool = False
    """The longest answer is called ``max_completion_tokens``."""
    most_tokens: int | None = None
    tools: bool = True
    schema: bool = True
    system: bool = True
    echoes: bool = True
    """The provider accepts what it sent beside its tool calls."""
    rounds: int = 0
    """Earlier calls and results that become text: 1 those of other models, 2 all."""
    unopened: bool | None = None
    """It leaves out the tag that opens its thinking; None: unknown."""
    adapts: bool | None = None
    """``Thinking.adapts``, as a refusal told."""
    efforts: Mapping[str, str] = attrs.Factory(dict)
    """Words for ``reasoning_effort`` that it takes in place of others."""
    at: str = attrs.field(default="", eq=False)
    """When that was found (ISO-8601 UTC); empty: just now."""

    def holds(self, model: str) -> bool:
        """Whether its answers are held back until the thinking has ended; if unknown, by its name."""
        return bool(_THINKS.search(model)) if self.unopened is None else self.unopened

    def fitted(self, request: Request) -> Request:
        if self.adapts is not None and request.thinking is not None:
            request = attrs.evolve(request, thinking=attrs.evolve(request.thinking, adapts=self.adapts))
        if not self.echoes:
            request = attrs.evolve(request, messages=tuple(attrs.evolve(each, echo=None) for each in request.messages))
        if not self.tools:
            request = without_tools(request)
        elif self.rounds:
            plain = rounds_as_text(request.messages, keep=lambda said: self.rounds == 1 and said.echo is not None)
            request = attrs.evolve(request, messages=plain, stable_messages=0)
        if not self.schema:
            request = schema_in_prompt(request)
        if not self.system:
            request = attrs.evolve(request, messages=system_as_user(request.messages))
        if self.most_tokens is not None:
            most = min(self.most_tokens, request.max_tokens or self.most_tokens)
            request = attrs.evolve(request, max_tokens=most)
        return request

    def members(self, request: Request) -> Mapping[str, Any]:
        """What changes in the body, see ``Dialect.body``."""
        gone: dict[str, Any] = dict.fromkeys(self.without)
        if self.renamed and not self.without.intersection(_LENGTHS):
            gone |= {"max_tokens": None, "max_completion_tokens": request.max_tokens}
        level = request.thinking.level if request.thinking is not None else None
        if level is not None and (word := self.efforts.get(effort_word(level))) and "reasoning_effort" not in gone:
            gone["reasoning_effort"] = word
        return gone

    def told(self) -> tuple[str, ...]:
        """What the model is asked without, for status and receipts."""
        named = {"tools": self.tools, "json_schema": self.schema, "system": self.system, "reasoning": self.echoes}
        changed = {*self.without, *(name for name, takes in named.items() if not takes)}
        if self.renamed or self.most_tokens is not None:
            changed.add("max_tokens")
        if self.rounds and self.tools:
            changed.add("earlier_calls")
        return tuple(sorted(changed))


def learned(known: Habits, request: Request, *, status: int, text: str, fields: frozenset[str]) -> Habits | None:
    """What to try after the refusal of a request that was made as ``known``; None: nothing. ``text`` is the provider's,
    with its code and the parameter that it names; ``fields`` are the members of the body that are Klaw's own."""
    if status not in _REFUSALS:
        return None
    called = any(message.tool_calls or message.role == "tool" for message in request.messages)
    if status in _NAMES_FIELDS and (changed := _asked_to_think_otherwise(known, request, text, fields)) is not None:
        return changed
    asks_for_tools = request.tool_choice is None and (request.tools or called)
    if known.tools and asks_for_tools and _NO_TOOLS.search(text) and not _OF_HISTORY.search(text):
        return attrs.evolve(known, tools=False)
    if status in _NAMES_FIELDS:
        echoes = [message.echo for message in request.messages if message.echo is not None]
        echoed = {key for echo in echoes for holder in (echo.message, *echo.calls) for key in holder}
        if known.echoes and any(key in text for key in echoed) and _IS_REFUSED.search(text):
            return attrs.evolve(known, echoes=False)
        if (changed := _without_member(known, request, text, fields - MEMBERS)) is not None:
            return changed
        if known.system and request.messages[0].role == "system" and _NO_SYSTEM.search(text):
            return attrs.evolve(known, system=False)
    of_form = status in _NAMES_FIELDS or (status == 500 and _TEMPLATE.search(text))
    if called and known.tools and of_form and not _NOT_OF_HISTORY.search(text):
        for rounds in range(known.rounds + 1, 3):
            tried = attrs.evolve(known, rounds=rounds)
            if tried.fitted(request).messages != known.fitted(request).messages:
                return tried
    return None


_EFFORT = re.compile(r"\b(none|minimal|low|medium|high|default)\b")
_EFFORTS = ("none", "minimal", "low", "medium", "default", "high")
_OF_THINKING = re.compile(r"think|reasoning|effort", re.IGNORECASE)
_OF_THOUGHTS = re.compile(r"reasoning_content|signature|redacted|passed back|expected `?thinking", re.IGNORECASE)
"""About thinking that is to go back, not about how much there is to be."""
_REFUSES_TO = re.compile(rf"{_NOT}|mandatory|cannot|can't|invalid|must\b|greater|less|permitted", re.IGNORECASE)


def _asked_to_think_otherwise(known: Habits, request: Request, text: str, fields: frozenset[str]) -> Habits | None:
    """It was asked to think in a way that it cannot, or not together with tools."""
    sent = fields & MEMBERS - known.without
    if request.thinking is None or not sent or _OF_THOUGHTS.search(text) or not _OF_THINKING.search(text):
        return None
    if not _REFUSES_TO.search(text):
        return None
    if "thinking" in sent and known.adapts is None and re.search(r"adaptive|effort", text):
        # The forms of older and newer models; who names the other one refuses this one.
        return attrs.evolve(known, adapts="output_config" not in fields)
    if "reasoning_effort" in sent and request.thinking.level is not None:
        asked = effort_word(request.thinking.level)
        wanted = _EFFORTS.index(asked)
        taken = sorted({*_EFFORT.findall(text)} - {asked}, key=lambda word: abs(_EFFORTS.index(word) - wanted))
        if taken and asked not in known.efforts:
            return attrs.evolve(known, efforts={**known.efforts, asked: taken[0]})
    named = frozenset(field for field in sent if re.search(rf"\b{field}\b", text))
    return attrs.evolve(known, without=known.without | (named or sent))


def is_about_length(text: str) -> bool:
    """The asked length of the answer is too large, not the prompt."""
    return bool(_TOO_LONG_ANSWER.search(text))


def _without_member(known: Habits, request: Request, text: str, fields: frozenset[str]) -> Habits | None:
    named = {field for field in fields - known.without if re.search(rf"\b{field}\b", text)}
    if named.intersection(_LENGTHS):
        if "max_completion_tokens" in text and "max_completion_tokens" not in fields and not known.renamed:
            return attrs.evolve(known, renamed=True)
        asked = min(known.most_tokens or request.max_tokens or 0, request.max_tokens or 0)
        numbers = [int(each) - ("exclusive" in text) for each in re.findall(r"\b\d{2,7}\b", text)]
        most = max((each for each in numbers if LEAST_TOKENS <= each < asked), default=None)
        if most is not None and not is_about_length(text):
            return attrs.evolve(known, most_tokens=most)
        return attrs.evolve(known, without=known.without.union(_LENGTHS))
    if known.schema and request.json_schema is not None and _NO_SCHEMA.search(text):
        return attrs.evolve(known, schema=False)
    plain = named - {"model", "messages", "tools", "system", "stream"}
    if "stream" in named and re.search(r"['`\"]stream['`\"]|to stream|parameter:? stream\b|body\.stream\b", text):
        plain |= {"stream", "stream_options"} & fields
    return attrs.evolve(known, without=known.without | plain) if plain else None
