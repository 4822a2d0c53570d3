"""What went wrong at the provider is told where somebody can do something about it, and nowhere else."""

import json
from pathlib import Path

import pytest
import trio

from klaw.wire.frames import Status, Watch
from tests.support.llm_server import error_reply, serve_llm, text_reply
from tests.support.reindexing import differing, run
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import Talk, talking

KEY = "sk-canary-91ab77"
PROMPTS = ("Моя тайна: Жёлудь-7731", "My secret is zucchini-5150")


def home_of(tmp_path: Path, url: str) -> Path:
    return write_home(
        tmp_path / "home",
        llm=url,
        routing={"default": "stub/gpt-none"},
        providers={"stub": {"baseUrl": url, "apiKey": KEY, "maxRetries": 0, "timeoutSeconds": 20}},
    )


async def failed(talk: Talk, text: str) -> str:
    before = len(talk.errors)
    await talk.send(text)
    await talk.until(lambda: len(talk.errors) > before)
    return talk.errors[-1].message


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_a_wrong_key_is_told_in_chat_status_doctor_and_log(tmp_path, prompt):
    async with serve_llm() as llm:
        home = home_of(tmp_path, llm.url)
        llm.respond = lambda request: error_reply(
            401, "invalid_api_key", f"Incorrect API key provided: {KEY[:6]}****{KEY[-4:]}. Prompt: {request.last_user}"
        )
        async with served(home) as server:
            async with talking(server.url) as talk:
                told = await failed(talk, prompt)
                assert told.startswith(f"stub/gpt-none at {llm.url}: the LLM provider answered with status 401")
                assert "(invalid_api_key)" in told
                assert f'"Incorrect API key provided: *** Prompt: {prompt}"' in told
                assert "is providers.stub.apiKey right?" in told
                await talk.until(lambda: "llm:stub" in talk.degraded)
                everybody = talk.degraded["llm:stub"]
            code, status, _ = await run_klaw("status", "--home", str(home), "--json")
            (provider,) = json.loads(status)["llm"]["providers"]
            assert code == 3
            assert provider["error"] == told.split(". Your message is kept", maxsplit=1)[0]
            _, text, _ = await run_klaw("status", "--home", str(home))
            assert "stub: the last call failed, " in text
            assert f"s ago: stub/gpt-none at {llm.url}: the LLM" in text
            _, doctor, _ = await run_klaw("doctor", "--home", str(home))
            assert "Incorrect API key provided" in doctor
            log = server.stderr
    assert '"reason": "Incorrect API key provided' in log
    for private in (*prompt.split()[-1:], "secret", "тайна"):
        assert private not in log + everybody
    for part in (KEY, KEY[:6], KEY[-4:]):
        assert part not in log + everybody + told + status + doctor


async def test_a_wrong_model_and_a_dead_server(tmp_path):
    async with serve_llm() as llm:
        home = home_of(tmp_path, llm.url)
        url = llm.url
        llm.replies.append(error_reply(404, "model_not_found", "The model `gpt-none` does not exist"))
        async with served(home) as server, talking(server.url) as talk:
            told = await failed(talk, "Привет")
            assert '"The model `gpt-none` does not exist"' in told
            assert "are the model's name and providers.stub.baseUrl right?" in told
            assert "llm:stub" not in talk.degraded  # other models of it may work
            llm.stop()
            told = await failed(talk, "Hello")
            assert told.startswith(f"stub/gpt-none at {url}: the LLM provider cannot be reached: Connection refused")


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_the_reason_is_kept_with_the_turn(tmp_path, prompt):
    """26.D1.1: after a restart, for every client, without what anybody wrote; a reindex gives the same, also after a
    message was forgotten that says just the same."""
    async with serve_llm() as llm:
        home = home_of(tmp_path, llm.url)
        config = json.loads((home / "config" / "engine.yaml").read_text())
        (home / "config" / "engine.yaml").write_text(json.dumps({**config, "recovery": {"answerPendingSeconds": 0}}))
        llm.respond = lambda request: error_reply(
            401, "invalid_api_key", f"Incorrect API key provided: {KEY}. Prompt: {request.last_user}"
        )
        async with served(home) as server:
            async with talking(server.url) as talk:
                await failed(talk, prompt)
            await server.terminate()
            await server.start()
            async with talking(server.url) as talk:
                status = await talk.client.call("chats_status", chat="main")
                assert (status["state"], status["code"]) == ("failed", "llm_refused")
                why, _, rest = status["message"].partition(". Your message is kept")
                assert why.startswith(f"stub/gpt-none at {llm.url}: the LLM provider answered with status 401")
                assert "Incorrect API key provided" in why
                assert rest.endswith("/retry to try again.")
                assert all(each not in why for each in (*prompt.split()[-1:], KEY, KEY[:6]))
                watched = await watched_status(talk)
                assert watched.state == status["state"]
                assert watched.details == {name: status[name] for name in ("code", "message")}
                await failed(talk, why.partition(" (invalid")[0])
            code, told, _ = await run_klaw("receipt", "--home", str(home))
            assert code == 0
            assert f"failed (llm_refused: {why.partition(' (invalid')[0]}" in told
            code, _, problem = await run_klaw("forget", "main#2", "--yes", "--home", str(home))
            assert code == 0, problem
            llm.respond = lambda _request: text_reply("Yes.")
            async with talking(server.url) as talk:
                await talk.send("/retry")
                await talk.until(lambda: any(each.role == "assistant" for each in talk.entries))
                status = await talk.client.call("chats_status", chat="main")
                assert (status["state"], status["code"]) == ("idle", None)
            await server.terminate()
        assert differing(await trio.to_thread.run_sync(run, server.data)) == set()


async def watched_status(talk: Talk) -> Status:
    """What follows ``caught_up``."""
    await talk.client.request(Watch(chat="main", seq=0))
    return await talk.until(
        lambda: next((each for each in talk.events if isinstance(each, Status) and each.chat == "main"), None)
    )
