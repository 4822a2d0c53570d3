"""Which question is shown, and what y and n answer."""

import time

import pytest

from klaw.client.transcript import READ_S, Questions, question_text
from klaw.wire.frames import ApprovalEndedFrame, ApprovalFrame, Approve


def approval(number: int) -> ApprovalFrame:
    return ApprovalFrame(
        chat="main",
        id=f"a{number}",
        tool="host_exec",
        what=f"[NOT in a sandbox] rm {number}",
        until="2026-11-22T12:00:05.000Z",
    )


def test_one_question_is_shown_at_a_time() -> None:
    questions = Questions()
    questions.asked(approval(1))
    questions.asked(approval(2))
    questions.asked(approval(1))

    assert questions.next(0.0) == approval(1)
    assert questions.next(1.0) is None
    assert questions.answer("y", 10.0) == Approve(id="a1", allow=True)
    assert questions.ended(ApprovalEndedFrame(chat="main", id="a1", outcome="allowed"))
    assert questions.answer("y", 10.0) is None
    assert questions.next(10.0) == approval(2)
    assert not questions.ended(ApprovalEndedFrame(chat="main", id="a1", outcome="allowed"))
    assert questions.answer("n", 10.0) == Approve(id="a2", allow=False)
    questions.forget()
    assert questions.next(11.0) is None


def test_words_of_two_languages_answer_and_others_are_messages() -> None:
    questions = Questions()
    questions.asked(approval(1))
    questions.next(0.0)

    for yes in ("y", "Yes", "д", "Да", " да. ", "ДА!"):
        assert questions.answer(yes, 9.0) == Approve(id="a1", allow=True), yes
    for no in ("n", "NO", "н", "Нет."):
        assert questions.answer(no, 9.0) == Approve(id="a1", allow=False), no
    for message in ("yes please", "да, но потом", "ok", "", "/stop"):
        assert questions.answer(message, 9.0) is None, message


def test_yes_to_a_question_that_has_just_appeared_does_not_count() -> None:
    questions = Questions()
    questions.asked(approval(1))
    questions.next(5.0)

    assert questions.too_soon("y", 5.0 + READ_S / 2)
    assert questions.answer("y", 5.0 + READ_S / 2) is None
    assert questions.answer("n", 5.0) == Approve(id="a1", allow=False)
    assert not questions.too_soon("n", 5.0)
    assert questions.answer("y", 5.0 + READ_S) == Approve(id="a1", allow=True)


def test_question_names_tool_time_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    text = question_text(approval(1))
    monkeypatch.undo()
    time.tzset()
    assert text == "[host_exec wants to run, allow it? y/n, until 13:00:05] [NOT in a sandbox] rm 1"
