"""Reading a log from its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.store.engine import log_files as jsonl
from klaw.store.engine.log_files import TOO_LONG, lines_backwards


@given(
    data=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=12),
    torn=st.booleans(),
    block=st.integers(1, 9),
    longest=st.none() | st.integers(1, 12),
)
def test_lines_come_last_first_in_any_block_size(tmp_path_factory, data, torn, block, longest):
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    path.write_bytes(b"\n".join(data) + (b"" if torn else b"\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_BLOCK", block)
        found = list(lines_backwards(path, longest=longest))
    whole = [line for line in reversed(data) if line]
    assert found == [line if longest is None or len(line) <= longest else TOO_LONG for line in whole]


@given(at_most=st.integers(0, 30), block=st.integers(1, 9))
def test_only_the_end_is_read(tmp_path_factory, at_most, block):
    """A line that begins before the part that is read is left out."""
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    path.write_bytes(b"aaa\nbbbb\nc\n\ndd\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_BLOCK", block)
        found = list(lines_backwards(path, at_most=at_most))
    # A line is known to begin where it does once the line break before it is seen.
    needed = {b"dd": 4, b"c": 7, b"bbbb": 12, b"aaa": 15}
    assert found == [line for line, size in needed.items() if size <= at_most]


def test_a_very_long_line_is_not_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b"x" * 10_000_000 + b'\n{"b": 2}\n')
    assert list(lines_backwards(path, longest=1000)) == [b'{"b": 2}', TOO_LONG, b'{"a": 1}']
