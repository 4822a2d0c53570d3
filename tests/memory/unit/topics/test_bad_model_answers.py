"""What models answer instead of what they were asked for."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.domain.topic import MAX_SUMMARY_CHARS
from klaw.errors import BadAnswer
from klaw.json_schema import schema_of
from klaw.llm.ask_json import read_answer
from klaw.memory.topics.chooser import TopicChoice, TopicChoices, chosen_of
from klaw.memory.topics.fact_extractor import FactsAnswer
from klaw.memory.topics.maker import Merge, MergeAnswer, merge_of
from klaw.memory.topics.splitter import AnsweredTopic, Split, pieces_of
from klaw.memory.topics.texts import shorten

GOOD = {"topics": [{"summary": "Поездка на дачу", "start_msg_id": 1, "end_msg_id": 4}]}


def read_split(text: str) -> list[AnsweredTopic]:
    return pieces_of(read_answer(text, Split))


def read_merge(text: str, candidates: int) -> Merge | None:
    return merge_of(read_answer(text, MergeAnswer), candidates)


def read_choices(text: str, candidates: set[int]) -> list[TopicChoice]:
    return chosen_of(read_answer(text, TopicChoices), candidates)


PIECES = [AnsweredTopic("Поездка на дачу", 1, 4)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD)}\n```",
        f"Here you are:\n```\n{json.dumps(GOOD, indent=1)}\n```\nAnything else?",
        f"Sure! {json.dumps(GOOD)} I hope this helps.",
        json.dumps(GOOD["topics"]),
        json.dumps({"topics": [{"summary": "Поездка на дачу", "start_msg_id": "#1", "end_msg_id": 4.0, "more": 1}]}),
    ],
)
def test_json_in_many_forms(text):
    assert read_split(text) == PIECES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot help with that.",
        json.dumps(GOOD)[:-9],
        "```json\n" + json.dumps(GOOD)[:40],
        '{"topics": []}',
        "[]",
        "{}",
        "null",
        '{"topics": {"summary": 1}}',
        '{"topics": [{"summary": "x", "start_msg_id": true, "end_msg_id": 2}]}',
        '{"topics": [{"summary": "x", "start_msg_id": 1.5, "end_msg_id": 2}]}',
        '{"topics": [{"summary": "x", "start_msg_id": null, "end_msg_id": 2}]}',
        '{"topics": [{"summary": "", "start_msg_id": 1, "end_msg_id": 2}]}',
        '{"topics": [{"summary": " … ", "start_msg_id": 1, "end_msg_id": 2}]}',
        '{"topics": [{"summary": ["a"], "start_msg_id": 1, "end_msg_id": 2}]}',
        '{"topics": [' * 5000,
        "[" * 200_000,
        '{"topics": ' + "9" * 100_000,
        "x" * 1_000_001,
    ],
)
def test_what_is_no_answer_is_refused_without_quoting_it(text):
    with pytest.raises(BadAnswer) as error:
        read_split(text)
    assert len(str(error.value)) < 150


def test_a_summary_of_50_000_characters_is_cut():
    answer = {"topics": [{"summary": "слово " * 9_000, "start_msg_id": 1, "end_msg_id": 2}]}
    (piece,) = read_split(json.dumps(answer))
    assert len(piece.summary) <= MAX_SUMMARY_CHARS


def test_ten_thousand_topics_are_read():
    answer = {"topics": [{"summary": "a", "start_msg_id": n, "end_msg_id": n} for n in range(10_000)]}
    assert len(read_split(json.dumps(answer))) == 10_000


def merge(**changes) -> str:
    return json.dumps({"should_merge": True, "reason": "r", "topic": 2, "merged_summary": "both", **changes})


def test_a_merge():
    assert read_merge(merge(), 3) == Merge(2, "both")
    assert read_merge(merge(should_merge=False, merged_summary=""), 3) is None
    assert read_merge(merge(should_merge="true"), 3) == Merge(2, "both")


@pytest.mark.parametrize("topic", [0, -1, 4, 10**8])
def test_a_merge_that_names_another_topic_is_none(topic):
    assert read_merge(merge(topic=topic), 3) is None


def test_a_merge_without_a_summary_is_refused():
    with pytest.raises(BadAnswer):
        read_merge(merge(merged_summary=" "), 3)


def choices(*ids: object) -> str:
    return json.dumps({"topics": [{"id": each, "reason": "r", "excerpt": "e"} for each in ids]})


def test_choices_keep_their_order_and_come_once():
    assert [each.id for each in read_choices(choices(7, 5, 7, 99), {5, 7})] == [7, 5]
    assert read_choices(choices(), {5}) == []
    with pytest.raises(BadAnswer):
        read_choices(choices(1, 2), {5})
    assert [each.id for each in read_choices('{"topics": [{"id": 5}]}', {5})] == [5]


def test_the_form_of_an_answer_is_closed_and_lists_all_its_members():
    """As every provider takes it."""
    facts, people = schema_of(FactsAnswer, closed=True)["properties"].values()
    assert facts["items"]["properties"]["action"] == {"type": "string", "enum": ["add", "update", "delete"]}
    assert people["items"]["properties"]["aliases"] == {"type": "array", "items": {"type": "string"}}
    for each in (
        schema_of(FactsAnswer, closed=True),
        facts["items"],
        people["items"],
        schema_of(MergeAnswer, closed=True),
        schema_of(Split, closed=True),
    ):
        assert (each["type"], each["additionalProperties"]) == ("object", False)
        assert each["required"] == [*each["properties"]]


@given(st.text(max_size=80), st.integers(1, 60))
def test_shortened_texts_are_short(text, limit):
    assert len(shorten(text, limit)) <= limit
    assert shorten(text, limit) == text or len(text) > limit


@given(
    st.text(max_size=300)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["topics", "summary", "start_msg_id", "end_msg_id"]), inner)
        ),
        max_leaves=12,
    ).map(json.dumps)
)
def test_any_text_is_read_or_refused(text):
    for read in (read_split, lambda each: read_merge(each, 3), lambda each: read_choices(each, {1, 2})):
        with contextlib.suppress(BadAnswer):
            read(text)
