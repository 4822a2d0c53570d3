"""Summaries in the turns of a chat: shown in the place of their messages, in the receipt and by ``klaw why``."""

from pathlib import Path
from typing import Any

import trio

from klaw.cli.output import written
from klaw.operations.why import lines as why_lines
from klaw.store.kinds import summaries, usage
from klaw.store.kinds.usage import UsageFilters
from tests.support.asking import ask_operation, receipt_lines
from tests.support.chats_world import World, world
from tests.support.llm_server import Recorded, Reply, Wait, error_reply, text_reply
from tests.support.waiting import HANG_S

SUMMARY = "Пользователь говорил о сестре Анне из Риги."
ASK = "You keep the memory"
SETTINGS: dict[str, Any] = {
    "context": {"slidingWindow": 4, "defaultBudgetTokens": 2048, "replyReserveTokens": 256},
    "summaries": {"thresholdFraction": 0.3, "leftOutTokens": 150, "maxTokens": 200},
}


def respond(request: Recorded) -> Reply:
    told = SUMMARY if ASK in request.messages[0]["content"] else "Понятно, записал и запомнил."
    return text_reply(told, usage=None)


async def talk(w: World, count: int, first: int = 0, turns: int = 0) -> None:
    """Questions, each answered before the next."""
    for number in range(first, first + count):
        await w.send(f"Моя сестра Анна живёт в Риге, дом номер {number}, и она любит чай.")
        await w.turn(turns + number - first + 1)


async def idle(w: World) -> None:
    w.app.memory.summarizer.turn_ended(w.chat)
    with trio.fail_after(HANG_S):
        await w.app.memory.summarizer.wait_idle()


def chats_of(w: World) -> list[Recorded]:
    return [request for request in w.llm.requests if ASK not in str(request.messages[0]["content"])]


def _tokens_of_turns(connection: Any) -> int:
    return int(connection.execute("SELECT sum(usage ->> '$.prompt_tokens') FROM turns").get)


async def explain(w: World, message: str) -> dict[str, Any]:
    return await ask_operation("why", w.app, message=message, chat="main")


async def test_a_summary_stands_for_its_messages(tmp_path: Path) -> None:
    """In the system message; the window begins after its range, the receipt and `klaw why` name it, and recall still
    finds what it covers."""
    async with world(tmp_path, **SETTINGS) as w:
        w.llm.respond = respond
        await talk(w, 10)
        await idle(w)
        live = await w.app.core.readers.run(summaries.live, w.chat, 0)
        assert live
        covered = live[-1].last_seq
        every = await w.app.core.readers.run(summaries.of_chat, w.chat)
        charged = await w.app.core.readers.run(usage.total, UsageFilters())
        turns = await w.app.core.readers.run(_tokens_of_turns)
        assert charged.prompt_tokens == turns + sum(each.prompt_tokens for each in every)
        await w.send("В каком доме номер 1 живёт моя сестра Анна?")
        await w.turn(11)
        system = chats_of(w)[-1].messages[0]["content"]
        assert f"Summary of the conversation so far:\n> {SUMMARY}" in system
        receipt = (await w.receipt()).receipt
        assert receipt["window"]["first_seq"] > covered
        assert receipt["window"]["older_in_segment"]
        assert next(layer for layer in receipt["layers"] if layer["name"] == "summary")["tokens"] > 5
        (shown, *_) = receipt["summaries"]
        assert (shown["number"], shown["first_seq"], shown["last_seq"]) == (live[0].number, 1, live[0].last_seq)
        assert receipt["recall"]["guard"] == "search"
        assert any(seq <= covered for seq in receipt["recall"]["kept"])
        await idle(w)  # the last turn may have made another one
        live = await w.app.core.readers.run(summaries.live, w.chat, 0)
        told = await explain(w, "main#2")
        assert told["summary"] == {
            "number": live[0].number,
            "first_seq": 1,
            "last_seq": live[0].last_seq,
            "state": "live",
            "shown": True,
        }
        assert told["place"] == "auto_rag"
        assert any(f"in summary {live[0].number}" in line for line in written(why_lines(told)))
        assert "summary" in {turn["as"] for turn in told["turns"]} or told["turns"]
        record = await w.receipt()
        answer = {"id": record.id, "chat": "main", "receipt": receipt, "timings": {}, "usage": {}, "error": None}
        answer |= {"segment": 0, "first_seq": 1, "last_seq": 2, "model": "m", "status": "done"}
        answer |= {"started_at": "2026-11-22T08:00:00.000Z", "ended_at": "2026-11-22T08:01:00.000Z"}
        assert any(line.startswith(f"summary {shown['number']} (messages 1 to") for line in receipt_lines(answer))


