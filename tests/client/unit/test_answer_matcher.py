"""Which event is the answer to a message in a pipe."""

from klaw.client.ask import NoAnswer, Waiter
from klaw.wire.frames import Delta, Error, MessageFrame, Status

MINE = MessageFrame(chat="main", seq=5, id="mine", role="user", kind="text", content="question")


def answer(turn: str | None, seq: int = 6) -> MessageFrame:
    return MessageFrame(chat="main", seq=seq, id=f"a{seq}", role="assistant", kind="text", content="x", turn=turn)


def reply(text: str) -> MessageFrame:
    return MessageFrame(chat="main", seq=6, id="s", role="system", kind="command", content=text)


def test_the_answer_of_a_turn_that_ran_before_is_not_it() -> None:
    waiter = Waiter("main", "mine")
    assert waiter.see(Status(chat="main", state="thinking", turn="old")) is None
    assert waiter.see(MINE) is None
    assert waiter.see(Delta(chat="main", turn="old", offset=0, text="x")) is None
    assert waiter.see(answer("old")) is None
    assert waiter.see(Error(code="x", message="y", chat="main", turn="old")) is None
    assert waiter.see(answer("new", 7)) == answer("new", 7)


def test_answers_before_the_message_and_in_other_chats_do_not_count() -> None:
    waiter = Waiter("main", "mine")
    assert waiter.see(answer("t", 4)) is None
    waiter.see(MINE)
    assert (
        waiter.see(MessageFrame(chat="b", seq=9, id="q", role="assistant", kind="text", content="x", turn="t2")) is None
    )


def test_failed_and_stopped_turns_give_no_answer() -> None:
    waiter = Waiter("main", "mine")
    waiter.see(MINE)
    assert waiter.see(Error(code="llm_timeout", message="slow", chat="main", turn="t")) == NoAnswer(
        "llm_timeout", "slow"
    )
    stopped = waiter.see(Status(chat="main", state="idle", turn="t", ended="stopped"))
    assert isinstance(stopped, NoAnswer)


def test_a_command_is_answered_by_its_reply() -> None:
    waiter = Waiter("main", "mine")
    waiter.see(MINE)
    session_break = MessageFrame(chat="main", seq=6, id="b", role="system", kind="session_break", content="")
    assert waiter.see(session_break) is None
    assert waiter.see(reply("done")) == reply("done")


def test_retry_waits_for_the_answer_but_not_for_ever() -> None:
    waiter = Waiter("main", "mine", answered_later=True)
    waiter.see(MINE)
    assert waiter.see(reply("Trying again.")) is None
    assert waiter.in_doubt
    assert waiter.settle() == reply("Trying again.")
    waiter.see(Status(chat="main", state="thinking", turn="t"))
    assert not waiter.in_doubt
    assert waiter.see(answer("t")) == answer("t")


def test_an_idle_chat_after_a_reconnect_raises_doubt() -> None:
    waiter = Waiter("main", "mine")
    assert waiter.see(Status(chat="main", state="idle")) is None
    assert not waiter.in_doubt
    waiter.see(MINE)
    waiter.see(Status(chat="main", state="idle"))
    assert waiter.in_doubt
    assert isinstance(waiter.settle(), NoAnswer)
    waiter.see(Status(chat="main", state="thinking", turn="t"))
    assert not waiter.in_doubt
