"""Thinking in turns of a real store: what is asked of the provider, what watchers get, what is kept of it."""

from pathlib import Path
from typing import Any

import pytest

from klaw.chats.turn import MAX_THINKING_BYTES
from klaw.domain.events import TextStreamed, ThoughtStreamed
from klaw.domain.message import TurnStatus
from tests.support.chats_world import World, world
from tests.support.llm_server import Raw, Reasoning, Reply, Text, event, text_reply

SLOW = {"model": {"thinking": "low", "contextTokens": 100_000}}
THOUGHTFUL = Reply(steps=(Reasoning("Two and "), Reasoning("два."), Text("Four.")))


def thought(w: World) -> list[ThoughtStreamed]:
    return [each for each in w.watcher.events if isinstance(each, ThoughtStreamed)]


async def asked(w: World, number: int, text: str = "Two and two?") -> dict[str, Any]:
    """The body of the n-th turn's last request."""
    await w.send(text)
    assert (await w.turn(number)).status is TurnStatus.DONE
    return w.llm.requests[-1].body


async def test_watchers_get_it_in_pieces_and_the_receipt_says_how_long(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(THOUGHTFUL)
        await asked(w, 1)
        assert [(each.offset, each.text) for each in thought(w)] == [(0, "Two and "), (8, "два.")]
        record = await w.receipt()
        assert record.receipt["thinking"]["tokens"] > 0
        assert record.timings["thinking"] <= record.timings["llm"]
        assert (await w.reply()).content == "Four."
        w.llm.replies.append(text_reply("Five."))
        await asked(w, 2)
        assert "thinking" not in (await w.receipt()).receipt
        assert "thinking" not in (await w.receipt()).timings


async def test_what_turns_out_to_be_thinking_is_shown_as_that(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(text_reply("Add ", "them.\n", "</think>\n\nFo", "ur."))
        await asked(w, 1)
        assert "".join(each.text for each in thought(w)).startswith("Add them.\n")
        assert [each.text for each in w.watcher.events if isinstance(each, TextStreamed)][-2:] == ["Fo", "ur."]


async def test_no_more_than_a_bound_of_it_is_passed_on(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(Reply(steps=(*[Reasoning("дума" * 5000)] * 8, Text("Four."))))
        await asked(w, 1)
        assert sum(len(each.text.encode()) for each in thought(w)) == MAX_THINKING_BYTES
        assert (await w.receipt()).receipt["thinking"]["tokens"] == 8 * 40_000 // 4


async def test_the_level_of_the_model_and_room_for_it_are_sent(tmp_path: Path) -> None:
    async with world(tmp_path, models=SLOW) as w:
        body = await asked(w, 1)
        assert body["reasoning_effort"] == "low"
        assert body["max_tokens"] == 1024 + 2048


async def test_think_chooses_for_one_chat_and_takes_it_back(tmp_path: Path) -> None:
    async with world(tmp_path, models=SLOW) as w:
        assert await w.command("/think") == ("Thinking: low (the default; /think off|low|medium|high changes it).")
        assert await w.command("/think High", 2) == "Thinking is high in this chat from now on."
        assert (await asked(w, 1))["reasoning_effort"] == "high"
        await w.send("And here?", chat="other")
        await w.turn(2)
        assert w.llm.requests[-1].body["reasoning_effort"] == "low"
    async with world(tmp_path, models=SLOW) as w:
        assert (await asked(w, 1))["max_tokens"] == 1024 + 24_576
        assert "chosen for this chat" in await w.command("/think")
        assert await w.command("/think off", 2) == "Thinking is off in this chat from now on."
        body = await asked(w, 2)
        assert (body["reasoning_effort"], body["max_tokens"]) == ("none", 1024)
        assert await w.command("/think default", 3) == "This chat uses the default from now on: low."
        assert (await asked(w, 3))["reasoning_effort"] == "low"


async def test_a_level_that_there_is_not_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, models=SLOW) as w:
        assert await w.command("/think much") == (
            "/think takes off, low, medium, high or default. Nothing was changed."
        )
        assert (await asked(w, 1))["reasoning_effort"] == "low"


async def test_a_model_that_is_not_known_to_think_is_left_alone_until_it_does(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        assert "does not know that stub/model can think" in await w.command("/think high")
        assert "reasoning_effort" not in await asked(w, 1)
        w.llm.replies.append(THOUGHTFUL)
        await asked(w, 2)
        assert (await asked(w, 3))["reasoning_effort"] == "high"
        assert "does not know" not in await w.command("/think", 2)


async def test_thinking_that_leaves_no_room_for_the_answer_is_told_in_words(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(Reply(steps=(Reasoning("On and on"),), finish_reason="length", usage=(10, 1024)))
        await w.send("Two and two?")
        ended = await w.turn(1)
        assert ended.status is TurnStatus.FAILED
        assert "used up all output tokens for thinking; /think low or /think off" in (ended.text or "")
        assert (await w.receipt()).usage["completion_tokens"] == 1024


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 60,
          "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 60}, 50),
    ],
)  # fmt: skip
async def test_tokens_of_thinking_cost(tmp_path: Path, usage: dict[str, Any], counted: int) -> None:
    price = {"model": {"inputPrice": 0, "outputPrice": 1_000_000}}
    async with world(tmp_path, models=price) as w:
        told = Raw(event({"choices": [], "usage": usage}))
        w.llm.replies.append(Reply(steps=(Reasoning("Add."), Text("Four."), told), usage=None))
        await asked(w, 1)
        record = await w.receipt()
        assert (record.usage["completion_tokens"], record.usage["cost_nano"]) == (counted, counted * 1_000_000_000)
        assert record.receipt["thinking"]["tokens"] == (40 if "completion_tokens_details" in usage else 1)
