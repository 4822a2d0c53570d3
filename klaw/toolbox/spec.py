"""What a tool is: its name, its description, its parameters, what it may do, and the function behind it. ``tool`` makes
one of an async function (docs/contributing.md); MCP servers bring their own JSON schema."""

import enum
import inspect
import json
import re
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

import attrs

from klaw.convert import Converter
from klaw.domain.names import ChatId, UserId, is_group
from klaw.domain.task import TaskName
from klaw.errors import ToolRefused
from klaw.json_schema import schema_of
from klaw.llm.types import Image, ToolDescription
from klaw.toolbox.web_sources import WebSources

_NO_SAVING = frozenset({"send_message", "web_fetch", "web_search"})
"""Tools that may change or reach something, but never keep anything for the user."""


@attrs.define(eq=False)
class Trail:
    """What the tools of one turn or run have done so far, for origins, citations and the check of claims."""

    outside: bool = False
    """Something from outside (the web, an MCP server, a program) may have been read: the model may write its words."""
    wrote: bool = False
    """A tool that keeps or schedules something has succeeded."""
    sources: WebSources = attrs.Factory(WebSources)
    """The pages that were found or fetched."""

    def succeeded(self, name: str, *, changes: bool) -> None:
        """``changes``: the tool may write."""
        self.wrote |= changes and name not in _NO_SAVING


MAX_NAME = 64
NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")

_SECTION = re.compile(r"\n\s*(Args|Returns|Raises|Yields|\*?Cancellation\*?):", re.IGNORECASE)
ARGUMENTS = Converter(forbid_unknown=True, lenient=True)


class Permission(enum.StrEnum):
    """The most that a tool may do: read or change what belongs to the user, reach out of Klaw (to the network, another
    program), or what the user is asked about before each call."""

    READ = "read"
    WRITE = "write"
    EXTERNAL = "external"
    APPROVAL = "approval"


class HasDeadline(Protocol):
    """Trio's ``CancelScope``."""

    deadline: float


@attrs.frozen(kw_only=True)
class ToolContext:
    """For whom and where a call is made. A tool sees and changes only what belongs to ``user``."""

    user: UserId
    chat: ChatId | None
    """None, like ``turn``, in a run; ``run`` is None in a chat's turn."""
    turn: str | None = None
    run: str | None = None
    task: TaskName | None = None
    deliver_to: ChatId | None = None
    """The chat that gets the result of the run (``injectInto``)."""
    depth: int = 0
    """0 in a chat's turn and in a task's run, one more for each subagent above."""
    model: str = ""
    """``provider/model``."""
    sees: bool = False
    """The model takes pictures."""
    call: str = ""
    """Id of the call; the executor fills it in, and that the user has ``allowed`` it."""
    before_seq: int | None = None
    """The first message that the turn answers: a search leaves it out."""
    trail: Trail = attrs.field(factory=Trail, repr=False)
    allowed: bool = False
    scope: "HasDeadline | None" = attrs.field(default=None, repr=False)
    """Of the call; what waits for a person puts its deadline off."""
    temporary: bool = False
    """In a temporary chat: no tool that writes is offered, and none that shows what other chats left."""


@attrs.frozen
class ToolFailure:
    """What was wrong and what to do, for the model."""

    text: str

    @classmethod
    def of(cls, why: object) -> "ToolFailure":
        return cls(str(why) if str(why).endswith((".", "?", "!")) else f"{why}.")


@attrs.frozen(kw_only=True)
class PicturedText:
    """A text that mentions the pictures beside it, for models that see."""

    text: str
    pictures: tuple[Image, ...]


Arguments: TypeAlias = Mapping[str, Any]
ToolResult: TypeAlias = Any
"""A text, a PicturedText, a ToolFailure, or anything that JSON can hold (it is shown to the model as JSON)."""
Invoke: TypeAlias = Callable[[ToolContext, Arguments], Awaitable[ToolResult]]
Bind: TypeAlias = Callable[[Arguments], Arguments]
When: TypeAlias = Callable[[ToolContext], bool]
Question: TypeAlias = Callable[[ToolContext, Arguments], Awaitable[str | None]]
"""What the user is asked before a call; None if this one needs no permission. Raises ToolRefused."""
Lasting: TypeAlias = Callable[[ToolContext, Arguments], Awaitable[bool]]
"""Whether a call changes what later prompts are made of: facts, core memory, tasks, prompt files, other chats. Then it
needs the user's permission once something from outside was read (``executor.permission_asked``)."""


@attrs.frozen(kw_only=True)
class ToolSpec:
    name: str = attrs.field(validator=attrs.validators.matches_re(NAME))
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of type object."""
    permission: Permission
    invoke: Invoke = attrs.field(repr=False)
    """Carries out a call. It may raise; the model is told the error's class, or the text of a KlawError."""
    bind: Bind = attrs.field(default=lambda arguments: arguments, repr=False)
    """Turns the JSON object that the model wrote into what ``invoke`` gets. Raises BadValue."""
    timeout_s: float | None = None
    """The deadline of one call; None: ``tools.timeoutSeconds``."""
    when: When | None = attrs.field(default=None, repr=False)
    """Whether it is offered in a context; None for always."""
    question: Question | None = attrs.field(default=None, repr=False)
    """For ``APPROVAL``: what the user is asked; None shows the name and the arguments."""
    origin: str = "tool"
    """Where its text comes from; stored with each result. Never a fact about the user."""
    foreign: bool = False
    """Its text is somebody else's, whatever the permission."""
    lasting: Lasting | bool = attrs.field(default=False, repr=False)
    ends: Callable[[], str] = attrs.field(default=str, repr=False)
    """Makes the end of the description, which may change from turn to turn."""

    @property
    def reaches_out(self) -> bool:
        """What it brings may be from outside of Klaw."""
        return self.foreign or self.permission in (Permission.EXTERNAL, Permission.APPROVAL)

    @property
    def told(self) -> ToolDescription:
        return ToolDescription(name=self.name, description=self.description + self.ends(), parameters=self.parameters)


