"""What the tools of one turn, or of one run, have done so far: what was let in from outside, and what was written.

One object for all calls of a turn; the executor adds to it. Origin labels and the save-claim guard go by it. Pure.
"""

import attrs

_NO_SAVING = frozenset({"send_message", "web_fetch", "web_search"})
"""Tools that may change or reach something, but never keep anything for the user."""


@attrs.define(eq=False)
class Trail:
    """See the module."""

    outside: bool = False
    """Something from outside (the web, an MCP server, a program) was read, or may have been: what the model writes from
    then on may be that one's words."""
    wrote: bool = False
    """A tool that keeps or schedules something has succeeded."""

    def began(self, *, reaches_out: bool) -> None:
        """A tool begins: also a failure's text is the other side's."""
        self.outside = self.outside or reaches_out

    def succeeded(self, name: str, *, changes: bool) -> None:
        """A tool has done what was asked. Args: its name; whether it may write anything at all."""
        self.wrote = self.wrote or (changes and name not in _NO_SAVING)
