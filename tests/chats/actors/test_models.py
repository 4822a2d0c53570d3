"""Chats with several models: who answered, what the provider's cache can know again, what status says."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from klaw.domain.events import TextStreamed
from klaw.domain.message import TurnStatus
from klaw.llm.service import FAILURES_TO_OPEN
from tests.support.chats_world import world
from tests.support.llm_server import Hang, Reasoning, Reply, Text, error_reply, serve_llm, text_reply
from tests.support.programs.anthropic_server import serve_anthropic
from tests.support.waiting import HANG_S

CACHED = {"type": "ephemeral"}


def everything(folder: Path) -> bytes:
    """The contents of all files below a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_the_turn_says_which_model_really_answered(tmp_path: Path) -> None:
    providers = {"other": {"baseUrl": "http://127.0.0.1:1/v1"}}
    async with world(tmp_path, providers=providers, routing={"fallback": ["other/x", "stub/small"]}) as w:
        w.llm.replies += [error_reply(401), text_reply("второй")]
        await w.send("вопрос")
        assert (await w.reply()).content == "второй"
        record = await w.receipt()
        assert (record.status, record.model) == (TurnStatus.DONE, "stub/small")
        assert [request.body["model"] for request in w.llm.requests] == ["model", "small"]


async def test_a_long_prompt_is_shortened_for_a_short_model_that_stands_in(tmp_path: Path) -> None:
    """The chat goes on though the model that stands in has a hundredth of the context."""
    providers = {
        "big": {"baseUrl": "http://127.0.0.1:1/v1", "maxRetries": 0, "models": {"m": {"contextTokens": 100_000}}}
    }
    async with world(
        tmp_path,
        providers=providers,
        routing={"default": "big/m", "fallback": ["stub/small"]},
        context={"defaultBudgetTokens": 1000, "replyReserveTokens": 100},
    ) as w:
        await w.send("слово " * 3000)
        assert (await w.turn(1)).status is TurnStatus.DONE
        assert (await w.receipt()).model == "stub/small"
        assert len(w.llm.requests) == 1
        assert len(w.contents()[-1]) < 3000


async def test_a_failing_provider_is_degraded_until_it_works_again(tmp_path: Path) -> None:
    async with world(tmp_path, routing={"fallback": "stub/other"}) as w:
        w.llm.replies += [error_reply(503)] * (FAILURES_TO_OPEN + FAILURES_TO_OPEN % 2)
        await w.send("a")
        await w.turn(1)
        await w.send("b")
        ended = await w.turn(2)
        assert ended.code == "llm_refused"
        assert set(w.app.core.health.problems()) >= {"llm:stub"}
        (report,) = w.app.llm.router.report()
        assert (report["name"], report["state"]) == ("stub", "open")
        await w.send("c")
        assert (await w.turn(3)).code == "llm_paused"
        assert len(w.llm.requests) == FAILURES_TO_OPEN


async def test_a_chat_with_anthropic_marks_what_stays_the_same(tmp_path: Path) -> None:
    """The first block of the system prompt is the same bytes in both turns; thinking is neither sent again nor kept."""
    async with serve_anthropic() as claude:
        providers = {"claude": {"type": "anthropic", "baseUrl": claude.url, "apiKey": "k"}}
        async with world(tmp_path, providers=providers, routing={"default": "claude/m"}) as w:
            claude.replies += [Reply(steps=(Reasoning("ТАЙНА"), Text("Привет"))), text_reply("Ещё раз")]
            await w.send("раз")
            assert (await w.reply(1)).content == "Привет"
            await w.send("два")
            assert (await w.reply(2)).content == "Ещё раз"
            first, second = (request.body for request in claude.requests)
            assert first["system"][0] == second["system"][0]
            assert first["system"][0]["cache_control"] == CACHED
            assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
            assert "ТАЙНА" not in str(second)
            record = await w.receipt()
            assert record.model == "claude/m"
            assert (record.usage["prompt_tokens"], record.usage["cached_tokens"]) == (11, 3)
            assert record.usage["cache_write_tokens"] == 5
    stored = everything(tmp_path)
    assert "Привет".encode() in stored
    assert "ТАЙНА".encode() not in stored


def test_what_is_not_used_is_not_imported() -> None:
    """Klaw speaks both APIs itself: no SDK costs time or memory, not even when its provider is used."""
    probe = (
        "import sys, klaw.app.app, klaw.llm.providers.http, klaw.llm.providers.anthropic; "
        "print([name for name in ('anthropic', 'openai', 'pydantic', 'xllamacpp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_stopping_a_turn_closes_the_connection_within_a_second(tmp_path: Path, kind: str) -> None:
    """As the server sees it."""
    async with serve_anthropic() if kind == "anthropic" else serve_llm() as server:
        providers = {"some": {"type": kind, "baseUrl": server.url}}
        async with world(tmp_path, providers=providers, routing={"default": "some/m"}) as w:
            server.replies.append(Reply(steps=(Text("x"), Hang())))
            await w.send("question")
            await w.watcher.until(lambda events: [e for e in events if isinstance(e, TextStreamed)])
            await w.send("/stop")
            with trio.fail_after(HANG_S):
                await server.requests[0].gone.wait()
            assert (await w.turn(1)).status is TurnStatus.STOPPED
