"""Anthropic's signed thinking with tools, against an imitation that refuses what the API refuses; what becomes of it
when the server is killed in the middle of a turn."""

import json

import trio

from tests.support.llm_server import Hang, Reply, serve_llm
from tests.support.server import served, write_home
from tests.support.services.thinking_anthropic import ThinkingAnthropic, call, redacted, text, thought
from tests.support.talking import talking
from tests.support.waiting import HANG_S

HANGING = Reply(steps=(Hang(),))


def home_of(tmp_path, url, model="old", level="medium"):
    knows = {"tools": True, "thinking": level, "contextTokens": 100_000}
    claude = {"type": "anthropic", "baseUrl": url, "maxRetries": 0, "models": {model: knows}}
    home = write_home(tmp_path / "home", routing={"default": f"claude/{model}"}, providers={"claude": claude})
    file = home / "config/engine.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "llm": {"temperature": 0.3}}))
    return home


def plans_of(number):
    """Two rounds of tools, with thinking before each, between them, and before the answer."""
    return [
        [thought(f"First {number}."), redacted("b3BhcXVl"), text("I look."), call(f"a{number}"), call(f"b{number}")],
        [thought(f"Second {number}."), call(f"c{number}")],
        [thought(f"Third {number}."), text(f"Noon {number}.")],
    ]


async def test_signed_thinking_goes_back_through_two_rounds_of_tools(tmp_path):
    """In two turns; the second has nothing of the first one's thinking."""
    claude = ThinkingAnthropic(*plans_of(1), *plans_of(2))
    async with serve_llm(claude), served(home_of(tmp_path, claude.url)) as server, talking(server.url) as talk:
        for number in (1, 2):
            receipt = await talk.ask("What time is it?")
            assert await talk.answer_to(receipt) == f"Noon {number}."
            assert receipt.receipt["thinking"]["tokens"] > 0
        assert claude.refused == []
        bodies = [request.body for request in claude.requests]
        assert [body["thinking"]["type"] for body in bodies] == ["enabled"] * 6
        last = json.dumps(bodies[5])
        assert all(f"{word} 2." in last for word in ("First", "Second"))
        assert not any(f"{word} 1." in last for word in ("First", "Second", "Third"))


async def test_a_newer_model_is_asked_in_the_newer_form_after_one_refusal(tmp_path):
    """It thinks between text and calls, too."""
    first = [thought("One."), text("I look."), thought("Two."), call("a1"), thought("Three."), call("a2")]
    claude = ThinkingAnthropic(first, [call("b1")], [thought("Four."), text("Noon.")])
    async with serve_llm(claude), served(home_of(tmp_path, claude.url, "new")) as server, talking(server.url) as talk:
        receipt = await talk.ask("What time is it?")
        assert await talk.answer_to(receipt) == "Noon."
        assert len(claude.refused) == 1
        sent = claude.requests[2].body["messages"][1]["content"]
        assert [block["type"] for block in sent] == [block["type"] for block in first]
        assert sent[:3] == first[:3]


async def test_a_turn_goes_on_without_thinking_when_what_was_thought_is_lost(tmp_path):
    """kill -9 between two rounds: the API takes what is asked after the start, and the next turn thinks again."""
    claude = ThinkingAnthropic(plans_of(1)[0])
    async with serve_llm(claude), served(home_of(tmp_path, claude.url)) as server:
        async with talking(server.url) as talk:
            answer = claude.respond
            claude.respond = lambda request: answer(request) if len(claude.requests) == 1 else HANGING
            await talk.send("What time is it?")
            await claude.wait_for_requests(2)
        await server.kill()
        with trio.fail_after(HANG_S):
            await claude.requests[1].gone.wait()
        claude.respond = answer
        claude.plans.extend(plans_of(2)[1:])
        await server.start()
        async with talking(server.url, {"main": 0}) as talk:
            receipt = await talk.settled(1)
            assert await talk.answer_to(receipt) == "Noon 2."
            assert claude.refused == []
            resumed = claude.requests[2].body
            assert resumed["thinking"] == {"type": "disabled"}
            assert "First 1." not in json.dumps(resumed)
            claude.plans.extend(plans_of(3))
            await talk.ask("And now?")
            assert claude.refused == []
            assert claude.requests[-1].body["thinking"]["type"] == "enabled"
