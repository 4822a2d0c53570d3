"""What an operation is: one thing that can be asked, with its arguments, its handler and how its result is shown
(docs/contributing.md).

All doors are made of it. A handler imports what is heavy itself (the store: ``operations.stored``), because the command
line imports this only for the arguments and ``show``.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, overload

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.names import CHAT_FORM, USER_FORM, ChatId, UserId, chat_id, chat_name, user_id, user_of
from klaw.errors import InvalidName, InvalidValue, KlawError, Problem
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Again, Lines, ShownLines

Name: TypeAlias = Annotated[str, Bounds(1, 128)]
"""An id or a name; a chat's id has at most 97 characters."""
Query: TypeAlias = Annotated[str, Bounds(1, 4_000)]
Limit: TypeAlias = Annotated[int, Bounds(1, 100)]
Whole: TypeAlias = Annotated[int, Bounds(1)]
UserName: TypeAlias = Annotated[str, Check(user_id, Bounds(pattern=USER_FORM))]


def _named_chat(text: str) -> str:
    owner, colon, name = text.rpartition(":")
    if colon:
        user_id(owner)
    chat_name(name)
    return text


ChatName: TypeAlias = Annotated[str, Check(_named_chat, Bounds(pattern=CHAT_FORM))]
"""The name of a chat of the user, or its id, ``USER:NAME``."""

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")
Handler: TypeAlias = Callable[..., Any]
OnlineHandler: TypeAlias = Callable[[A, Caller, Parts], Awaitable[R]]
OfflineHandler: TypeAlias = Callable[[A, Caller, DatabaseParts], Awaitable[R]]

_OF_ARGUMENTS = frozenset({"bad_args", "ambiguous_id"})
"""Codes whose text says that the field is one of ``args``."""


class OperationError(KlawError):
    """What was asked cannot be done. ``code`` is for programs, such as ``unknown_fact``; ``message`` says what is wrong
    and what to do, ``field`` which argument it is about; ``problems``: several, instead of these."""

    def __init__(self, code: str, message: str = "", *, field: str = "", problems: Sequence[Problem] = ()) -> None:
        self.code = code
        self.problems = tuple(problems) or ((Problem(field, message),) if field else ())
        told = [
            f"args{'.' if each.path else ': '}{each}" if code in _OF_ARGUMENTS else str(each) for each in self.problems
        ]
        super().__init__("; ".join(told) or message)


class Scope(enum.Enum):
    """Who may ask. An operator may ask everything, also for a user."""

    USER = "any user; it is nobody's data"
    OWN = "a user about their own data"
    CHAT = "a user in a chat, about that chat"
    OPERATOR = "only an operator"


@attrs.frozen(kw_only=True)
class Argument:
    """How the command line and forms show one argument."""

    help: str
    metavar: str | None = None
    """Stands for its value in ``--help``, instead of the field's name in capitals."""
    positional: bool = False
    option: str | None = None
    """Another option than ``--field-name``; if it is true by default, the option that makes it false."""
    old_option: str | None = None
    """A former option, still taken and not shown."""
    words: bool = False
    """Several words are one text without quotes; an option with several values takes them all."""
    stdin: bool = False
    """``-`` reads it from standard input."""
    file: bool = False
    """``@FILE`` reads it from a file."""
    most_bytes: int = 65_536
    hidden: bool = False
    """The command line does not have it."""
    upload: str | None = None
    """The command line takes several values and asks for each. The bytes of one that names a file of this machine are
    uploaded (``kb_upload``), and this argument gets the upload's id instead."""
    title: str = ""
    """The label in a form; empty: the argument's name in words."""
    examples: Sequence[str] = ()
    """Values that a form offers."""
    in_tools: str = ""
    """What tools of other programs call it, if that is another name; the field's own they may use, too."""
    id_of: str | None = None
    """It is an id of this kind, which may be shortened (``perform.lengthened``)."""


