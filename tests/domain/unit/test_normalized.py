"""Normalisation that is linear in the text, and the same as Unicode's for every text that somebody writes."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.names import chat_name
from klaw.domain.text import _MARKS, normalized
from klaw.errors import InvalidName
from tests.support.hostile import hostile_texts

CPU_S = 1.0
"""For 64 KB; it takes some milliseconds, and sorting the marks of one letter several seconds."""


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@given(text=st.text(alphabet=st.characters() | st.sampled_from("e\u0301\u0316\u0345ё\u0308\u1112\u1161\u11ab\ufdfa")))
def test_it_is_unicodes_own_but_for_runs_of_thirty_marks(form, text):
    if _MARKS.search(text) is None:
        assert normalized(form, text) == unicodedata.normalize(form, text)
    else:
        assert unicodedata.normalize(form, normalized(form, text)) == unicodedata.normalize(form, text)


def test_every_character_that_may_be_sorted_counts_as_a_mark():
    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code <= 0xDFFF:
            pieces = unicodedata.normalize("NFKD", chr(code))
            if unicodedata.combining(pieces[0]):
                assert _MARKS.fullmatch(chr(code) * 30), hex(code)
            assert sum(map(bool, map(unicodedata.combining, pieces))) <= 3, hex(code)


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_no_text_takes_more_time_than_its_length(form):
    for name, text in hostile_texts(ends=("",)):
        begin = time.process_time()
        normalized(form, text)
        assert time.process_time() - begin < CPU_S, name


def test_a_chat_name_is_measured_before_it_is_normalised():
    assert chat_name("e\u0301" * 64) == "é" * 64
    for name, text in hostile_texts(ends=("", "z")):
        begin = time.process_time()
        with pytest.raises(InvalidName):
            chat_name(text)
        assert time.process_time() - begin < CPU_S, name
