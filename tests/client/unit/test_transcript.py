"""What stands on the screen after each kind of event, with the input line below it."""

import time

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klaw.client.editor import View
from klaw.client.screen import Foot, Screen
from klaw.client.streams import ConnectedEvent, DisconnectedEvent
from klaw.client.terminal import Interrupts
from klaw.client.transcript import ScreenTranscript
from klaw.domain.context_used import ContextUsed
from klaw.domain.knowledge import UsedPassage
from klaw.domain.text_width import wrap
from klaw.wire.frames import (
    DegradedPart,
    Delta,
    Error,
    MessageFrame,
    Notice,
    ServerLimits,
    Status,
    StoppedFrame,
    ThinkingFrame,
    Tool,
    Welcome,
)
from tests.client.unit.small_terminal import SmallTerminal

LIMITS = ServerLimits(max_frame_bytes=1000, messages_per_second=1, burst=1, history=200)


class Stage:
    def __init__(self, columns: int = 40, *, thinking: bool = False) -> None:
        self.now = 100.0
        self.terminal = SmallTerminal(columns)
        self.screen = Screen(self.terminal, self.terminal.size, colours=True)
        self.transcript = ScreenTranscript(self.screen, "main", thinking=thinking, clock=lambda: self.now)

    def show(self, *events: object) -> list[str]:
        for event in events:
            self.transcript.show(event)
        return self.terminal.picture

    def typed(self, text: str) -> list[str]:
        self.screen.show(Foot(prompt="> ", view=View(text, len(text))))
        return self.terminal.picture


def entry(content: str, *, role: str = "assistant", kind: str = "text", **more: object) -> MessageFrame:
    return MessageFrame(chat="main", seq=1, id=str(more.pop("id", "i")), role=role, kind=kind, content=content, **more)


def delta(offset: int, text: str, turn: str = "t1") -> Delta:
    return Delta(chat="main", turn=turn, offset=offset, text=text)


def welcome(*texts: str) -> Welcome:
    degraded = [DegradedPart(code=text, text=text) for text in texts]
    return Welcome(version=1, server="s", user="u", session="1", degraded=degraded, limits=LIMITS)


def test_a_streamed_answer_is_not_printed_twice() -> None:
    stage = Stage()
    picture = stage.show(delta(0, "Привет"), delta(6, ", мир"), entry("Привет, мир!", turn="t1"))
    assert picture == ["Привет, мир!", ""]
    assert stage.show(delta(0, "late", "t1")) == ["Привет, мир!", ""]


def test_missed_pieces_are_made_up_for() -> None:
    assert Stage().show(delta(0, "one "), delta(8, "three"), entry("one two three", turn="t1")) == ["one two three", ""]
    assert Stage().show(delta(0, "first"), entry("second", turn="t1")) == ["second", ""]
    assert Stage().show(entry("whole", turn="t1")) == ["whole", ""]


@pytest.mark.parametrize(
    ("streamed", "final", "stands"),
    [
        ("Одиннадцать месяцев [7].", "Одиннадцать месяцев.", ["Одиннадцать месяцев.", ""]),
        ("One.\n\nTwo [9], a long line that wraps over rows.", "One.\n\nTwo.", ["One.", "", "Two.", ""]),
        (
            "One [9].\n\nTwo.\n\nEnd",
            "One.\n\nTwo.",
            ["One [9].", "", "Two.", "", "End", "One.", "", "Two.", ""],
        ),  # a complete block stays
    ],
)
def test_a_mark_that_was_taken_out_is_taken_from_what_still_grows(streamed: str, final: str, stands: list[str]) -> None:
    stage = Stage()
    stage.typed("half a li")
    stage.show(delta(0, streamed), entry(final, turn="t1"))
    stage.screen.show(None)
    assert stage.terminal.picture == stands


def thinking(offset: int, text: str) -> ThinkingFrame:
    return ThinkingFrame(chat="main", turn="t1", offset=offset, text=text)


@pytest.mark.parametrize("end", [delta(0, "Четыре."), Tool(chat="main", turn="t1", call="c", name="add", state="done")])
def test_of_thinking_one_line_is_left(end: object) -> None:
    stage = Stage()
    stage.show(thinking(0, "Прибавлю."), Status(chat="main", state="thinking", turn="t1"))
    assert stage.transcript.busy
    stage.now += 12.7
    assert stage.show(thinking(9, " Ещё раз.")) == [""]
    assert stage.show(end)[0] == "[thought for 12 s]"
    assert stage.show(entry("Четыре.", turn="t1")) == ["[thought for 12 s]", "Четыре.", ""]


def test_thinking_is_written_line_by_line_for_who_wants_it() -> None:
    stage = Stage(thinking=True)
    assert stage.show(thinking(0, "One\ntw")) == ["One", ""]
    stage.now += 3
    lines = ["One", "two", "[thought for 3 s]", "Four.", ""]
    assert stage.show(thinking(6, "o"), delta(0, "Four."), entry("Four.", turn="t1")) == lines


