"""The event decoder gives the same events however the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.llm.errors import ProviderMalformed
from klaw.llm.providers.response import EventDecoder


def decode(chunks: list[bytes]) -> list[str]:
    decoder = EventDecoder(1000, 10_000)
    return [data for chunk in chunks for _, data in decoder.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data:a\ndata:  b\n\n", ["a\n b"]),
        (b": comment\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data\n\n", [""]),
        (b"dating: x\n\ndata: cut off\n", []),
        ("data: привет\n\n".encode(), ["привет"]),
        (b"data: \xff\n\n", ["�"]),
        (b"", []),
    ],
)
def test_whole_and_byte_by_byte(stream: bytes, events: list[str]) -> None:
    assert decode([stream]) == events
    assert decode([stream[n : n + 1] for n in range(len(stream))]) == events


@given(
    st.lists(st.sampled_from([b"data: x", b"data:", b"\r", b"\n", b"\r\n", b":", b"z", b"\xd1\x8f", b""]), max_size=15)
)
def test_cutting_never_matters(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert decode(parts) == decode([whole]) == decode([whole[n : n + 1] for n in range(len(whole))])


@pytest.mark.parametrize("stream", [b"x" * 1001, b"data: x\n" * 200, b":" + b"x" * 1001 + b"\n"])
def test_an_event_without_an_end_is_refused(stream: bytes) -> None:
    with pytest.raises(ProviderMalformed, match="1000"):
        decode([stream[n : n + 100] for n in range(0, len(stream), 100)])


def test_comments_do_not_add_up() -> None:
    """Keep-alive lines inside of an event that takes long do not count against it."""
    assert decode([b"data: a\n", *[b": keep-alive\n"] * 500, b"\n"]) == ["a"]


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b": x\n", b"data: x\n\n"])
def test_lines_without_an_end_are_refused(line: bytes) -> None:
    with pytest.raises(ProviderMalformed, match="too many lines"):
        decode([line * 2000] * 20)


def test_names_of_events_and_what_stands_outside_of_them() -> None:
    """26.C1: an error event is known by its name; a bare error behind the events is kept to be read."""
    decoder = EventDecoder(1000, 10_000)
    assert list(decoder.feed(b'event: error\ndata: {"message": "x"}\n\ndata: y\n\n')) == [
        ("error", '{"message": "x"}'),
        ("", "y"),
    ]
    assert decoder.rest() == ""
    assert not list(decoder.feed(b': comment\n{"error":\n "over"}'))
    assert decoder.rest().split() == ['{"error":', '"over"}']
