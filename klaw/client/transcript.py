"""What a chat's events look like on a screen: ``Activity`` is the row above the input line, which says what is being
done; ``ScreenTranscript`` the text of the chat."""

import datetime as dt
import time
from collections.abc import Callable

from klaw.client.ask import ShownAnswer
from klaw.client.screen import Screen, Style
from klaw.client.streams import ConnectedEvent, DisconnectedEvent, Event
from klaw.domain.attachment import word_of
from klaw.domain.context_used import place_of
from klaw.domain.message import MessageKind
from klaw.wire import frames

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
    "reading": "reading the file",
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
        if self._doing.startswith(doing):
            self._doing = ""

    def see(self, event: Event, now: float) -> None:
        match event:
            case frames.Tool(state="started"):
                self._tools[event.call] = event.name
                self._begin(self._newest_tool, now)
            case frames.Tool():
                self._tools.pop(event.call, None)
                self._begin(self._newest_tool or _STATES["thinking"], now)
            case frames.Status(chat=str()):
                self._tools.clear()
                self._begin(_STATES.get(event.doing or event.state, ""), now)
            case frames.ThinkingFrame():
                self._begin(_STATES["thinking"], now)
            case frames.Delta() | frames.Error(turn=str()) | frames.StoppedFrame() | ConnectedEvent():
                self._tools.clear()
                self._doing = ""
            case DisconnectedEvent():
                self._tools.clear()
                self._begin("connecting", now)
            case frames.MessageFrame(role="system"):
                self.over(COMMAND)
            case _:
                pass

    def line(self, now: float) -> str:
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


PROMPT = "> "
_ALIKE = 48
"""Characters of an error that tell it from others."""
BUSY_STATES = frozenset({"waiting", "thinking", "answering"})
READ_S = 0.5
"""A question shown for less was not read: the answer was meant for something before it."""
_YES = frozenset({"y", "yes", "д", "да"})
_NO = frozenset({"n", "no", "н", "нет"})