def call_text(spec: ToolSpec, arguments: Arguments) -> str:
    def plain(value: Any) -> object:
        return attrs.asdict(value) if attrs.has(type(value)) else str(value)

    return f"{spec.name} {json.dumps(dict(arguments), ensure_ascii=False, default=plain)}"


def tool(
    *,
    permission: Permission,
    name: str | None = None,
    timeout_s: float | None = None,
    when: When | None = None,
    lasting: Lasting | bool | None = None,
    arguments: type[attrs.AttrsInstance] | None = None,
) -> Callable[[Callable[..., Awaitable[ToolResult]]], ToolSpec]:
    """Make a tool of an async function. Raises TypeError: no docstring, no context, or a parameter of another type.

    Its first parameter is the ``ToolContext``; the others are keyword parameters of the types that ``schema_of`` knows,
    which ``Annotated[str, "what it means", Bounds(at_most=100)]`` describes and bounds. The docstring, up to its first
    section (``Args:`` …), is the description. The text of a ``ToolRefused`` that it raises is its answer.

    Args:
        lasting: None: every call of a tool that writes lasts.
        arguments: an attrs class whose fields are the parameters; the function takes them as ``**given``.
    """

    def decorate(function: Callable[..., Awaitable[ToolResult]]) -> ToolSpec:
        own_name = name or function.__name__
        description = _SECTION.split(inspect.getdoc(function) or "", maxsplit=1)[0].strip()
        if not description:
            raise TypeError(f"the tool {own_name} needs a docstring: it is what the model is told")
        kind = arguments or _arguments(own_name, function)
        names = tuple(attrs.fields_dict(kind))

        def bind(given: Arguments) -> Arguments:
            made = ARGUMENTS.read(given, kind)
            return {name: getattr(made, name) for name in names if given.get(name) is not None}

        async def invoke(context: ToolContext, arguments: Arguments) -> ToolResult:
            try:
                return await function(context, **arguments)
            except ToolRefused as refused:
                return ToolFailure.of(refused)

        return ToolSpec(
            name=own_name,
            description=description,
            parameters=schema_of(kind),
            permission=permission,
            invoke=invoke,
            bind=bind,
            timeout_s=timeout_s,
            when=when,
            lasting=permission is Permission.WRITE if lasting is None else lasting,
        )

    return decorate


def _arguments(tool_name: str, function: Callable[..., Any]) -> type[attrs.AttrsInstance]:
    """A class of a function's parameters. Raises TypeError: a parameter has no type."""
    _, *parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function, include_extras=True)
    members: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name not in hints:
            raise TypeError(f"the tool {tool_name} needs a type for {parameter.name}")
        default = attrs.NOTHING if parameter.default is inspect.Parameter.empty else parameter.default
        members[parameter.name] = attrs.field(type=hints[parameter.name], default=default)
    return attrs.make_class(tool_name, members, frozen=True, kw_only=True)


class Toolbox:
    """Tools by name; ``disabled`` are patterns such as ``github__*`` that are never offered."""

    def __init__(self, disabled: Iterable[str] = ()) -> None:
        self.disabled = tuple(disabled)
        self._specs: dict[str, ToolSpec] = {}

    def register(self, *specs: ToolSpec) -> None:
        """Raises ValueError: a name is taken; then none is added."""
        names = [spec.name for spec in specs]
        taken = next((name for name in names if name in self._specs or names.count(name) > 1), None)
        if taken is not None:
            raise ValueError(f"there is a tool {taken} already")
        self._specs |= {spec.name: spec for spec in specs}

    def remove(self, *names: str) -> None:
        """Calls that run go on."""
        for name in names:
            self._specs.pop(name, None)

    def find(self, name: str, context: ToolContext) -> ToolSpec | None:
        return next((spec for spec in self.offered(context) if spec.name == name), None)

    def offered(self, context: ToolContext) -> tuple[ToolSpec, ...]:
        enabled = (s for s in self.all() if not any(fnmatchcase(s.name, pattern) for pattern in self.disabled))
        allowed = (s for s in enabled if not (context.temporary and s.permission is Permission.WRITE))
        if is_group(context.user):  # anybody there could give the permission
            allowed = (s for s in allowed if s.permission is not Permission.APPROVAL)
        return tuple(spec for spec in allowed if spec.when is None or spec.when(context))

    def describe(self, context: ToolContext) -> tuple[ToolDescription, ...]:
        """The tool list of a request. The same tools give the same bytes, so that prompt caches hit."""
        return tuple(spec.told for spec in self.offered(context))

    def all(self) -> tuple[ToolSpec, ...]:
        """All tools sorted by name, disabled ones included."""
        return tuple(spec for _, spec in sorted(self._specs.items()))