async def test_what_was_new_ends_the_summary(tmp_path: Path) -> None:
    async with world(tmp_path, **SETTINGS) as w:
        w.llm.respond = respond
        await talk(w, 10)
        await idle(w)
        await w.command("/new")
        await w.send("Привет!")
        await w.turn(11)
        assert SUMMARY not in str(chats_of(w)[-1].messages)
        assert "summaries" not in (await w.receipt()).receipt
        told = await explain(w, "main#2")
        assert told["summary"]["shown"] is False
        assert told["place"] == "earlier_segment"


async def test_a_failing_summary_holds_up_nobody(tmp_path: Path) -> None:
    """Turns go on as without summaries, and the window shows what it did."""
    async with world(tmp_path, **SETTINGS) as w:
        w.llm.respond = lambda r: error_reply(401) if ASK in r.messages[0]["content"] else respond(r)
        await talk(w, 12)
        await idle(w)
        receipt = (await w.receipt()).receipt
        assert "summaries" not in receipt
        assert receipt["window"]["messages"] in (3, 4)
        assert w.app.memory.summarizer.report()["failing"] == 1
        asked = [request for request in w.llm.requests if ASK in request.messages[0]["content"]]
        assert len(asked) == 1


async def test_a_turn_does_not_wait_for_a_summary(tmp_path: Path) -> None:
    async with world(tmp_path, processing={"maxConcurrentLlm": 2, "debounceMs": 10}, **SETTINGS) as w:
        gate = trio.Event()

        def slow(request: Recorded) -> Reply:
            if ASK in request.messages[0]["content"]:
                return text_reply(SUMMARY, usage=None, before_head=(Wait(gate),))
            return respond(request)

        w.llm.respond = slow
        await talk(w, 14)
        assert any(ASK in request.messages[0]["content"] for request in w.llm.requests)
        gate.set()
        await idle(w)
        assert await w.app.core.readers.run(summaries.live, w.chat, 0)


async def test_held_messages_stay_until_a_summary_holds_them(tmp_path: Path) -> None:
    """summaries.holdUncovered: no message is in neither window nor summary, at any turn."""
    settings = {**SETTINGS, "summaries": {**SETTINGS["summaries"], "holdUncovered": True}}
    async with world(tmp_path, **settings) as w:
        w.llm.respond = respond
        for number in range(16):
            await talk(w, 1, first=number, turns=number)
            receipt = (await w.receipt()).receipt
            covered = max([each["last_seq"] for each in receipt.get("summaries", [])], default=0)
            first = receipt["window"]["first_seq"]
            assert first is None or first == covered + 1
            assert receipt["window"]["held"] is True
        await idle(w)
        assert await w.app.core.readers.run(summaries.live, w.chat, 0)


async def test_switched_off_summaries_give_their_messages_back(tmp_path: Path) -> None:
    async with world(tmp_path, **SETTINGS) as w:
        w.llm.respond = respond
        await talk(w, 10)
        await idle(w)
    off = {**SETTINGS, "summaries": {"enabled": False}, "context": {"slidingWindow": 18}}
    async with world(tmp_path, **off) as w:
        w.llm.respond = respond
        await w.send("И что?")
        await w.turn(1)
        assert SUMMARY not in str(w.llm.requests[-1].messages)
        assert (await w.receipt()).receipt["window"]["messages"] >= 17
        assert "memory.summarizer" not in {report.name for report in w.app.core.supervisor.report()}
