"""Whatever is left of a history, the request is one that OpenAI's and Anthropic's APIs take."""

import json
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from klaw.context.assemble import plan
from klaw.context.inputs import Budget, Settings, Snapshot
from klaw.context.repair import INTERRUPTED, OPENING, repair, spoken
from klaw.context.request import LEAST_RESULT_TOKENS, exchanges, fit, is_tool, make_room
from klaw.domain.message import Message, MessageKind, Role
from klaw.llm.providers.adapt import request_tokens
from klaw.llm.types import ChatMessage, ToolCall
from tests.support.stores import dialogue, stored


def user(seq: int, text: str = "вопрос") -> Message:
    return stored(seq, text)


def answer(seq: int, turn: str, text: str = "answer") -> Message:
    return attrs.evolve(stored(seq, text, role=Role.ASSISTANT), metadata={"turn": turn})


def call(seq: int, turn: str, *ids: str, text: str = "", **changes: Any) -> Message:
    calls = [{"id": each, "name": "add", "arguments": '{"a": 1}', **changes} for each in ids]
    message = stored(seq, text, role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL)
    return attrs.evolve(message, metadata={"turn": turn, "calls": calls})


def result(seq: int, turn: str, of: str, text: str = "") -> Message:
    message = stored(seq, text or f"result of {of}", role=Role.TOOL, kind=MessageKind.TOOL_RESULT)
    return attrs.evolve(message, metadata={"turn": turn, "call": of, "name": "add", "error": False})


def check(messages: tuple[ChatMessage, ...]) -> None:
    """The rules of both APIs."""
    assert not messages or messages[0].role == "user"
    open_ids: list[str] = []
    seen: set[str] = set()
    before = ""
    for message in messages:
        if message.role == "tool":
            assert open_ids.pop(0) == message.tool_call_id
            assert message.content.strip()
        else:
            assert not open_ids, "a call without its result"
            assert message.role != before
            assert message.tool_call_id is None
            assert message.tool_calls or message.content.strip()
            assert message.role == "assistant" or not message.tool_calls
            for each in message.tool_calls:
                assert each.id not in seen
                assert each.id.replace("_", "").replace("-", "").isalnum()
                assert len(each.id) <= 40
                assert 1 <= len(each.name) <= 64
                assert isinstance(json.loads(each.arguments), dict)
                seen.add(each.id)
                open_ids.append(each.id)
        before = message.role
    assert not open_ids, "a call without its result"


HISTORY = [
    user(1),
    call(2, "t1", "a", "b", text="Ищу"),
    result(3, "t1", "b"),
    result(4, "t1", "a"),
    call(5, "t1", "c"),
    user(6, "a question that came in meanwhile"),
    result(7, "t1", "c"),
    answer(8, "t1"),
    answer(9, "t2"),
    user(10),
    call(11, "t3", "a"),  # the provider counts from the beginning in each answer
    result(12, "t3", "a", "second result of a"),
    answer(13, "t3"),
    stored(14, "Scheduled", role=Role.ASSISTANT, kind=MessageKind.SCHEDULED),
    user(15),
    call(16, "t4", "not an id!", "", "ok", name="bad name", arguments="{"),
    result(17, "t4", ""),
]


def test_a_sound_history_is_kept_with_results_behind_their_calls() -> None:
    made = repair(spoken(HISTORY[:9]))
    check(made)
    assert [(m.role, m.content) for m in made] == [
        ("user", "вопрос"),
        ("assistant", "Ищу"),
        ("tool", "result of a"),
        ("tool", "result of b"),
        ("assistant", ""),
        ("tool", "result of c"),
        ("user", "a question that came in meanwhile"),
        ("assistant", "answer\nanswer"),
    ]


def test_equal_ids_of_two_turns_keep_their_own_results() -> None:
    made = repair(spoken([*HISTORY[:4], answer(5, "t1"), *HISTORY[9:13]]))
    check(made)
    results = {m.tool_call_id: m.content for m in made if m.role == "tool"}
    assert results == {"a": "result of a", "b": "result of b", "a_2": "second result of a"}


def test_a_call_without_result_is_interrupted_and_a_result_without_call_is_dropped() -> None:
    made = repair(spoken([user(1), call(2, "t", "a", "b"), result(3, "t", "b"), user(4), result(5, "t", "z")]))
    check(made)
    assert [m.content for m in made] == ["вопрос", "", INTERRUPTED, "result of b", "вопрос"]


def test_an_assistant_that_speaks_first_gets_an_opening() -> None:
    made = repair(spoken([call(2, "t", "a"), result(3, "t", "a"), user(4)]))
    check(made)
    assert made[0].content == OPENING
    assert [m.role for m in made] == ["user", "assistant", "tool", "user"]


