"""All accounts of messengers: starts and stops their actors as the settings say. No actor of its own."""

from collections.abc import Callable, Mapping
from typing import Literal

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.supervisor import ActorSpec
from klaw.channels.account import ChannelAccount
from klaw.channels.channel import Channel
from klaw.channels.messenger import Bot, ChannelError, Messenger
from klaw.channels.pairing import PairingCodes
from klaw.channels.wording import russian, say
from klaw.chats.commands import meanings
from klaw.chats.directory import ChatDirectory
from klaw.config.channels import ChannelConfig
from klaw.config.environment import Secret
from klaw.config.schema import EngineConfig
from klaw.core import Core
from klaw.domain.text import one_line
from klaw.errors import ConfigError
from klaw.gateway.hub import Hub
from klaw.llm.voice import Voice
from klaw.operations.slash import OperationCommands
from klaw.store.kinds import channels
from klaw.store.kinds.channels import LinkedConversation
from klaw.toolbox.approvals import Approvals

CLOSE_S = 2.0
MENU_CHARS = 250
"""Of the help of a command in a messenger's menu."""

log = structlog.get_logger("klaw.channels")


def messenger_of(config: ChannelConfig, token: str) -> Messenger:
    """The messenger of an account. Blocks: its code is loaded."""
    if config.type == "matrix":
        from klaw.channels.matrix import Matrix

        return Matrix(token, config.url)
    from klaw.channels.telegram import Telegram

    return Telegram(token, config.url)


def menu() -> dict[str, dict[str, str]]:
    """The commands of chats by language: word, without the slash, to help. Blocks."""
    english = {**meanings(OperationCommands().meanings), "/chat": say("chat_help", "en")}
    words = {word: russian().get(text, text) for word, text in english.items()} | {"/chat": say("chat_help", "ru")}
    return {
        language: {word.removeprefix("/"): one_line(text)[:MENU_CHARS] for word, text in found.items()}
        for language, found in (("en", english), ("ru", words))
    }


@attrs.define(kw_only=True, eq=False)
class Channels:
    core: Core
    hub: Hub
    chats: ChatDirectory
    approvals: Approvals
    voice: Voice
    make: Callable[[ChannelConfig, str], Messenger] = messenger_of
    running: dict[str, Channel] = attrs.field(factory=dict, init=False)
    """By the accounts' names."""
    codes: PairingCodes = attrs.field(init=False)
    _tokens: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _wrong: dict[str, str] = attrs.field(factory=dict, init=False)
    """Accounts whose token is not there, and why."""

    def __attrs_post_init__(self) -> None:
        self.codes = PairingCodes(self.core.clock.now)
        self.core.health.add(self.problems)
        self.core.changing.told.append(self.settings_changed)

    async def start(self) -> None:
        await self.settings_changed(self.core.config)

    async def settings_changed(self, _before: EngineConfig) -> None:
        """Have just those accounts running that the settings name, each with the token that holds now."""
        wanted, tokens = self.core.config.channels.accounts, await self.core.files.run(self._revealed)
        for name, channel in list(self.running.items()):
            if wanted.get(name) != channel.account.config or tokens.get(name) != self._tokens.get(name):
                await self._stop(name)
        self._tokens = tokens
        for name, token in tokens.items():
            if name not in self.running:
                await self._start(name, wanted[name], token)

    async def stop(self) -> None:
        for name in list(self.running):
            await self._stop(name)

    async def try_account(self, kind: Literal["telegram", "matrix"], url: str, token: str) -> Bot:
        """Ask a messenger who an account is. Raises ChannelError."""
        config = ChannelConfig(type=kind, url=url, token=Secret(token))
        messenger = await self.core.files.run(self.make, config, token)
        try:
            return await messenger.open()
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await messenger.close()

    async def test(self, name: str) -> Bot:
        """Ask the messenger whether an account works. Raises ChannelError."""
        if name not in self._tokens:
            raise ChannelError(self._wrong.get(name, "the account is not there any more"))
        config = self.core.config.channels.accounts[name]
        return await self.try_account(config.type, config.url, self._tokens[name])

    async def forget(self, name: str) -> list[LinkedConversation]:
        """End all conversations of an account. Raises StorageError."""
        channel = self.running.get(name)
        ended = await channel.conversations.unlink(lambda _link: True) if channel is not None else []
        now = iso(self.core.clock.now())
        await self.core.writer.run(channels.set_position, name, "", now)
        return ended

    def problems(self) -> Mapping[str, str]:
        found = {f"channel:{name}": f"the channel {name} has no token: {why}" for name, why in self._wrong.items()}
        for name, channel in self.running.items():
            if channel.account.problem is not None:
                found[f"channel:{name}"] = f"the channel {name} does not work: {channel.account.problem}"
        return found

    async def _start(self, name: str, config: ChannelConfig, token: str) -> None:
        messenger = await self.core.files.run(self.make, config, token)
        account = ChannelAccount(
            name=name,
            config=config,
            messenger=messenger,
            core=self.core,
            hub=self.hub,
            chats=self.chats,
            approvals=self.approvals,
            voice=self.voice,
            codes=self.codes,
            menu=menu,
        )
        channel = self.running[name] = Channel(account)
        await self.core.supervisor.start(ActorSpec(name=f"channels.{name}", run=channel.run))

    async def _stop(self, name: str) -> None:
        self.running.pop(name)
        await self.core.supervisor.stop(f"channels.{name}", "the channel is closed")

    def _revealed(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._wrong.clear()
        for name, config in self.core.config.channels.accounts.items():
            try:
                found[name] = config.token.reveal(f"channels.accounts.{name}.token")
            except ConfigError as error:
                self._wrong[name] = str(error)
        return found
