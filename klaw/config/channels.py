"""The keys of engine.yaml for messengers."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Mapping
from typing import Literal

import attrs

from klaw.config.environment import Secret
from klaw.config.keys import ADDRESS, key


@attrs.frozen(kw_only=True)
class ChannelConfig:
    """One account of a messenger, by which people reach Klaw."""

    type: Literal["telegram", "matrix"] = key("The messenger.")
    token: Secret = key(
        "The token of the bot's account; take it from the environment or secrets.env.",
        pattern=r"[\x21-\x7e]+",
        hint="be printable ASCII text without spaces or line ends, and not empty",
    )
    url: str = key("Address of the homeserver, or of the Bot API.", **ADDRESS)
    listen: bool = key("In groups, keep also what is not said to Klaw, as context for its answers there.", False)
    speak: bool = key("Answer voice messages with voice (voice.speak).", False)


@attrs.frozen(kw_only=True)
class ChannelsConfig:
    """Messengers in which people talk with Klaw (docs/channels.md)."""

    accounts: Mapping[str, ChannelConfig] = key(
        "Accounts by name; `klaw channels add` makes them.",
        factory=dict,
        names=r"[a-z0-9][a-z0-9_-]{0,15}",
        names_hint="be up to 16 of a-z, 0-9, '_' and '-', with a letter or digit first",
    )
    quiet: str | None = key(
        "Results of tasks and notices wait until these hours are over, such as 22:00-07:00; null = never.",
        None,
        pattern=r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d",
        hint="be two times of the day such as 22:00-07:00",
    )
