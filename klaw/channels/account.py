"""One account of a messenger, with all that its parts need."""

from collections.abc import Callable, Mapping

import attrs
import structlog

from klaw.actor.clock import iso
from klaw.actor.failure import error_class
from klaw.channels.messenger import Bot, ChannelError, Messenger
from klaw.channels.pairing import PairingCodes
from klaw.chats.directory import ChatDirectory
from klaw.config.channels import ChannelConfig
from klaw.core import Core
from klaw.domain.message import HEARD
from klaw.gateway.hub import Hub
from klaw.llm.voice import Voice
from klaw.toolbox.approvals import Approvals

log = structlog.get_logger("klaw.channels")


@attrs.define(kw_only=True, eq=False)
class ChannelAccount:
    name: str
    """In ``channels.accounts``."""
    config: ChannelConfig
    messenger: Messenger
    core: Core
    hub: Hub
    chats: ChatDirectory
    approvals: Approvals
    voice: Voice
    codes: PairingCodes
    menu: Callable[[], Mapping[str, Mapping[str, str]]]
    """Commands by language. Blocks."""
    bot: Bot | None = None
    """Known once the service has answered."""
    problem: str | None = attrs.field(default=None, init=False)
    """Why the service cannot be reached now; masked."""

    @property
    def kind(self) -> str:
        """The channel of messages from here."""
        return self.config.type

    @property
    def heard(self) -> str:
        """The channel of messages that are kept as context only."""
        return f"{HEARD}{self.kind}"

    def now(self) -> str:
        return iso(self.core.clock.now())

    def trouble(self, error: ChannelError) -> None:
        """Note why the service cannot be reached."""
        if self.problem is None:
            log.warning("channel_down", name=self.name, error=error_class(error))
        self.problem = str(error)
