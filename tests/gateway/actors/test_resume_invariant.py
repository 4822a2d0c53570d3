"""Invariant resume: every client sees every message exactly once and in order, however often connections break."""

import random

import pytest
import trio
from trio_websocket import ConnectionClosed

from tests.support.gateway_world import world
from tests.support.waiting import HANG_S

MESSAGES = 40


class Device:
    """What a real client keeps: its last seq, and what has no ack yet."""

    def __init__(self, name, chance):
        self.name = name
        self.chance = chance
        self.last_seq = 0
        self.unsent = [f"{name}-{number}" for number in range(MESSAGES)]
        self.unacknowledged = []
        self.breaks = 0

    async def live(self, w, total):
        while self.last_seq < total or self.unacknowledged:
            try:
                async with w.client(chats={"main": self.last_seq}) as c:
                    await self.talk(c, total)
            except* (ConnectionClosed, trio.ClosedResourceError):
                self.breaks += 1

    async def talk(self, c, total):
        for message_id in self.unacknowledged:
            await c.say("send", id=message_id, chat="main", text="Привет")
        while self.last_seq < total or self.unacknowledged:
            if self.unsent and len(self.unacknowledged) < 5:
                self.unacknowledged.append(self.unsent.pop(0))
                await c.say("send", id=self.unacknowledged[-1], chat="main", text="Привет")
            if self.chance.random() < 0.05:
                await trio.aclose_forcefully(c.ws._stream)
            self.read(await c.hear())

    def read(self, frame):
        if frame["type"] not in ("message", "ack"):
            assert frame["type"] in ("caught_up", "status"), frame
            return
        repeated = frame["type"] == "ack" and frame["seq"] <= self.last_seq
        if not repeated:
            assert frame["seq"] == self.last_seq + 1
            self.last_seq = frame["seq"]
        if frame["id"] in self.unacknowledged:
            self.unacknowledged.remove(frame["id"])


@pytest.mark.parametrize("seed", range(4))
async def test_resume_exactly_once_over_random_breaks(tmp_path, seed):
    chance = random.Random(seed)
    devices = [Device(name, chance) for name in "abcd"]
    with trio.fail_after(HANG_S):
        async with world(tmp_path) as w:
            w.chats.page = 3
            async with trio.open_nursery() as nursery:
                for device in devices:
                    nursery.start_soon(device.live, w, len(devices) * MESSAGES)
            rows = w.chats.rows["local:main"]
    assert sum(device.breaks for device in devices) > 0
    assert [row.seq for row in rows] == list(range(1, len(devices) * MESSAGES + 1))
    for device in devices:
        own = [row.id for row in rows if row.id.startswith(device.name)]
        assert sorted(own) == sorted(f"{device.name}-{number}" for number in range(MESSAGES))