def test_a_blink_of_thinking_is_not_worth_a_line() -> None:
    assert Stage().show(thinking(0, "x"), delta(0, "Four."), entry("Four.", turn="t1")) == ["Four.", ""]


def test_own_messages_stand_once_and_those_of_other_clients_too() -> None:
    stage = Stage()
    stage.transcript.submitted("a", "mine")
    assert stage.show(entry("mine", role="user", id="a"), entry("theirs\nlong", role="user", id="b")) == [
        "> mine",
        "> theirs",
        "  long",
        "",
    ]


def test_an_answer_streams_above_what_is_being_typed() -> None:
    stage = Stage(columns=20)
    stage.typed("half a li")
    stage.show(delta(0, "This is an answer that"), delta(22, " wraps over rows"))
    assert stage.terminal.picture == ["This is an answer", "that wraps over rows", "> half a li"]
    assert (stage.terminal.row, stage.terminal.column) == (2, 11)
    stage.show(entry("This is an answer that wraps over rows.", turn="t1"))
    assert stage.typed("half a line") == ["This is an answer", "that wraps over", "rows.", "> half a line"]


TEXTS = st.text(st.sampled_from("ab я日本🙂-\n   "), max_size=30)


@given(st.lists(st.one_of(TEXTS, st.integers(0, 8), st.sampled_from(["thinking", ""])), max_size=20))
def test_the_picture_is_the_text_and_then_the_input_line(steps: list[str | int]) -> None:
    """Whatever is written while whatever is typed and done, nothing is lost, doubled or left over."""
    terminal, text, foot = SmallTerminal(12, 200), "", Foot(prompt="> ", view=View("", 0))
    screen = Screen(terminal, terminal.size, colours=False)
    for step in steps:
        if step in ("thinking", ""):
            foot = attrs.evolve(foot, status=step)
            screen.show(foot)
        elif isinstance(step, str):
            text += step
            screen.write(step)
        elif step == 0:
            screen.show(None)
        else:
            foot = attrs.evolve(foot, view=View("x" * step, step))
            screen.show(foot)
    screen.show(None)
    assert terminal.picture == [row.rstrip() for line in text.split("\n") for row in wrap(line, 12)]


@given(st.lists(st.one_of(TEXTS, st.integers(4, 40), st.just(None)), max_size=20))
@example(["aa", "a日", "aaa", 4])
@example(["aaa日aa", "aaa日aa", "a", 4])
def test_after_any_change_of_size_no_ghost_is_left_and_no_word_is_doubled(steps: list[str | int | None]) -> None:
    """On a terminal that keeps the text of its rows when it becomes narrower or wider."""
    terminal, text = SmallTerminal(20, 2000), ""
    screen = Screen(terminal, terminal.size, colours=False)
    for step in steps:
        if isinstance(step, str):
            text += step
            screen.write(step)
        elif step is None:
            screen.show(None)
        else:
            terminal.resize(step)
            screen.resized()
            screen.show(
                Foot(prompt="> ", view=View("x" * min(step - 3, 9), min(step - 3, 9)), status="think"[: step - 1])
            )
    screen.show(None)
    assert "".join(terminal.picture).replace(" ", "") == text.replace(" ", "").replace("\n", "")


def test_what_is_said_before_tools_stands_once_and_the_answer_begins_behind_it() -> None:
    stage = Stage(columns=80)
    picture = stage.show(
        delta(0, "Let me"),
        entry("Let me look.", kind="tool_call", turn="t1"),
        Tool(chat="main", turn="t1", call="c", name="clock", state="started"),
        delta(0, "It is"),
        entry("It is noon.", turn="t1"),
        entry("Смотрю.", kind="tool_call", turn="t2"),
        entry("Полдень.", turn="t2"),
    )
    assert picture == ["Let me look.", "[clock]", "It is noon.", "Смотрю.", "Полдень.", ""]


def test_commands_tools_breaks_and_errors() -> None:
    stage = Stage(columns=80)
    picture = stage.show(
        entry("Everything works.", role="system", kind="command"),
        entry("", role="system", kind="session_break"),
        entry("", kind="tool_call", turn="t1"),
        Tool(chat="main", turn="t1", call="c", name="clock", state="started", what="zone: UTC"),
        Tool(chat="main", turn="t1", call="c", name="clock", state="done"),
        delta(0, "It is"),
        Error(code="llm_timeout", message="the model did not answer", retryable=True, chat="main", turn="t1"),
        Status(chat="main", state="failed", turn="t1", ended="failed"),
        entry("other chat").__class__(chat="other", seq=1, id="x", role="user", kind="text", content="hidden"),
    )
    assert picture == [
        "Everything works.",
        "--- a new conversation ---",
        "[clock: zone: UTC]",
        "It is",
        "[the model did not answer; /retry tries again]",
        "",
    ]


