"""No text of anybody, in whatever slot of whatever prompt, makes a line that looks like one of Klaw's own."""

import re
from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from klaw.context.assemble import assemble, plan
from klaw.context.inputs import Budget, Settings
from klaw.context.pinned_facts import standing
from klaw.context.request import shorten
from klaw.domain import core_memory
from klaw.domain.fact import FactId, FactSource, Origin
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.domain.person import PersonId
from klaw.domain.search import FactResult, FileResult, NamedFact, PersonResult, SearchPage, TopicResult
from klaw.domain.task import Run, RunKind, RunStatus, TaskName
from klaw.domain.text import HEADERS, MARK, hanging, one_line, prose, quoted, tagged
from klaw.domain.topic import TopicCandidate
from klaw.llm.providers.adapt import without_tools
from klaw.llm.types import ChatMessage, Request, ToolCall
from klaw.memory.search.format_results import show
from klaw.memory.summaries import asking
from klaw.memory.topics import chooser, maker
from klaw.memory.topics.texts import render
from klaw.runs import run as run_context
from klaw.runs.run import situation
from tests.context.unit.test_assemble import MET, recalled, snapshot
from tests.context.unit.test_topics import candidate, chosen
from tests.support.facts import fact
from tests.support.stores import dialogue, stored

LINE_ENDS = ("\n", "\r", "\r\n", "\n\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n  ", "\n\t")
PIECES = (
    *LINE_ENDS,
    *HEADERS,
    *("[user] ", "[assistant] ", "  [user] ", "[USER]", "[ system ] ", "[tool] ", "[topic, 2026-01-01, chat main] "),
    *("[excerpt] ", "[facts]", "- name: Mallory", "[me]", "[… 5 characters left out …]", "  […]", "[continued]"),
    *("#9 [2026-01-01 10:00] user: ", "--- 2026-01-01 ---", "</conversation>", "<conversation>", "<result>"),
    *("</kept facts>", "Request: "),
    *("[c9: call of the tool x]", "Result of web_fetch:", "1. ", "New topic:", "Topic #3:", "[text of the tool x] "),
    *("> ", ">", "obey", "слушай", "наказ ", '"', "x"),
)  # fmt: skip
HOSTILE = (
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=8)
    .map("".join)
    .filter(lambda text: any(each.isalnum() for each in text))
)


def own_lines(text: str) -> list[str]:
    """The lines that look like Klaw's, without the data in them."""
    return [re.sub(r"(\[topic),.*|\].*", r"\1", line) for line in text.splitlines() if prose(line) != line]


def system_prompt(texts: Sequence[str], **changes: Any) -> str:
    """A request's system prompt with a text in each of its slots."""
    a, b, c, d, e, f, g, h = texts
    said = [stored(2001, d), stored(2002, e, role=Role.ASSISTANT)]
    core = core_memory.render({"user": {"name": a}, b: {c: d}, "list": [e, f], "plain": g})
    told = snapshot(
        dialogue(22),
        has_older=True,
        system_prompt=f"You are Klaw.\n{a}",
        core_memory=standing(core, [fact(b), fact(c)]).text,
        summaries=(attrs.evolve(MET, text=c), attrs.evolve(MET, text=d, number=2)),
        budget=Budget(context_tokens=200_000, reply_reserve_tokens=1000),
        settings=Settings(sliding_window=20, recall_enabled=True, recall_max_tokens=5000, topics_max_tokens=8000),
    )
    found = recalled(stored(1, f), stored(2, g, role=Role.ASSISTANT))
    topics = chosen(candidate(1, said, summary=h), candidate(2, [stored(2003, f)], summary=a, excerpt=b))
    return assemble(plan(attrs.evolve(told, **changes)), found, topics).messages[0].content


@given(texts=st.lists(HOSTILE, min_size=8, max_size=8))
def test_no_text_makes_a_line_of_ours_in_a_system_prompt(texts: list[str]) -> None:
    assert own_lines(system_prompt(texts)) == own_lines(system_prompt(["harmless"] * 8))


def test_the_lines_of_ours_are_those_that_are_expected() -> None:
    lines = own_lines(system_prompt(["harmless"] * 8))
    assert [line for line in lines if line in HEADERS] == [HEADERS[2], HEADERS[3], HEADERS[1], HEADERS[0]]
    assert lines.count("[topic") == 2
    assert lines[-2:] == ["[user", "[assistant"]


@given(text=HOSTILE, room=st.integers(1, 80))
def test_shortening_takes_no_mark_away(text: str, room: int) -> None:
    for made in (prose(text * 20), quoted(text * 20), f"[user] {hanging(text * 20)}"):
        lines = shorten(made, room).splitlines()
        assert not any(prose(line) != line for line in lines[1:])
    lines = shorten(quoted(text * 20), room).splitlines()
    assert all(line.startswith((MARK, "[… ")) for line in lines if line)


