"""What of a resent transcript is new, and what is a program's own question."""

import pytest

from klaw.api.client_messages import SentCall, TranscriptMessage, read_transcript
from klaw.api.transcript import RequestedChat, named_chat
from klaw.errors import BadValue


def said(*pairs):
    return [TranscriptMessage(role=role, content=content) for role, content in pairs]


def test_what_came_before_the_last_message_is_its_history():
    found = read_transcript(
        said(
            ("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")
        )
    )
    assert (found.question.content, found.instructions) == ("e", "Be brief.")
    assert [each.content for each in found.history] == ["a", "b", "c", "d"]


def test_rounds_of_a_clients_tools_are_told_in_words():
    call = SentCall(id="c1", name="weather", arguments="{}")
    found = read_transcript(
        [
            *said(("user", "weather?")),
            TranscriptMessage(role="assistant", tool_calls=[call]),
            *said(("tool", "SUNNY 21"), ("assistant", "It is sunny."), ("user", "thanks")),
        ]
    )
    (asked, told) = found.history
    assert (asked.content, told.role) == ("weather?", "assistant")
    assert (told.said.split(), told.calls[0].result) == (["It", "is", "sunny."], "SUNNY 21")
    assert told.content == '[called {"name": "weather", "arguments": "{}"}]\n[result: SUNNY 21]\nIt is sunny.'


@pytest.mark.parametrize(
    "messages",
    [said(("assistant", "a")), said(("user", " ")), said(("system", "a")), said(("user", "a"), ("tool", "b"))],
)
def test_without_a_question_at_its_end_it_is_refused(messages):
    with pytest.raises(BadValue, match="messages"):
        read_transcript(messages)


@pytest.mark.parametrize(
    "address", ["https://a.example/x.png", "data:image/png,abc", "data:;base64,%%", "data:;base64", ""]
)
def test_a_picture_that_does_not_come_with_the_message_is_refused(address):
    with pytest.raises(BadValue, match="messages: must be a picture in base64"):
        TranscriptMessage(role="user", content="look", pictures=[address]).files()


def test_pictures_of_the_last_message():
    found = read_transcript([TranscriptMessage(role="user", pictures=["data:image/png;base64,YWI="], images=["Yw=="])])
    assert (found.question.content, found.question.files) == ("", (b"ab", b"c"))


def test_a_task_behind_the_conversation_as_a_system_text_is_a_side_question():
    """26.C2: NextChat's summary."""
    found = read_transcript(said(("user", "a"), ("assistant", "b"), ("system", "Summarize the discussion briefly")))
    assert found.is_side_question
    assert (found.question.content, found.instructions) == ("Summarize the discussion briefly", "")
    assert not read_transcript(said(("user", "a"), ("system", "Stay in character"))).is_side_question


def test_a_request_can_say_that_it_is_not_to_be_stored():
    assert read_transcript(said(("user", "a")), store=False).is_side_question


@pytest.mark.parametrize(
    ("headers", "user", "chat"),
    [
        ({"x-klaw-chat": "%D0%BE%D0%B3%D0%BE%D1%80%D0%BE%D0%B4"}, None, RequestedChat("огород", resends=False)),
        ({"x-conversation-id": "5c0e"}, "me", RequestedChat("5c0e", resends=True)),
        ({}, "me", RequestedChat("me", resends=False)),
        ({}, None, None),
    ],
)
def test_the_chat_that_a_request_names(headers, user, chat):
    assert named_chat(headers, user) == chat


def test_what_is_no_name_of_a_chat_becomes_one():
    assert named_chat({}, "user/42?") == named_chat({}, "user/42?")
    assert named_chat({}, "user/42?").name.startswith("api-")
