"""The context of a subagent's run."""

import json

from hypothesis import given
from hypothesis import strategies as st

from klaw.context.inputs import Budget
from klaw.context.repair import INTERRUPTED
from klaw.domain import tokens
from klaw.domain.text import CORE_MEMORY_HEADER
from klaw.llm.types import ChatMessage, ToolCall
from klaw.runs.run import EMPTY_ANSWER, RunContext, assemble, run_messages
from klaw.runs.transcripts import PastRun, read_line
from tests.support.runs.transcripts import a_run, answer, calls, request, result, run_tokens

CALL = ToolCall(id="c1", name="web_fetch", arguments='{"url": "x"}')


def past(name, lines=None) -> PastRun:
    return PastRun(id=name, messages=tuple(read_line(one)[1] for one in (a_run(name) if lines is None else lines)))


def assembled(**more) -> RunContext:
    given = {
        "system_prompt": "You are Klaw.",
        "instructions": "You work alone.",
        "core_memory": "- name: Анна",
        "history": (),
        "situation": "It is noon.",
        "request": "Что нового?",
        "tools_tokens": 0,
        "with_tools": True,
        "budget": Budget(context_tokens=8192, reply_reserve_tokens=1024),
    }
    return assemble(**{**given, **more})


def test_without_history_it_is_system_and_request():
    made = assembled()
    assert made.messages == (
        ChatMessage(role="system", content=f"You are Klaw.\n\nYou work alone.\n\n{CORE_MEMORY_HEADER}\n> - name: Анна"),
        ChatMessage(role="user", content="It is noon.\n\nЧто нового?"),
    )
    bare = assembled(system_prompt="", instructions="", core_memory="", situation="")
    assert bare.messages == (ChatMessage(role="user", content="Что нового?"),)


def test_history_stands_before_the_request_oldest_first():
    made = assembled(history=(past("r1"), past("r2")))
    assert [message.role for message in made.messages] == [
        "system",
        *["user", "assistant", "tool", "assistant"] * 2,
        "user",
    ]
    assert made.messages[2].tool_calls == (CALL,)
    assert made.messages[3] == ChatMessage(role="tool", content="a page", tool_call_id="c1")
    assert [made.messages[place].content for place in (4, 8)] == ["answer of r1", "answer of r2"]
    assert [run.id for run in made.history] == ["r1", "r2"]


def test_a_model_without_tools_sees_requests_and_answers():
    made = assembled(history=(past("r1"),), with_tools=False)
    assert [message.role for message in made.messages] == ["system", "user", "assistant", "user"]


def test_the_oldest_runs_are_left_out_whole():
    runs = tuple(past(f"r{number}", [request("r", "x" * 300), answer("r", "y" * 300)]) for number in range(10))
    made = assembled(history=runs, budget=Budget(context_tokens=1000, reply_reserve_tokens=200))
    assert 0 < len(made.history) < 10
    assert made.history == runs[-len(made.history) :]
    assert len(made.messages) == 2 + 2 * len(made.history)


def test_arguments_of_calls_are_counted():
    long = calls("r", "c1")
    long["metadata"]["calls"][0]["arguments"] = json.dumps({"url": "x" * 3500})
    short = past("r", [request("r"), calls("r", "c1"), result("r", "c1"), answer("r")])
    run = past("r", [request("r"), long, result("r", "c1"), answer("r")])
    assert run_tokens(run) - run_tokens(short) > 900
    small = Budget(context_tokens=1000, reply_reserve_tokens=200)
    assert assembled(history=(short,), budget=small).history == (short,)
    assert assembled(history=(run,), budget=small).history == ()


def test_calls_without_results_are_told_as_interrupted_and_results_without_calls_are_left_out():
    lines = [request("r"), calls("r", "c1", "c2"), result("r", "c9"), result("r", "c1"), calls("r", "c3"), answer("r")]
    made = run_messages(past("r", lines), with_tools=True)
    assert [message.role for message in made] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert made[1].tool_calls[0] == CALL
    assert [message.content for message in made if message.role == "tool"] == ["a page", INTERRUPTED, INTERRUPTED]


def test_ids_of_calls_may_be_used_again_in_a_later_round():
    lines = [
        request("r"),
        calls("r", "c1"),
        result("r", "c1", "one"),
        calls("r", "c1"),
        result("r", "c1", "two"),
        answer("r"),
    ]
    made = run_messages(past("r", lines), with_tools=True)
    assert [message.content for message in made if message.role == "tool"] == ["one", "two"]


def test_an_empty_answer_is_shown_as_silence():
    made = run_messages(past("r", [request("r"), answer("r", " ")]), with_tools=True)
    assert made[-1].content == EMPTY_ANSWER


def test_a_long_request_and_long_prompts_are_shortened():
    made = assembled(
        system_prompt="a" * 20_000, request="b" * 16_000, budget=Budget(context_tokens=2048, reply_reserve_tokens=512)
    )
    system, asked = (message.content for message in made.messages)
    assert sum(tokens.estimate(text) + tokens.PER_MESSAGE for text in (system, asked)) <= 2048 * 0.9
    assert len(system) < 20_000
    assert len(asked) < 16_000


_LINE = st.one_of(
    st.just(request("r")),
    st.lists(st.sampled_from(["c1", "c2", "c3"]), max_size=3).map(lambda ids: calls("r", *ids)),
    st.sampled_from(["c1", "c2", "c3"]).map(lambda call: result("r", call)),
    st.sampled_from(["", "answer"]).map(lambda text: answer("r", text)),
)


@given(lines=st.lists(_LINE, max_size=12), with_tools=st.booleans())
def test_every_call_has_its_result_right_after_it(lines, with_tools):
    made = run_messages(past("r", [request("r"), *lines, answer("r")]), with_tools=with_tools)
    open_calls: list[str] = []
    for message in made:
        if message.role == "tool":
            assert message.tool_call_id == open_calls.pop(0)
        else:
            assert not open_calls
            open_calls = [call.id for call in message.tool_calls]
            assert message.content or message.tool_calls
    assert not open_calls
    assert with_tools or not any(message.tool_calls for message in made)
