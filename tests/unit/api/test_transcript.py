"""What of a resent transcript is new, and what is a program's own question."""

import pytest

from klaw.api.transcript import Said, named_chat, read_transcript
from klaw.errors import BadValue


def said(*pairs):
    return [Said(role=role, content=content) for role, content in pairs]


def test_only_the_last_message_is_new_and_the_last_pair_leads_to_its_chat():
    found = read_transcript(
        said(
            ("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")
        )
    )
    assert (found.text, found.instructions, found.before) == ("e", "Be brief.", ("c", "d"))


@pytest.mark.parametrize("messages", [said(("assistant", "a")), said(("user", " ")), said(("system", "a"))])
def test_without_a_question_at_its_end_it_is_refused(messages):
    with pytest.raises(BadValue, match="messages"):
        read_transcript(messages)


@pytest.mark.parametrize(
    "address", ["https://a.example/x.png", "data:image/png,abc", "data:;base64,%%", "data:;base64", ""]
)
def test_a_picture_that_does_not_come_with_the_message_is_refused(address):
    with pytest.raises(BadValue, match="messages: must be a picture in base64"):
        read_transcript([Said(role="user", content="look", pictures=[address])])
    older = [Said(role="user", content="look", pictures=[address]), *said(("assistant", "a"), ("user", "b"))]
    assert read_transcript(older).pictures == ()


def test_pictures_of_the_last_message():
    found = read_transcript([Said(role="user", pictures=["data:image/png;base64,YWI="], images=["Yw=="])])
    assert (found.text, found.pictures) == ("", (b"ab", b"c"))


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history", True),
        ("Provide a concise, 5-word-or-less title for the conversation, using title case conventions.", True),
        ("Please generate a concise, 5-word-or-less title for the conversation", True),
        ("Analyze this conversation and provide:\n1. A concise title in the detected language", True),
        ("Suggest a title for my blog post about tea", False),
        ("Write a short story with the title 'The Conversation'", False),
        ("Create a title page for the club", False),
        ("Придумай название для чата", False),
    ],
)
def test_what_a_person_asks_is_never_taken_for_a_programs_question(text, side):
    assert read_transcript(said(("user", text))).is_side_question is side


@pytest.mark.parametrize(
    ("headers", "user", "chat"),
    [
        ({"x-klaw-chat": "%D0%BE%D0%B3%D0%BE%D1%80%D0%BE%D0%B4"}, None, "огород"),
        ({"x-conversation-id": "5c0e"}, "me", "5c0e"),
        ({}, "me", "me"),
        ({}, None, None),
    ],
)
def test_the_chat_that_a_request_names(headers, user, chat):
    assert named_chat(headers, user) == chat


def test_what_is_no_name_of_a_chat_becomes_one():
    assert named_chat({}, "user/42?") == named_chat({}, "user/42?")
    assert named_chat({}, "user/42?").startswith("api-")