def argument(help: str, *, default: Any = None, **how: Any) -> Any:  # noqa: A002  as argparse calls it
    """A field of a class of arguments; with the default ``attrs.NOTHING`` it must be given. ``help``, ``how``: see
    ``Argument``."""
    return attrs.field(default=default, metadata={"argument": Argument(help=help, **how)})


def required(help: str, **how: Any) -> Any:  # noqa: A002
    """A positional field that must be given."""
    return argument(help, default=attrs.NOTHING, positional=True, **how)


@attrs.frozen(kw_only=True)
class Nothing:
    pass


@attrs.frozen(kw_only=True)
class OfUser:
    user: UserName | None = argument("whose data (default: local)", metavar="NAME")


@attrs.frozen(kw_only=True)
class PagedArguments(OfUser):
    limit: Limit = argument("entries on a page, 1 to 100 (default: 50)", default=50, metavar="N")
    page: Whole = argument("number of the page (default: 1)", default=1, metavar="N")

    @property
    def offset(self) -> int:
        return min(self.limit * (self.page - 1), 2**53)

    def following(self, total: int) -> int | None:
        """Number of the next page; None after the last."""
        return self.page + 1 if self.limit * self.page < total else None


def more(answer: Mapping[str, Any]) -> list[Again]:
    """How to see the next page of a list."""
    found = Again("more: ", {"page": answer["next"]}, f" ({answer['count']} in all)")
    return [found] if answer["next"] is not None else []


def fitting(found: Sequence[T], size: Callable[[T], int], room: int) -> Sequence[T]:
    """The first that fit into the room together; at least one."""
    for count, each in enumerate(found):
        room -= size(each)
        if room < 0 and count > 0:
            return found[:count]
    return found


def also(answer: Mapping[str, Any], found: str, command: str) -> list[str]:
    """In a chat: how many more entries there are than those that the answer has as ``found``."""
    left = answer["count"] - len(answer[found])
    return [f"  … and {left} more; `{command}` shows all."] if left else []


@overload
def chat_of(named: str, user: UserId, *, any_user: bool = False, field: str = "chat") -> ChatId: ...
@overload
def chat_of(named: str | None, user: UserId, *, any_user: bool = False, field: str = "chat") -> ChatId | None: ...
def chat_of(named: str | None, user: UserId, *, any_user: bool = False, field: str = "chat") -> ChatId | None:
    """A chat of the user, by its name or its id; with ``any_user`` the id may be of another user's. Raises
    OperationError."""
    if named is None:
        return None
    owner, colon, name = named.rpartition(":")
    try:
        chat = chat_id(user_id(owner) if colon else user, name)
    except InvalidName as error:
        raise OperationError("bad_args", str(error), field=field) from None
    if user_of(chat) != user and not any_user:
        raise OperationError("bad_args", "is not the user's", field=field)
    return chat


def understood(field: str, read: Callable[..., T], *given: Any) -> T:
    """What a function makes of an argument. Raises OperationError."""
    try:
        return read(*given)
    except InvalidValue as error:
        raise OperationError("bad_args", str(error), field=field) from None


def timed(field: str, text: str | None, now: float, zone: tzinfo | None = None, *, until: bool = False) -> str | None:
    """A time that a person gave, in the form in which it is stored: its beginning, or its end with ``until``. Raises
    OperationError."""
    from klaw.actor.clock import iso
    from klaw.domain.days import read_since, read_until

    return None if text is None else iso(understood(field, read_until if until else read_since, text, now, zone))


def something(fields: Any) -> Any:
    """Check that at least one is given. Raises ValueError."""
    values = attrs.asdict(fields)
    if all(value is None for value in values.values()):
        raise ValueError(f"must have at least one of {', '.join(values)}")
    return fields


@attrs.frozen(kw_only=True)
class Slash:
    """An operation as a slash command. Of two with the same word the one with ``rest`` is taken when text follows."""

    word: str
    help: str = ""
    rest: str | None = None
    """The argument that gets the text behind the word."""
    of_chat: str | None = None
    """The argument that gets the name of the chat."""
    given: Mapping[str, Any] = attrs.field(factory=dict)
    """Other arguments."""
    show: Callable[[Any], Lines | ShownLines] | None = None
    """None: as in the terminal."""
    metadata: Callable[[dict[str, Any]], dict[str, Any]] = lambda _answer: {}
    """What the store reads of the stored answer: the chat's new model, or that it goes with what is forgotten next."""


