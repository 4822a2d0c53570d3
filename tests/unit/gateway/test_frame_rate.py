"""Frames on the wire, counted as they come, however they are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.gateway.rate_limits import FramePace
from tools.attack_hostile import BINARY, PING, TEXT, framed


@given(
    frames=st.lists(
        st.tuples(
            st.sampled_from([TEXT, BINARY, PING]), st.sampled_from([0, 1, 125, 126, 300, 65_535, 65_536]), st.booleans()
        ),
        max_size=6,
    ),
    cuts=st.lists(st.integers(0, 140_000), max_size=20),
)
def test_every_frame_counts_once_however_it_is_cut(frames, cuts):
    whole = b"".join(framed(opcode, bytes(length), masked=masked) for opcode, length, masked in frames)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pace = FramePace(rate=1.0, burst=0.0, now=0.0)
    waits = [pace.wait_s(whole[begin:end], 0.0) for begin, end in pairwise(places)]
    assert waits[-1] == len(frames)


def test_what_comes_too_fast_is_waited_for():
    pace = FramePace(rate=10.0, burst=100.0, now=0.0)
    assert pace.wait_s(framed(PING, b"") * 100, 0.0) == 0.0
    assert pace.wait_s(framed(PING, b"") * 5, 0.0) == pytest.approx(0.5)
    assert pace.wait_s(b"", 0.5) == 0.0
    assert pace.wait_s(framed(PING, b"") * 100, 1000.0) == 0.0, "no more than a burst is saved"