class Questions:
    """The open questions of one chat, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, frames.ApprovalFrame] = {}
        self._shown: str | None = None
        self._shown_at = 0.0

    def asked(self, approval: frames.ApprovalFrame) -> None:
        self._open.setdefault(approval.id, approval)

    def ended(self, ended: frames.ApprovalEndedFrame) -> bool:
        """A question is closed. Returns whether it was the one that is shown."""
        self._open.pop(ended.id, None)
        if ended.id != self._shown:
            return False
        self._shown = None
        return True

    def forget(self) -> None:
        """The connection is gone: open questions come again with the next one."""
        self._open.clear()
        self._shown = None

    @property
    def standing(self) -> bool:
        return self._shown is not None

    def next(self, now: float) -> frames.ApprovalFrame | None:
        """The question to show now, if none is shown. ``now`` in seconds."""
        if self._shown is not None or not self._open:
            return None
        approval = next(iter(self._open.values()))
        self._shown, self._shown_at = approval.id, now
        return approval

    def answer(self, text: str, now: float) -> frames.Approve | None:
        """What a typed line means as the answer to the question that is shown; None if it is a message."""
        word = _word(text)
        if self._shown is None or word not in _YES | _NO or self.too_soon(text, now):
            return None
        return frames.Approve(id=self._shown, allow=word in _YES)

    def too_soon(self, text: str, now: float) -> bool:
        return self._shown is not None and _word(text) in _YES and now - self._shown_at < READ_S


def _word(text: str) -> str:
    return text.strip().casefold().rstrip(".!")


def question_text(approval: frames.ApprovalFrame) -> str:
    until = local_time(approval.until, "%H:%M:%S")
    return f"[{approval.tool} wants to run, allow it? y/n, until {until}] {approval.what}"


def local_time(moment: str, form: str) -> str:
    try:
        return dt.datetime.fromisoformat(moment).astimezone().strftime(form)
    except ValueError:
        return moment


ENDINGS = {
    "allowed": "allowed",
    "denied": "not allowed",
    "expired": "not allowed: nobody answered in time",
    "withdrawn": "no longer asked",
}


class ScreenTranscript:
    """``thinking``: what the model thinks is shown, too; else only how long it did."""

    def __init__(
        self, screen: Screen, chat: str, *, thinking: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen, self._chat = screen, chat
        self._shows_thinking, self._clock = thinking, clock
        self._thinks_since: float | None = None
        self._thought = ""
        """The line of thinking that is not complete yet."""
        self._mine: set[str] = set()
        self._answer: ShownAnswer | None = None
        self._finished = ""
        self.with_passages = ""
        """The last turn whose answer refers to passages of knowledge bases."""
        self._degraded: dict[str, str] = {}
        self._explained = ""
        """The beginning of the last turn's error: a notice about the same is left out."""
        self.questions = Questions()
        self.busy = False

    @property
    def streaming(self) -> bool:
        """An answer is being written, and its line is open."""
        return self._answer is not None and self._answer.begun

    def submitted(self, message_id: str, text: str) -> None:
        """The user sent a message: it is shown at once, and not again when it comes back stored."""
        self._mine.add(message_id)
        self._screen.line(_quoted(text), Style.BOLD)

    def refused(self, message_id: str, text: str) -> None:
        self._mine.discard(message_id)
        self._screen.line(f"[not sent: {text}]", Style.ALARM)

    def say(self, text: str) -> None:
        self._screen.line(f"[{text}]", Style.FAINT)

    def show(self, event: Event) -> None:
        if getattr(event, "chat", None) not in (None, self._chat):
            return
        self._follow_thinking(event)
        match event:
            case frames.MessageFrame():
                self.entry(event)
            case frames.Delta():
                self._delta(event)
            case frames.Tool():
                self._tool(event)
            case frames.ApprovalFrame() | frames.ApprovalEndedFrame():
                self._question(event)
            case frames.Status():
                self._status(event)
            case frames.Error():
                self._error(event)
            case frames.StoppedFrame():
                self._stopped(event)
            case frames.Notice():
                self._notice(event)
            case DisconnectedEvent():
                self.questions.forget()
                self.say("connection lost; trying to get it back")
            case ConnectedEvent():
                self._connected(event)
            case _:
                pass

    def _connected(self, connected: ConnectedEvent) -> None:
        if connected.again:
            self.say("connected again")
        current = {part.code: part.text for part in connected.welcome.degraded}
        for code, text in current.items():
            if self._degraded.get(code) != text:
                self.say(text)
        self._degraded = current

    def _follow_thinking(self, event: Event) -> None:
        if isinstance(event, frames.ThinkingFrame):
            self.busy = True
            self._thinks_since = self._clock() if self._thinks_since is None else self._thinks_since
            *lines, self._thought = (self._thought + event.text * self._shows_thinking).split("\n")
            for line in lines:
                self._screen.line(line, Style.FAINT)
            return
        is_over = not isinstance(event, frames.Notice) and getattr(event, "ended", True)
        if self._thinks_since is None or not is_over:
            return
        seconds, self._thinks_since = int(self._clock() - self._thinks_since), None
        if self._thought:
            self._screen.line(self._thought, Style.FAINT)
            self._thought = ""
        if seconds:
            self.say(f"thought for {seconds} s")

    def _tool(self, tool: frames.Tool) -> None:
        if tool.state == "started":
            self.say(f"{tool.name}: {tool.what}" if tool.what else tool.name)
        elif tool.state == "failed":
            self.say(f"{tool.name} failed")

    def _question(self, event: frames.ApprovalFrame | frames.ApprovalEndedFrame) -> None:
        if isinstance(event, frames.ApprovalFrame):
            self.questions.asked(event)
        elif self.questions.ended(event):
            self.say(ENDINGS.get(event.outcome, event.outcome))

    def _stopped(self, stopped: frames.StoppedFrame) -> None:
        self.busy = False
        if not stopped.running:
            self.say("nothing to stop")

    def ask(self, now: float) -> None:
        """Show the next open question, if none is shown. ``now`` in seconds."""
        approval = self.questions.next(now)
        if approval is not None:
            self._screen.line(question_text(approval), Style.ALARM)

    def entry(self, entry: frames.MessageFrame) -> None:
        """Show a stored message, unless it is shown already."""
        if entry.role == "user":
            if entry.id in self._mine:
                self._mine.discard(entry.id)
            else:
                heard = "[transcribed]" if entry.transcribed else ""
                lines = filter(None, (entry.content, *map(_label, entry.files or ()), heard))
                self._screen.line(_quoted("\n".join(lines)), Style.BOLD)
        elif entry.kind == "session_break":
            self._screen.line(entry.content or "--- a new conversation ---", Style.FAINT)
        elif entry.role == "system":
            self._screen.line(entry.content, Style.FAINT)
        elif entry.task is not None:
            self._screen.line(f"[task {entry.task}, {local_time(entry.created_at, '%Y-%m-%d %H:%M')}]", Style.FAINT)
            self._said(entry.content)
        elif entry.role == "assistant":
            self._answered(entry)

    def _answered(self, entry: frames.MessageFrame) -> None:
        """An answer, or the text before a tool call, after which the answer goes on."""
        rest: str | None = entry.content
        if self._answer is not None and entry.turn == self._answer.turn:
            rest = self._answer.rest(entry.content)
            if rest is None:
                self._screen.correct(self._answer.text, entry.content)
            self._answer = None
        self._said(rest or "")
        for file in entry.files or ():
            self._screen.line(_label(file), Style.FAINT)
        if entry.kind != MessageKind.TOOL_CALL:
            self._finished = entry.turn or self._finished
        if entry.context_used is not None and entry.context_used.passages:
            self.with_passages = entry.turn or ""
            for each in entry.context_used.passages:
                if each.cited:
                    self._screen.line(f"[{each.number}] {place_of(each)}", Style.FAINT)

    def _said(self, text: str) -> None:
        self._screen.write(text)
        self._screen.end()

    def _delta(self, delta: frames.Delta) -> None:
        if delta.turn == self._finished:
            return
        if self._answer is None or self._answer.turn != delta.turn:
            self._answer = ShownAnswer(delta.turn)
        self._screen.write(self._answer.piece(delta.offset, delta.text))
        self.busy = True

    def _status(self, status: frames.Status) -> None:
        if status.ended == "done":
            self._explained = ""
        self.busy = status.state in BUSY_STATES
        if status.ended is not None:
            self._close_answer()
        if status.ended == "stopped":
            self.say("stopped")

    def _error(self, error: frames.Error) -> None:
        if error.turn is not None:
            self._close_answer()
            self.busy = False
            self._explained = error.message[:_ALIKE]
        offered = error.turn is not None and error.retryable and "/retry" not in error.message
        self._screen.line(f"[{error.message}{'; /retry tries again' if offered else ''}]", Style.ALARM)

    def _notice(self, notice: frames.Notice) -> None:
        if self._degraded.get(notice.code) != notice.text:
            self._degraded[notice.code] = notice.text
            replaced = "now" in (notice.details or {})  # the problem that took its place is told
            if not replaced and not (self._explained and self._explained in notice.text):
                self.say(notice.text)

    def _close_answer(self) -> None:
        if self._answer is not None:
            self._finished = self._answer.turn
            self._answer = None
            self._screen.end()


def _quoted(text: str) -> str:
    return PROMPT + text.replace("\n", "\n  ")


def _label(file: frames.FileOfMessage) -> str:
    return f"[{word_of(file.type)} {file.name}{f', {file.reading}' if file.reading else ''}]"