@attrs.frozen(kw_only=True)
class Operation:
    name: str
    """The name in requests, such as ``fact_add``."""
    noun: "Noun"
    arguments: type[Any]
    handler: Handler
    """A coroutine function; a plain one where the noun is local."""
    scope: Scope = Scope.OWN
    changes: bool = False
    """It changes something; what only reads may be repeated."""
    offline: bool = False
    """The command line may carry it out over the database, without a server."""
    bare: bool = False
    """Also without a database, if no server is there."""
    alone: bool = False
    """A running server is never asked."""
    deadline_s: float = 10.0
    watch: bool = False
    """The command line may repeat it until it is stopped."""
    document: bool = False
    """It answers a part of a document: ``text``, and ``next``, the argument ``after`` for the next part, None behind
    the last. The command line asks for all and writes the document, with ``--to`` into a file."""
    confirm: str | None = None
    """What a person is asked before it is done. Its argument ``dry_run`` is true by default: the command line asks
    first with it."""
    cli: str | None = None
    """Its word behind the noun's; empty: the noun's own command; None: not on the command line."""
    route: str | None = None
    """Method and path of its REST route below the noun's, if not those of its word: ``DELETE sources/{source}``."""
    show: Callable[[Any], Lines | ShownLines] = lambda _answer: ()
    """What a terminal shows of the result as JSON has it."""
    slash: Slash | None = None
    mcp: str | None = None
    """Its name among the tools of ``operations.perform``; models are told the handler's whole docstring."""
    answers: Any = None
    """The type of what it answers, if the handler's annotation does not name it."""

    @property
    def help(self) -> str:
        """The first paragraph of the handler's docstring."""
        return " ".join((self.handler.__doc__ or "").split("\n\n")[0].split())


@attrs.frozen(kw_only=True, eq=False)
class Noun:
    """What operations are about; on the command line the word before theirs."""

    word: str = attrs.field(kw_only=False)
    help: str = attrs.field(kw_only=False)
    invalid: str = "bad_args"
    """Code of what is wrong in the nested ``fields`` of its operations."""
    local: bool = False
    """Only the command line has its operations, and they need no server (``cli.operations.command``)."""
    of_machine: bool = False
    """It is about the whole machine, not one installation: root stays root."""
    operations: list[Operation] = attrs.field(factory=list, init=False, repr=False)
    records: list[Any] = attrs.field(factory=list, init=False, repr=False)
    """The ``Records`` that can be listed."""

    @overload
    def operation(
        self, name: str, arguments: type[A], *, offline: Literal[True], **how: Any
    ) -> Callable[[OfflineHandler[A, R]], OfflineHandler[A, R]]: ...
    @overload
    def operation(
        self, name: str, arguments: type[A], **how: Any
    ) -> Callable[[OnlineHandler[A, R]], OnlineHandler[A, R]]: ...
    def operation(self, name: str, arguments: type[Any], **how: Any) -> Callable[[Handler], Handler]:
        """Declare a handler to be an operation; ``how``: see ``Operation``."""

        def declare(handler: Handler) -> Handler:
            self.add(name, arguments, handler, **how)
            return handler

        return declare

    def add(self, name: str, arguments: type[Any], handler: Handler, **how: Any) -> None:
        """Declare a handler of any form to be an operation."""
        self.operations.append(Operation(name=name, noun=self, arguments=arguments, handler=handler, **how))


def told(field: "attrs.Attribute[Any]") -> Argument:
    """How an argument is shown."""
    found: Argument = field.metadata["argument"]
    return found


def without_none(found: Any) -> Any:
    """A type without None and without ``Annotated``."""
    while True:
        if get_origin(found) is Annotated:
            found = get_args(found)[0]
        elif type(None) in get_args(found):
            found = next(each for each in get_args(found) if each is not type(None))
        else:
            return found
