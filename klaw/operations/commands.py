"""The commands that a chat takes, and the answers of those that only show something, which nothing stores."""

from typing import Annotated, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.operations import chats
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts


class ChatCommand(TypedDict):
    """``shows``: it only shows something, so it can be carried out without being stored (``chats_command``)."""

    word: str
    help: str
    shows: bool


class ChatCommands(TypedDict):
    commands: list[ChatCommand]


class CommandAnswer(TypedDict):
    text: str


@attrs.frozen(kw_only=True)
class ShowingCommand(chats.OfChat):
    text: Annotated[str, Bounds(1, 4_000)] = op.argument("the command", default=attrs.NOTHING)


@chats.NOUN.operation("chats_commands", op.Nothing, route="GET commands", scope=op.Scope.USER)
async def list_commands(_asked: op.Nothing, _caller: Caller, _parts: Parts) -> ChatCommands:
    """List the commands that a chat takes."""
    from klaw.chats.commands import meanings
    from klaw.operations.slash import OperationCommands

    slash = OperationCommands()
    found = meanings(slash.meanings)
    return {"commands": [{"word": word, "help": text, "shows": slash.only_shows(word)} for word, text in found.items()]}


@chats.NOUN.operation("chats_command", ShowingCommand, route="POST {chat}/command")
async def show_command(asked: ShowingCommand, caller: Caller, parts: Parts) -> CommandAnswer:
    """Carry out a command that only shows something; neither it nor the answer is stored."""
    from klaw.chats.commands import SlashCommand, parse
    from klaw.operations.slash import OperationCommands

    slash = OperationCommands()
    slash.parts = parts
    command = parse(asked.text, slash.meanings)
    if not isinstance(command, SlashCommand) or not slash.only_shows(command.command):
        raise op.OperationError(
            "bad_args", "is no command that only shows something: send it as a message", field="text"
        )
    chat = op.chat_of(asked.chat, caller.user)
    answer = await slash.run(command.command, chat, command.rest, caller.stop_turn)
    return {"text": answer.text}