@given(st.data())
def test_any_subset_in_nearly_any_order_is_valid(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(HISTORY))), unique=True))
    if data.draw(st.booleans()):
        chosen.sort()
    messages = [HISTORY[index] for index in chosen]
    made = repair(spoken(messages))
    check(made)
    assert repair(made) == made
    said = "\n".join(message.content for message in made)
    assert all(m.content in said for m in messages if m.type in (MessageKind.TEXT, MessageKind.SCHEDULED))
    # No exchange is cut so that a call and its result are apart.
    ordered = sorted(messages, key=lambda message: message.seq)
    places = {message.seq: number for number, unit in enumerate(exchanges(ordered)) for message in unit}
    for message in ordered:
        if message.type is MessageKind.TOOL_CALL:
            turn = message.metadata["turn"]
            behind = [m for m in ordered if m.metadata.get("turn") == turn and is_tool(m)]
            assert {places[m.seq] for m in behind} == {places[message.seq]}


@given(
    st.lists(
        st.builds(
            ChatMessage,
            role=st.sampled_from(["user", "assistant", "tool"]),
            content=st.sampled_from(["", " ", "a", "б"]),
            tool_call_id=st.sampled_from([None, "a", "b", "?"]),
        )
        | st.builds(
            ChatMessage,
            role=st.just("assistant"),
            content=st.sampled_from(["", "a"]),
            tool_calls=st.lists(
                st.builds(
                    ToolCall,
                    id=st.sampled_from(["a", "b", "?", "x" * 60, "a_2"]),
                    name=st.sampled_from(["n", "", "ж"]),
                    arguments=st.sampled_from(["{}", "", "[]", '{"a": "' + "long " * 400 + '"}']),
                ),
                min_size=1,
                max_size=4,
            ).map(tuple),
        ),
        max_size=12,
    ),
    st.integers(0, 600),
)
def test_any_messages_at_all_become_valid_and_stay_so_when_room_is_made(
    messages: list[ChatMessage], limit: int
) -> None:
    made = repair(messages)
    check(made)
    check(make_room(made, 0, limit))


def test_room_is_made_in_the_oldest_results_first() -> None:
    asked = ChatMessage(role="user", content="question " * 50)
    rounds = [
        each
        for n in range(3)
        for each in (
            ChatMessage(
                role="assistant", content="", tool_calls=(ToolCall(id=f"c{n}", name="read", arguments='{"n": 1}'),)
            ),
            ChatMessage(role="tool", content=f"слово{n} " * 300, tool_call_id=f"c{n}"),
        )
    ]
    messages = [asked, *rounds]
    whole = request_tokens(messages)
    assert make_room(messages, 1, whole) == tuple(messages)
    made = make_room(messages, 1, whole - 900)
    assert request_tokens(made) <= whole - 900
    assert made[0] == asked
    assert made[-1] == messages[-1]
    assert len(made[2].content) < len(made[4].content) <= len(messages[4].content)
    least = make_room(messages, 1, 0)
    assert all(request_tokens([m]) < LEAST_RESULT_TOKENS + 20 for m in least if m.role == "tool")
    assert least[0] == asked


def test_tool_messages_do_not_count_as_said_and_give_way_to_what_was() -> None:
    history = [
        message
        for n in range(0, 40, 4)
        for message in (
            user(n + 1),
            call(n + 2, f"t{n}", "a"),
            result(n + 3, f"t{n}", "a", "result " * 200),
            answer(n + 4, f"t{n}"),
        )
    ]
    shown = fit(history, has_older=False, max_messages=20, max_tokens=100_000)
    assert len(shown) == 40
    shown = fit(history, has_older=False, max_messages=20, max_tokens=2000)
    said = [message for message in shown if not is_tool(message)]
    assert len(said) == 20
    tools = [message.seq for message in shown if is_tool(message)]
    assert tools == [34, 35, 38, 39]


def test_a_window_without_tool_messages_is_cut_as_before() -> None:
    assert len(fit(dialogue(30), has_older=True, max_messages=20, max_tokens=100_000)) == 20


def test_what_an_interrupted_turn_has_done_stands_behind_what_it_was_asked() -> None:
    """Two questions came in one after the other; the second one's call was answered, then Klaw was killed."""
    snapshot = Snapshot(
        system_prompt="",
        core_memory="",
        history=(),
        has_older=False,
        pending=(user(1, "первый"), user(3, "the second"), user(4, "and more of it"), user(6, "meanwhile")),
        unfinished=(call(2, "t1", "a"), call(5, "t2", "b"), result(7, "t2", "b")),
        tools_tokens=1,
        budget=Budget(context_tokens=8192, reply_reserve_tokens=1024),
        settings=Settings(sliding_window=20, recall_enabled=False, recall_max_tokens=0),
    )
    made = plan(snapshot).pending
    check(made)
    assert [(m.role, m.content) for m in made] == [
        ("user", "первый"),
        ("assistant", ""),
        ("tool", INTERRUPTED),
        ("user", "the second\nand more of it"),
        ("assistant", ""),
        ("tool", "result of b"),
        ("user", "meanwhile"),
    ]
