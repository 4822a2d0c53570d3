"""A running Klaw without listeners for tests of chats: real store and LLM client, scripted LLM server, no vectors."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from klaw.actor.clock import Clock
from klaw.app.app import App, running
from klaw.config.load import parse
from klaw.config.paths import Paths
from klaw.domain.events import Event, MessageStored, TurnEnded
from klaw.domain.message import Message, MessageKind, Role, TurnRecord
from klaw.domain.names import LOCAL_USER, ChatId, chat_id
from klaw.store.kinds.messages import AppendedMessage
from tests.support.llm_server import LlmServer, serve_llm
from tests.support.waiting import HANG_S


@attrs.define
class Watcher:
    """Collects all events, in place of the gateway's hub."""

    events: list[Event] = attrs.Factory(list)
    _changed: trio.Event = attrs.Factory(trio.Event)

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, wanted: Any) -> Any:
        """Wait until ``wanted(events)`` is true; returns its value."""
        with trio.fail_after(HANG_S):
            while not (found := wanted(self.events)):
                await self._changed.wait()
        return found


@attrs.frozen
class World:
    app: App
    llm: LlmServer
    watcher: Watcher

    async def send(self, text: str, *, id: str | None = None, chat: str = "main") -> AppendedMessage:  # noqa: A002
        message_id = id or f"c{len(self.watcher.events)}-{trio.current_time()}"
        return await self.app.chats.send(LOCAL_USER, chat, message_id, text)

    async def turn(self, number: int) -> TurnEnded:
        """The n-th turn that ended, from 1."""

        def ended(events: list[Event]) -> TurnEnded | None:
            turns = [event for event in events if isinstance(event, TurnEnded)]
            return turns[number - 1] if len(turns) >= number else None

        return await self.watcher.until(ended)

    async def reply(
        self, number: int = 1, *, kind: MessageKind = MessageKind.TEXT, role: Role = Role.ASSISTANT
    ) -> Message:
        """The n-th stored message of a role and type, from 1."""

        def stored(events: list[Event]) -> Message | None:
            found = [event.message for event in events if isinstance(event, MessageStored)]
            found = [message for message in found if (message.role, message.type) == (role, kind)]
            return found[number - 1] if len(found) >= number else None

        return await self.watcher.until(stored)

    async def command(self, text: str, number: int = 1) -> str:
        """The answer to a slash command that is the n-th one of the test."""
        await self.send(text)
        return (await self.reply(number, kind=MessageKind.COMMAND, role=Role.SYSTEM)).content

    async def receipt(self, chat: str = "main") -> TurnRecord:
        found = await self.app.chats.receipt(LOCAL_USER, chat, None)
        assert found is not None
        return found

    @property
    def chat(self) -> ChatId:
        return chat_id(LOCAL_USER, "main")

    def contents(self, request: int = -1) -> list[str]:
        """Contents of a recorded request's messages, without the system message."""
        messages = self.llm.requests[request].body["messages"]
        return [message["content"] for message in messages if message["role"] != "system"]


def replace_fsync(here: World, fsync: Callable[[int], None]) -> None:
    """What the journal calls from now on instead of the operating system's fsync and fdatasync."""
    journal = here.app.core.store.journal
    journal._fsync = journal._commit_log._fsync = journal._commit_log._fdatasync = fsync


@asynccontextmanager
async def world(
    home: Path,
    *,
    tools_for_model: bool = False,
    models: dict[str, Any] | None = None,
    only: dict[str, Any] | None = None,
    clock: Clock | None = None,
    **sections: dict[str, Any],
) -> AsyncIterator[World]:
    """Run it. ``models``: what is known of the stub's models; ``only``: sections that take the place of the usual."""
    async with serve_llm() as llm:
        known = models or ({"model": {"tools": True}} if tools_for_model else {})
        config: dict[str, Any] = {
            "providers": {"stub": {"baseUrl": llm.url, "maxRetries": 0, "models": known}},
            "routing": {"default": "stub/model"},
            "processing": {"debounceMs": 30},
            "embedding": {"enabled": False},
            "topics": {"enabled": False},
            "autoRag": {"timeBudgetMs": 5000},
            "shutdown": {"graceSeconds": 5},
        }
        for name, section in sections.items():
            config[name] = config.get(name, {}) | section
        config |= only or {}
        parsed, _ = parse(json.dumps(config), {})
        async with running(parsed, Paths.resolve(home, {}), clock=clock) as app:
            watcher = Watcher()
            app.hub.emit = watcher.emit  # type: ignore[method-assign]
            yield World(app, llm, watcher)
