"""26.D1.6: what is said of a provider that failed is over when it answers, or when nobody has asked it for a while."""

from pathlib import Path

import pytest

from klaw.llm import router
from tests.support.chats_world import World, world
from tests.support.llm_server import error_reply, text_reply

UNSET = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "${KLAW_TEST_NOT_SET}"}


def told(w: World) -> set[str]:
    return {code for code in w.app.core.health.problems() if code.startswith("llm:")}


async def test_with_the_next_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.llm.replies += [error_reply(401), text_reply("4")]
        await w.send("2 + 2?")
        await w.turn(1)
        assert told(w) == {"llm:stub"}
        await w.send("/retry")
        await w.turn(2)
        assert told(w) == set()


async def test_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as w:
        w.llm.replies.append(error_reply(401))
        await w.send("2 + 2?")
        await w.turn(1)
        monkeypatch.setattr(router, "PASSES_S", 0.0)
        assert told(w) == set()


@pytest.mark.parametrize("routed", [True, False])
async def test_a_secret_that_is_missing_stands_in_the_way_of_a_route_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, routed: bool
) -> None:
    routing = {"fallback": ["cloud/m"] if routed else []}
    async with world(tmp_path, providers={"cloud": UNSET}, routing=routing) as w:
        w.llm.respond = lambda _request: error_reply(500)
        await w.command("/model cloud/m")
        await w.send("2 + 2?")
        await w.turn(1)
        assert "llm:cloud" in told(w)
        monkeypatch.setattr(router, "PASSES_S", 0.0)
        assert ("llm:cloud" in told(w)) is routed