def test_the_result_of_a_task_carries_its_name_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    stage = Stage(columns=80)
    result = entry("Дождь.", kind="scheduled", task="weather", created_at="2026-11-22T07:30:00.000Z")
    assert stage.show(result) == ["[task weather, 2026-11-22 07:30]", "Дождь.", ""]


def test_the_cause_of_a_failed_turn_is_told_once() -> None:
    """The notice that the provider is down has the same cause, and a text that names /retry needs no second one."""
    stage = Stage(columns=200)
    cause = "stub/m at http://127.0.0.1:9/v1: the LLM provider cannot be reached"
    picture = stage.show(
        Error(code="llm_down", message=f"{cause}. Send /retry", retryable=True, chat="main", turn="t1"),
        Notice(code="llm:stub", text=f"the LLM provider stub is down: {cause}"),
        Notice(code="storage", text="the disk is full"),
    )
    assert picture == [f"[{cause}. Send /retry]", "[the disk is full]", ""]


def test_what_is_degraded_is_said_once() -> None:
    stage = Stage(columns=80)
    text = "full-text only: no embedding model"
    picture = stage.show(
        ConnectedEvent(welcome=welcome(text), again=False),
        Notice(code=text, text=text),
        DisconnectedEvent(code="closed_1001"),
        ConnectedEvent(welcome=welcome(text), again=True),
    )
    assert picture == [f"[{text}]", "[connection lost; trying to get it back]", "[connected again]", ""]


def test_busy_follows_the_turn() -> None:
    stage = Stage()
    seen = []
    for event in (
        Status(chat="main", state="thinking", turn="t1"),
        delta(0, "x"),
        Status(chat="main", state="idle", turn="t1", ended="stopped"),
        Status(chat="main", state="answering", turn="t2"),
        StoppedFrame(chat="main", running=True),
        Status(chat="main", state="idle"),
    ):
        stage.show(event)
        seen.append(stage.transcript.busy)
    assert seen == [True, True, False, True, False, False]
    assert stage.terminal.picture == ["x", "[stopped]", ""]


def test_foreign_text_cannot_draw() -> None:
    picture = Stage().show(entry("\x1b[2J\x1b[Hgone", turn="t1"), delta(0, "\x1b]0;t\x07", "t2"))
    assert picture == ["␛[2J␛[Hgone", "␛]0;t␇"]


@pytest.mark.parametrize(
    ("presses", "does"),
    [
        ([(0, True, False), (1, True, False)], ["stop", "quit"]),
        ([(0, True, False), (5, True, False)], ["stop", "stop"]),
        ([(0, False, False)], ["quit"]),
        ([(0, False, True), (1, False, False)], ["clear", "quit"]),
        ([(0, False, True), (9, False, True)], ["clear", "clear"]),
        # Typed again meanwhile: leaving would lose it.
        ([(0, False, True), (1, False, True), (2, False, False)], ["clear", "clear", "quit"]),
        ([(0, True, True), (1, True, True), (2, True, False)], ["stop", "clear", "quit"]),
    ],
)
def test_control_c(presses: list[tuple[float, bool, bool]], does: list[str]) -> None:
    interrupts = Interrupts()
    assert [interrupts.press(now, busy=busy, typed=typed) for now, busy, typed in presses] == does


def test_an_unchanged_input_line_is_not_drawn_again() -> None:
    stage = Stage()
    stage.typed("abc")
    written: list[str] = []
    stage.terminal.write = written.append
    stage.typed("abc")
    assert written == []


def test_a_problem_that_only_became_another_one_is_not_said_to_be_over() -> None:
    stage = Stage(60)
    stage.show(
        Notice(code="budget_low", text="85 % used", details={"state": "degraded"}),
        Notice(code="budget_low", text="used up", details={"state": "recovered", "now": "budget_used_up"}),
        Notice(code="budget_used_up", text="used up", details={"state": "degraded"}),
    )
    picture = stage.show(Notice(code="budget_used_up", text="there is room again", details={"state": "recovered"}))
    assert picture == ["[85 % used]", "[used up]", "[there is room again]", ""]


def test_the_cited_passages_stand_below_an_answer() -> None:
    place = {"base": "b", "source": "s", "document": "d", "first_page": 3, "last_page": 3, "heading": "Сроки"}
    used = ContextUsed(
        passages=(
            UsedPassage(number=1, name="a.pdf", **place),
            UsedPassage(number=2, name="b.pdf", cited=True, **place),
        )
    )
    stage = Stage()
    shown = stage.show(delta(0, "Год [2]. Да [7]."), entry("Год [2]. Да.", turn="t1", context_used=used))
    assert shown[:2] == ["Год [2]. Да.", "[2] b.pdf, page 3, Сроки"]
    assert stage.transcript.with_passages == "t1"