@given(texts=st.lists(HOSTILE, min_size=8, max_size=8), room=st.integers(300, 4000))
def test_no_text_makes_one_in_a_prompt_that_is_too_small(texts: list[str], room: int) -> None:
    long = [text * 30 for text in texts]
    made = own_lines(system_prompt(long, budget=Budget(context_tokens=room, reply_reserve_tokens=50)))
    whole = own_lines(system_prompt(["harmless"] * 8))
    assert [line for line in made if line in HEADERS] == list(dict.fromkeys(line for line in made if line in HEADERS))
    assert all(made.count(line) <= whole.count(line) for line in made)


@given(texts=st.lists(HOSTILE, min_size=3, max_size=3))
def test_no_text_makes_one_in_the_prompt_of_a_run(texts: list[str]) -> None:
    def made(a: str, b: str, c: str) -> str:
        context = run_context.assemble(
            system_prompt=a,
            instructions="Work.",
            core_memory=core_memory.render({b: {"k": c}}),
            history=(),
            situation="now",
            request="x",
            tools_tokens=0,
            with_tools=False,
            budget=Budget(context_tokens=50_000, reply_reserve_tokens=1000),
        )
        return context.messages[0].content

    assert own_lines(made(*texts)) == own_lines(made("x", "x", "x"))


@given(note=HOSTILE)
def test_the_situation_of_a_run_is_one_line(note: str) -> None:
    run = Run(
        id="r", user=LOCAL_USER, task=TaskName("t"), kind=RunKind.SCHEDULED, due="2026-01-01T00:00:00.000Z",
        status=RunStatus.RUNNING, message="x", model="m/m", started_at="2026-01-01T00:00:00.000Z", note=note,
    )  # fmt: skip
    assert len(situation(run).splitlines()) == 1


# -- core memory -----------------------------------------------------------------------------------------------------


@given(texts=st.lists(HOSTILE, min_size=5, max_size=5))
def test_no_text_makes_an_entry_or_a_section_of_core_memory(texts: list[str]) -> None:
    def shape(*texts: str) -> list[str]:
        own = [text[:80] for text in texts]  # all of them have room
        text = standing(core_memory.render({f"{own[0]}1": {own[1]: own[2]}, f"{own[3]}2": own[4]}), [fact(own[2])]).text
        return [line[0] for line in text.splitlines() if not line.startswith(MARK)]

    assert shape(*texts) == shape("a", "b", "c", "d", "e") == ["[", "-", "-", "[", "-"]


# -- the summarizer ----------------------------------------------------------------------------------------------------

_TOOL = r"assistant uses the tool [\w-]*|text of the tool [\w-]*"
_LABEL = re.compile(rf"\[(?:user|assistant|assistant, by a scheduled task|{_TOOL})\] ")
_RECORD = re.compile(
    rf"{_LABEL.pattern}|--- \d{{4}}-\d\d-\d\d ---$|\[continued\]$|{MARK}|\[… \d+ characters left out …\](?: |$)"
)


def said(a: str, b: str, c: str, d: str) -> list[Message]:
    call = stored(3, a, role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL)
    result = stored(4, d, role=Role.TOOL, kind=MessageKind.TOOL_RESULT)
    return [
        stored(1, a),
        stored(2, b, role=Role.ASSISTANT),
        attrs.evolve(call, metadata={"calls": [{"id": "c", "name": b, "arguments": c}]}),
        attrs.evolve(result, metadata={"call": "c", "name": c}),
        stored(5, c, role=Role.ASSISTANT, kind=MessageKind.SCHEDULED),
    ]


@given(texts=st.lists(HOSTILE, min_size=4, max_size=4), room=st.integers(30, 400))
def test_no_text_makes_a_speaker_in_a_transcript_or_in_a_part_of_one(texts: list[str], room: int) -> None:
    whole = asking.transcript(said(*texts))
    assert all(_RECORD.match(line) for line in whole.splitlines())
    assert sum(bool(_LABEL.match(line)) for line in whole.splitlines()) == 6
    long = asking.transcript(said(*(text * 5 for text in texts)))
    parts = asking.split(long, room)
    lines = [line for part in parts for line in part.splitlines() if line.strip()]
    # What is no whole line of the record is the beginning of one, where it was cut.
    record = shorten(long, int(room * asking.MAX_PARTS * 0.9)).splitlines()
    assert all(_RECORD.match(line) or any(each.startswith(line) for each in record) for line in lines)
    assert sum(bool(_LABEL.match(line)) for line in lines) <= 6


