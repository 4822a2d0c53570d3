"""What is being done between a question and its answer, for the row above the input line."""

from klaw.client.events import ConnectedEvent, DisconnectedEvent, Event
from klaw.wire.frames import Delta, Error, MessageFrame, Status, StoppedFrame, Tool

SPIN_S = 0.125
SLOW_SPIN_S = 1.0
_PICTURES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SLOW_S = 2
"""Longer steps show their seconds."""

SENDING = "sending"
COMMAND = "carrying out "
_STATES = {
    "waiting": "waiting for more from you, to answer it together",
    "queued": "waiting until another answer is done",
    "recalling": "recalling what belongs to this",
    "thinking": "thinking",
}


class Activity:
    def __init__(self) -> None:
        self._doing = ""
        self._since = 0.0
        self._tools: dict[str, str] = {}

    def sent(self, text: str, now: float) -> None:
        if not self._doing:
            self._begin(f"{COMMAND}{text.split(maxsplit=1)[0][:32]}" if text.startswith("/") else SENDING, now)

    def over(self, doing: str) -> None:
        """A step that begins with this text is over."""
        if self._doing.startswith(doing):
            self._doing = ""

    def see(self, event: Event, now: float) -> None:
        match event:
            case Tool(state="started"):
                self._tools[event.call] = event.name
                self._begin(self._newest_tool, now)
            case Tool():
                self._tools.pop(event.call, None)
                self._begin(self._newest_tool or _STATES["thinking"], now)
            case Status(chat=str()):
                self._tools.clear()
                self._begin(_STATES.get(event.doing or event.state, ""), now)
            case Delta() | Error(turn=str()) | StoppedFrame() | ConnectedEvent():
                self._tools.clear()
                self._doing = ""
            case DisconnectedEvent():
                self._tools.clear()
                self._begin("connecting", now)
            case MessageFrame(role="system"):
                self.over(COMMAND)
            case _:
                pass

    def line(self, now: float) -> str:
        """The row; empty when nothing is being done."""
        if not self._doing:
            return ""
        seconds = int(now - self._since)
        spent = f" · {seconds} s" if seconds >= _SLOW_S else ""
        return f"{_PICTURES[int(now / SPIN_S) % len(_PICTURES)]} {self._doing}{spent}"

    @property
    def _newest_tool(self) -> str:
        return next(reversed(self._tools.values()), "")

    def _begin(self, doing: str, now: float) -> None:
        if doing != self._doing:
            self._doing, self._since = doing, now


def tool_text(tool: Tool) -> str:
    """A call in a few words."""
    return f"{tool.name}: {tool.what}" if tool.what else tool.name
