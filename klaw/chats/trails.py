"""What a turn's tools have done, for the origin of what it saves and for the truth of what it says about that."""

from collections.abc import Iterable
from typing import Literal

import attrs
import structlog

from klaw.domain.message import Kind, Message
from klaw.toolbox.claims import HINT, claims_saving, with_note
from klaw.toolbox.loop import Outcome
from klaw.toolbox.registry import Toolbox
from klaw.toolbox.spec import Permission
from klaw.toolbox.trail import Trail

log = structlog.get_logger("klaw.turn")


def resumed_trail(unfinished: Iterable[Message], toolbox: Toolbox) -> Trail:
    """The trail of a turn that goes on with the stored tool messages of an interrupted one. Of a tool that is gone
    meanwhile (an MCP server's) the worst is assumed."""
    specs = {spec.name: spec for spec in toolbox.all()}
    trail = Trail()
    for message in unfinished:
        if message.type is not Kind.TOOL_RESULT:
            continue
        name = str(message.metadata.get("name"))
        spec = specs.get(name)
        trail.began(reaches_out=spec is None or spec.reaches_out)
        if not message.metadata.get("error"):
            trail.succeeded(name, changes=spec is None or spec.permission is not Permission.READ)
    return trail


@attrs.define
class Claims:
    """The save-claim guard of one turn.

    Args:
        trail: of its tools.
    """

    trail: Trail
    account: Literal["corrected", "noted"] | None = None
    """For the receipt: an answer claimed a write that was not there, and was made anew, or got a note."""

    def object_to(self, answer: str) -> str | None:
        """See ``toolbox.loop.Correct``."""
        if self.trail.wrote or not claims_saving(answer):
            return None
        self.account = "corrected"
        return HINT

    def settle(self, outcome: Outcome) -> Outcome:
        """The outcome with a note below an answer that still claims what is not so."""
        if self.trail.wrote or not claims_saving(outcome.text):
            return outcome
        self.account = "noted"
        log.info("save_claim_noted")
        return attrs.evolve(outcome, text=with_note(outcome.text))
