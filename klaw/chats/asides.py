"""Slash commands that other parts carry out: about tasks and about memory. No state."""

from typing import Literal, TypeAlias

from klaw.chats.commands import Command
from klaw.chats.memory import MemoryCommands
from klaw.chats.tasks import TaskCommands
from klaw.domain.names import ChatId, user_of

TaskCommand: TypeAlias = Literal[Command.TASKS, Command.RUNS, Command.CANCEL, Command.HEARTBEAT]
MemoryCommand: TypeAlias = Literal[Command.TOPICS, Command.PEOPLE, Command.FORGET]


async def about_tasks(tasks: TaskCommands, command: TaskCommand, chat: ChatId, rest: str) -> str:
    """The answer to a command about tasks; ``rest`` is what stands behind it."""
    match command:
        case Command.TASKS:
            return await tasks.list_tasks(user_of(chat))
        case Command.RUNS:
            return await tasks.list_runs(user_of(chat), rest)
        case Command.CANCEL:
            return await tasks.cancel(user_of(chat), rest)
        case Command.HEARTBEAT:
            return await tasks.heartbeat(chat, rest)


async def about_memory(memory: MemoryCommands, command: MemoryCommand, chat: ChatId, rest: str) -> str:
    """The answer to a command about memory; ``rest`` is what stands behind it."""
    match command:
        case Command.TOPICS:
            return await memory.topics(user_of(chat), rest)
        case Command.PEOPLE:
            return await memory.people(user_of(chat), rest)
        case Command.FORGET:
            return await memory.forget(chat, rest)
