"""What a chat's actor is asked."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import attrs

from klaw.actor.mailbox import Mailbox, Reply
from klaw.context.compose import Composer
from klaw.core import Core
from klaw.domain.attachment import NamedFile
from klaw.domain.message import CLIENT_CALLS, OF_CLIENT, MessageKind, NewMessage, Role
from klaw.domain.names import ChatId, user_of
from klaw.domain.text import clean
from klaw.errors import ActorStopped, CannotReplace, KlawError
from klaw.llm.types import ModelOptions
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import messages, turns
from klaw.store.kinds.messages import AppendedMessage
from klaw.store.kinds.pending import read_rows
from klaw.store.kinds.variants.replace import Wish
from klaw.toolbox.mcp.references import McpReference, attach, references_in
from klaw.toolbox.mcp.server import McpServer

FROM_MCP = "from_mcp"
"""Key in the metadata of a message: some of its files were read from MCP servers."""
T = TypeVar("T")
WEBSOCKET, HTTP = "websocket", "http"
"""Channels. A program that asks over HTTP is answered at once; people may write a thought in several messages."""


@attrs.frozen(kw_only=True)
class ClientCall:
    """A call of a tool that the program which asks has carried out."""

    id: str
    name: str
    arguments: str
    result: str


@attrs.frozen(kw_only=True)
class ClientRound:
    """What the model said when it called tools of the program, the calls, and their results."""

    text: str
    calls: tuple[ClientCall, ...]


@attrs.frozen(kw_only=True)
class Submit:
    """A user's message or slash command. Answered when it is durable."""

    id: str
    text: str
    reply: Reply[AppendedMessage] = attrs.Factory(Reply)
    channel: str = WEBSOCKET
    files: tuple[NamedFile, ...] = ()
    instructions: str = ""
    options: ModelOptions = attrs.Factory(ModelOptions)
    came: int = 0
    """So many messages of the chat came along with it, those of tools too: all of them are shown while there is room,
    and what is left out is named."""
    rounds: tuple[ClientRound, ...] = ()
    """What a program's tools did for this message already."""
    question: bool = False
    """Never read as a command, whatever it begins with."""
    model: str | None = None
    """The model that answers it; None: the chat's."""
    transcribed: bool = False
    """A model heard the text in its file."""
    attached: bool = False
    """What it names of MCP servers is among its files."""

    @property
    def has_wishes(self) -> bool:
        return bool(self.instructions or self.model or self.came) or self.options != ModelOptions()


def named_in(submit: Submit, chat: ChatId, servers: Sequence[McpServer]) -> list[McpReference]:
    """What a message names of MCP servers and does not have yet."""
    return [] if submit.question or submit.attached else references_in(submit.text, user_of(chat), servers)


async def attach_to(
    submit: Submit, found: Sequence[McpReference], chat: ChatId, mailbox: Mailbox[Any], core: Core
) -> None:
    """Read what a message names of MCP servers, while its chat goes on, and hand it to the chat again."""
    try:
        files = await attach(found, user_of(chat), core)
        if mailbox.closed:
            raise ActorStopped("the chat is being stopped: send the message again")
        mailbox.tell_self(attrs.evolve(submit, files=(*submit.files, *files), attached=True))
    except KlawError as error:
        submit.reply.fail(error)


@attrs.frozen(kw_only=True)
class StopTurn:
    """Cancel the running turn. Answers whether one was running."""

    reply: Reply[bool]
    seq: int | None = None
    """Only a turn that answers up to this message, or has not read its messages yet."""


@attrs.frozen(kw_only=True)
class Recover:
    however_old: bool = False
    said: Submit | None = None
    """Its instructions and options hold for the turn."""


@attrs.frozen(kw_only=True)
class Vary:
    """Show another variant of a message, and answer it where it is a new one. Answered when that is durable."""

    wish: Wish
    said: Submit
    """The new message; of a repeated answer what else than the text is to hold for it."""
    reply: Reply[AppendedMessage | None]


def with_rounds(
    store: Callable[[Transaction], T], submit: Submit, chat: ChatId, composer: Composer
) -> Callable[[Transaction], T]:
    """``store``, which stores a message, and behind it what tools of the program did for it; each of them once."""
    made = enumerate(_rounds(submit.rounds, chat, composer))
    rounds = [attrs.evolve(each, id=f"{submit.id}.{number}") for number, each in made]

    def store_all(tx: Transaction) -> T:
        stored = store(tx)
        messages.append(tx, rounds)
        return stored

    return store_all


def _rounds(rounds: Iterable[ClientRound], chat: ChatId, composer: Composer) -> Iterator[NewMessage]:
    turn = composer.new_id()
    for each in rounds:
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in each.calls]
        metadata = {"turn": turn, "calls": calls, CLIENT_CALLS: [call.id for call in each.calls]}
        yield composer.own(chat, Role.ASSISTANT, MessageKind.TOOL_CALL, clean(each.text), metadata)
        yield from (_result(turn, call, chat, composer) for call in each.calls)


def _result(turn: str, call: ClientCall, chat: ChatId, composer: Composer) -> NewMessage:
    metadata = {"turn": turn, "call": call.id, "name": call.name, "error": False, "origin": OF_CLIENT}
    return composer.own(chat, Role.TOOL, MessageKind.TOOL_RESULT, clean(call.result), metadata)


async def store_results(
    turn: str, calls: Iterable[ClientCall], chat: ChatId, composer: Composer, core: Core
) -> AppendedMessage:
    """Store what a program's tools gave for a turn that waits, once. Returns its question; ``repeated``: all of it was
    stored before. Raises CannotReplace: the turn is over, and there was something else."""
    made = [attrs.evolve(_result(turn, call, chat, composer), id=f"{turn}.{call.id}") for call in calls]
    record = await core.readers.run(turns.get, user_of(chat), turn)
    known = [await core.readers.run(messages.find, each.user, each.id) for each in made]
    if record is not None and all(known):
        (question, *_) = await core.readers.run(messages.after, chat, record.last_seq - 1, 1)
        return AppendedMessage(question, repeated=True)
    rows = await core.readers.run(read_rows, chat, 1)
    called = [] if rows is None else [each.seq for each in rows.unfinished if each.metadata.get("turn") == turn]
    if rows is None or not called or rows.pending[-1].seq > max(called):  # something else is answered by now
        raise CannotReplace("the turn that called these tools is over")
    stored = await core.writer.run(messages.append, made)
    return AppendedMessage(rows.pending[-1], all(each.repeated for each in stored))
