"""Operations as slash commands: the same answers, in words for a chat, about the data of the user who asks."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypedDict

import attrs

from klaw.chats.commands import Command, SlashAnswer, SlashCommand, help_text, meanings, parse
from klaw.convert import Bounds
from klaw.domain.names import ChatId, name_of, user_of
from klaw.errors import ActorStopped, ActorTooSlow, KlawError
from klaw.operations import chats
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import MarkedLine, PlainLine, Table, with_commands
from klaw.operations.operation import Operation, OperationError
from klaw.operations.perform import operations, perform, read


class OperationCommands:
    """Implements ``chats.commands.SlashCommands``. ``parts`` is filled when all parts are made."""

    def __init__(self) -> None:
        self.parts: Parts
        marked = [each for each in operations().values() if each.slash is not None]
        self._commands = {(each.slash.word, each.slash.rest is not None): each for each in marked if each.slash}
        self.meanings = {each.slash.word: each.slash.help for each in marked if each.slash and each.slash.help}

    def only_shows(self, word: str) -> bool:
        """Whether a command changes nothing, with text behind it or without."""
        found = [each for (own, _), each in self._commands.items() if own == word]
        return word == Command.HELP or (bool(found) and not any(each.changes for each in found))

    async def run(self, word: str, chat: ChatId, rest: str, stop: Callable[[str], Awaitable[bool]]) -> SlashAnswer:
        if word == Command.HELP:
            return SlashAnswer(help_text(self.meanings))
        operation = self._commands.get((word, bool(rest))) or self._commands.get((word, not rest))
        assert operation is not None, word
        try:
            return await self._answer(operation, chat, rest, stop)
        except OperationError as error:
            text = "; ".join(each.message for each in error.problems) or str(error)
        except (ActorStopped, ActorTooSlow):
            text = "A part of the server does not answer now: try again a little later."
        except KlawError as error:
            text = f"That did not work: {error}."
        return SlashAnswer(text)

    async def _answer(
        self, operation: Operation, chat: ChatId, rest: str, stop: Callable[[str], Awaitable[bool]]
    ) -> SlashAnswer:
        slash = operation.slash
        assert slash is not None
        own = {slash.rest: rest or None, slash.of_chat: name_of(chat)}
        call = read(operation, {**slash.given, **{name: each for name, each in own.items() if name and each}})
        answer = await perform(call, Caller(user=user_of(chat), chat=chat, stop_turn=stop), self.parts)
        show = slash.show or operation.show
        lines, notes = with_commands(show(answer), lambda **_changed: "klaw")
        return SlashAnswer("\n".join(_written([*notes, *lines])), slash.metadata(answer))


def _written(lines: Sequence[PlainLine]) -> list[str]:
    """Columns are not aligned: a chat's letters have any width."""
    out: list[str] = []
    for each in lines:
        if isinstance(each, Table):
            out += [f"  {'  '.join(cell for cell in row if cell)}" for row in each.rows]
        else:
            out.append(each.text if isinstance(each, MarkedLine) else each)
    return [" ".join(line.split("\n")) for line in out]


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
    slash = OperationCommands()
    found = meanings(slash.meanings)
    return {"commands": [{"word": word, "help": text, "shows": slash.only_shows(word)} for word, text in found.items()]}


@chats.NOUN.operation("chats_command", ShowingCommand, route="POST {chat}/command")
async def show_command(asked: ShowingCommand, caller: Caller, parts: Parts) -> CommandAnswer:
    """Carry out a command that only shows something; neither it nor the answer is stored."""
    slash = OperationCommands()
    slash.parts = parts
    command = parse(asked.text, slash.meanings)
    if not isinstance(command, SlashCommand) or not slash.only_shows(command.command):
        raise op.OperationError(
            "not_shown", "is no command that only shows something: send it as a message", field="text"
        )
    chat = op.chat_of(asked.chat, caller.user)
    answer = await slash.run(command.command, chat, command.rest, caller.stop_turn)
    return {"text": answer.text}