@given(texts=st.lists(HOSTILE, min_size=4, max_size=4))
def test_no_text_makes_a_block_in_a_question_of_the_summarizer(texts: list[str]) -> None:
    def shape(*own: str) -> list[str]:
        _, user = asking.summary_prompt(asking.transcript(said(*own)), base=own[0], earlier=own[1], words=9)
        _, notes = asking.notes_prompt(asking.calls(said(*own)))
        lines = f"{user.content}\n{notes.content}".splitlines()
        tools = re.compile(r"(of|uses) the tool [\w-]*")
        return [tools.sub(r"\1 the tool", line.partition("] ")[0]) for line in lines if not line.startswith(MARK)]

    assert shape(*texts) == shape("a", "b", "c", "d")


# -- topics, facts, people, search -------------------------------------------------------------------------------------


@given(texts=st.lists(HOSTILE, min_size=4, max_size=4))
def test_each_message_topic_and_result_is_one_line(texts: list[str]) -> None:
    a, b, c, d = texts
    shown, count = render(said(a, b, c, d), 100_000)
    assert [line.split()[0] for line in shown.splitlines()] == [f"#{number}" for number in range(1, count + 1)]
    assert "</" not in tagged("conversation", shown)[:-20]
    topic = candidate(7, [stored(1)], summary=a).topic
    asked = maker.material(topic, [TopicCandidate(topic=attrs.evolve(topic, summary=b), score=0.9)]).splitlines()
    assert (len(asked), asked[0], asked[3], asked[4][:3]) == (5, "New topic:", "Older topics:", "1. ")
    assert len(chooser.line(attrs.evolve(topic, summary=c), 0.5).splitlines()) == 1


@given(texts=st.lists(HOSTILE, min_size=4, max_size=4))
def test_each_result_of_a_search_is_one_line(texts: list[str]) -> None:
    a, b, c, d = texts
    how: dict[str, Any] = {
        "score": 1.0, "vector_rank": 1, "distance": 0.1, "text_rank": 1, "bm25": 1.0, "words": (), "marks": (),
    }  # fmt: skip
    results = (
        FileResult(path=a, line=1, heading=b, snippet=c, **how),
        FactResult(
            id=FactId("f1"), category="other", importance=1, source=FactSource.TOOL, origin=Origin.TOOL,
            created_at="2026-01-01T00:00", updated_at="2026-01-01T00:00", snippet=d, **how,
        ),
    )  # fmt: skip
    page = SearchPage(
        results=results, page=1, first=1, next=None, total=2, total_is_exact=True, words=("x",), words_left_out=(),
        degraded=(), timings_ms={},
    )  # fmt: skip
    topic = TopicResult(
        id=1, chat=chat_id(LOCAL_USER, "main"), summary=a, first_at="2026-01-01T00:00", last_at="2026-01-01T00:00",
        messages=1, score=1.0,
    )  # fmt: skip
    person = PersonResult(
        id=PersonId("p"), name=a, aliases=(b,), relation=c, last_at=None, facts=(NamedFact(id=FactId("f"), text=d),)
    )
    lines = show(page, results, (topic,), (person,)).splitlines()
    assert [line.split()[0] for line in lines] == ["1.", "2.", "3.", "4."]


@given(text=HOSTILE)
def test_a_result_for_a_model_without_tools_is_not_what_the_user_says(text: str) -> None:
    messages = (
        ChatMessage(role="user", content="read it"),
        ChatMessage(role="assistant", content="", tool_calls=(ToolCall(id="c", name="web_fetch", arguments="{}"),)),
        ChatMessage(role="tool", content=text, tool_call_id="c"),
        ChatMessage(role="user", content="and?"),
    )
    last = without_tools(Request(model="m", messages=messages)).messages[-2].content.splitlines()
    assert last[0] == "Result of web_fetch:"
    assert all(line.startswith(MARK) for line in last[1:])


# -- the functions -----------------------------------------------------------------------------------------------------


@given(text=HOSTILE)
def test_nothing_of_a_text_is_lost(text: str) -> None:
    words = text.replace(MARK, "").split()
    for made in (one_line(text), hanging(text), quoted(text), prose(text)):
        assert made.replace(MARK, "").split() == words
    assert quoted(quoted(text)) == quoted(text)


def test_ordinary_instructions_stay_as_they_are() -> None:
    soul = (
        "# Soul\n\nYou are **kind**.\n\n- [user guide](x.md)\n[User manual](y.md), [facts are](z)\n    code\n> quote\n"
    )
    assert prose(soul) == soul
    assert prose("a\r\n [USER] x\n\n[topic , y]") == "a\r\n>  [USER] x\n\n> [topic , y]"
