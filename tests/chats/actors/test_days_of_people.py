""" "Yesterday" is a day of the person's zone, wherever the machine is: in recall, in searches, and for the model."""

import json
from pathlib import Path
from typing import Any

from klaw.actor.clock import from_iso
from klaw.domain.names import LOCAL_USER
from klaw.operations.handler import Caller
from klaw.operations.perform import operations, perform, read
from klaw.store.kinds import tasks
from tests.support.chats_world import world
from tests.support.llm_server import Tool, text_reply, tool_reply
from tests.support.scripted import TestClock
from tests.support.topics import AT

TUESDAY, WEDNESDAY = "Roses were planted on Tuesday", "Roses were watered on Wednesday"


async def test_yesterday_is_a_day_of_the_persons_zone(tmp_path: Path) -> None:
    clock = TestClock(from_iso("2026-11-24T14:00:00Z"))  # 23:00 in Tokyo
    async with world(tmp_path, clock=clock, tools_for_model=True, context={"slidingWindow": 2}) as w:
        await w.app.core.writer.run(tasks.set_zone, LOCAL_USER, "Asia/Tokyo", AT)
        await w.send(TUESDAY)
        await w.turn(1)
        clock.at = from_iso("2026-11-24T15:30:00Z")
        await w.send(WEDNESDAY)
        await w.turn(2)

        async def found(**given: Any) -> list[str]:
            call = read(operations()["search"], {"query": "roses", **given})
            results = (await perform(call, Caller(user=LOCAL_USER), w.app))["results"]
            return sorted(each["snippet"] for each in results if each["role"] == "user")

        assert await found(since="today") == [WEDNESDAY]
        assert await found(since="yesterday", until="yesterday") == [TUESDAY]
        search = Tool("c1", "memory_search", json.dumps({"query": "roses", "until": "yesterday"}))
        w.llm.replies += [tool_reply(search), text_reply("Planted")]
        await w.send("What did I say about roses yesterday?")
        await w.turn(3)
        assert (await w.receipt()).receipt["recall"]["days"] == [["2026-11-24", "2026-11-24"]]
        told = w.llm.requests[-1].body["messages"][-1]["content"]
        assert (TUESDAY in told, WEDNESDAY in told) == (True, False)
