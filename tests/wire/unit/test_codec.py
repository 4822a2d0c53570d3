"""The codec: strict, forward compatible, and unable to raise anything but its own error."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.errors import ProtocolError
from klaw.wire.codec import decode_client, decode_server, encode
from klaw.wire.frames import Delta, Error, Hello, Send, Status, Watch

LIMIT = 65_536

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
tags = st.sampled_from(["hello", "send", "history", "chats", "stop", "receipt", "status", "watch", "message", "error"])
fields = st.sampled_from(
    ["version", "client", "token", "chats", "id", "chat", "text", "before", "after", "limit", "seq", "ref", "turn"]
)


def only_frame_errors(text):
    for decode in (lambda: decode_client(text, LIMIT), lambda: decode_server(text)):
        with contextlib.suppress(ProtocolError):
            decode()


@given(st.text(st.characters()))
def test_any_text_decodes_or_is_a_frame_error(text):
    only_frame_errors(text)


@given(st.binary())
def test_any_bytes_read_as_text_decode_or_are_a_frame_error(data):
    only_frame_errors(data.decode("utf-8", "surrogateescape"))


@given(tags, st.dictionaries(fields, anything))
def test_any_json_decodes_or_is_a_frame_error(tag, tree):
    only_frame_errors(json.dumps({**tree, "type": tag}))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip))
def test_a_text_comes_through_unchanged(text):
    frame = Send(id="m1", chat="main", text=text)
    assert decode_client(encode(frame), 10**6) == frame


def refused(**tree):
    with pytest.raises(ProtocolError) as caught:
        decode_client(json.dumps(tree), LIMIT)
    return caught.value


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [], {}, 2**53, -(2**53)])
def test_a_number_is_not_coerced(value):
    error = refused(type="hello", version=value)
    assert (error.code, str(error).split(":")[0]) == ("bad_frame", "version")


@pytest.mark.parametrize("value", [True, 1.0, 5, [], {}])
def test_a_text_is_not_coerced(value):
    error = refused(type="send", id="m1", chat="main", text=value)
    assert (error.code, str(error).split(":")[0]) == ("bad_frame", "text")


def test_unknown_fields_are_ignored():
    assert decode_client('{"type":"watch","chat":"main","colour":"red"}', LIMIT) == Watch(chat="main")


def test_an_unknown_type_is_none_for_a_client_and_an_error_for_the_server():
    assert decode_server('{"type":"from_the_future"}') is None
    assert refused(type="from_the_future").code == "unknown_type"


def test_of_duplicate_keys_the_last_counts():
    assert decode_client('{"type":"stop","type":"watch","chat":"a","chat":"b"}', LIMIT) == Watch(chat="b")


def test_null_is_the_same_as_absent_for_optional_fields():
    assert decode_client('{"type":"watch","chat":"main","seq":null}', LIMIT) == Watch(chat="main")


def test_names_are_normalised():
    decomposed = "й\u0306".replace("й", "и")
    frame = decode_client(json.dumps({"type": "hello", "version": 1, "chats": {decomposed: 3}}), LIMIT)
    assert frame == Hello(version=1, chats={"й": 3})
    assert decode_client(json.dumps({"type": "watch", "chat": decomposed}), LIMIT) == Watch(chat="й")


def test_lone_surrogates_and_nul_are_refused_wherever_they_stand():
    for bad in ("\ud800", "a\0"):
        assert refused(type="send", id="m1", chat="main", text=bad).code == "bad_text"
        assert refused(type="send", id="m1", chat=bad, text="x").code == "bad_text"
        assert refused(type="hello", version=1, chats={bad: 1}).code == "bad_text"
        assert refused(type="call", operation="health", ref=bad).code == "bad_text"


def test_an_error_never_quotes_the_frame():
    canary = "canary-Жёлудь-7731"
    trees = [
        {"type": canary},
        {"type": "send", "id": canary, "chat": "main", "text": "x"},
        {"type": "send", "id": "m1", "chat": f"../{canary}", "text": "x"},
        {"type": "hello", "version": canary, "token": canary},
        {"type": "send", "id": "m1", "chat": "main", "text": canary + "\0"},
    ]
    for tree in trees:
        error = refused(**tree)
        assert canary not in str(error)
        assert canary not in repr(error.__cause__)
    with pytest.raises(ProtocolError) as caught:
        decode_client(canary, LIMIT)
    assert canary not in str(caught.value)


def test_the_limit_counts_bytes_of_utf8():
    frame = encode(Send(id="m1", chat="main", text="👋" * 100))
    assert decode_client(frame, len(frame.encode()))
    with pytest.raises(ProtocolError) as caught:
        decode_client(frame, len(frame.encode()) - 1)
    assert (caught.value.code, caught.value.close) == ("frame_too_large", True)


def test_a_huge_number_and_deep_nesting_are_bad_json():
    for text in ('{"type":"hello","version":' + "1" * 5000 + "}", '{"a":' * 30_000, "[" * 60_000):
        with pytest.raises(ProtocolError) as caught:
            decode_client(text, 10**6)
        assert caught.value.code == "bad_json"


def test_what_is_none_is_left_out_and_lone_surrogates_become_the_replacement_character():
    assert encode(Error(code="busy", message="m")) == '{"type":"error","code":"busy","message":"m","retryable":false}'
    text = encode(Delta(chat="main", turn="t", offset=0, text="я\ud800"))
    assert json.loads(text)["text"] == "я\ufffd"
    assert json.loads(encode(Delta(chat="main", turn="t", offset=0, text="ok 👋")))["text"] == "ok 👋"


def test_numbers_that_json_does_not_have_are_refused_in_frames_of_the_server_too():
    with pytest.raises(ProtocolError):
        decode_server('{"type":"receipt","timings":{"llm":NaN}}')


def test_frames_that_are_written_can_be_read_again():
    frame = Status(chat="main", state="failed", details={"depth": 3, "share": 0.5})
    assert decode_server(encode(frame)) == frame
