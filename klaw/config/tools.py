"""The keys of engine.json for the tools that reach out of Klaw: ``tools.web`` and ``tools.exec``. Both are off."""

from typing import Literal

import attrs

from klaw.config.keys import key

_HOUR_S = 3600


@attrs.frozen(kw_only=True)
class WebToolConfig:
    """The tool web_fetch, which reads pages of the public web."""

    enabled: bool = key("Offer web_fetch to models.", False)
    ports: tuple[int, ...] = key("Ports that may be connected to.", (80, 443), minimum=1, maximum=65_535)
    max_bytes: int = key("A longer page is cut here, packed or unpacked.", 2_000_000, minimum=1024, maximum=20_000_000)
    timeout_s: float = key("A page must come within this time, redirects included.", 30.0, above=0, maximum=_HOUR_S)
    idle_s: float = key("No byte from the server for this long is a time-out.", 10.0, above=0, maximum=_HOUR_S)


@attrs.frozen(kw_only=True)
class ExecToolConfig:
    """The tool host_exec, which runs programs on this machine after the user allowed it."""

    enabled: bool = key("Offer host_exec to models.", False)
    allow: tuple[str, ...] = key(
        "Commands that run without asking, word by word; * in a word is any one name of a path, a last word ** is any"
        " further words.",
        (),
        pattern=r"[A-Za-z0-9_./+-]+( [^|&;<>`$'\"\\\x00-\x1f]*)?",
        hint="begin with a program's name, and have no quotes and nothing that only a shell understands",
    )
    sandbox: Literal["auto", "bubblewrap", "none"] = key(
        "Run commands in a sandbox: auto = where bubblewrap works, bubblewrap = only there, none = never.", "auto"
    )
    network: bool = key("In the sandbox commands may use the network.", False)
    timeout_s: float = key("A command is killed after this time.", 60.0, above=0, maximum=_HOUR_S)
    approval_s: float = key(
        "A question to the user that is not answered in this time counts as no.", 120.0, above=0, maximum=_HOUR_S
    )
