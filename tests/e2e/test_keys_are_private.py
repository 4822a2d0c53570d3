"""The keys are in the service's environment or among its credentials, and nowhere else."""

import json
from pathlib import Path

from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking

KEY = "sk-canary-77aa31"
WORDS = ("The boat is called Wanderer.", "Лодку зовут Странник.")


def home_with(tmp_path: Path, llm: str, key: str) -> Path:
    return write_home(
        tmp_path / "home",
        llm=llm,
        providers={"stub": {"baseUrl": llm, "apiKey": key, "maxRetries": 0, "timeoutSeconds": 20}},
        mcp={"servers": {"notes": {"command": "/bin/true", "env": {"TOKEN": "${NOTES_TOKEN}"}}}},
    )


async def test_only_what_asks_the_provider_needs_its_key(tmp_path):
    async with serve_llm() as llm:
        home = home_with(tmp_path, llm.url, "${CLOUD_KEY}")
        async with served(home, environ={"CLOUD_KEY": KEY}) as server:
            async with talking(server.url) as talk:
                for text in WORDS:
                    await talk.ask(text)
                await talk.until(lambda: "mcp:notes" in talk.degraded)
                assert llm.requests[-1].headers["authorization"] == f"Bearer {KEY}"
                assert "mcp.servers.notes.env.TOKEN: the environment variable NOTES" in talk.degraded["mcp:notes"]
            log = server.stderr
        everything = log
        for command in (
            ["config", "check"],
            ["config", "show"],
            ["search", "boat"],
            ["search", "лодку"],
            ["reindex"],
            ["why", "main#1"],
            ["recall-replay"],
            ["models", "calibrate"],
            ["doctor"],
        ):
            code, out, error = await run_klaw(*command, "--home", str(home))
            everything += out + error
            assert "is not set" not in error, command
            # Two of them want an embedding model, which this home has not.
            assert code == 0 or command[0] in ("recall-replay", "models"), (command, out, error)
    assert KEY not in everything


async def test_the_commands_say_what_only_the_server_needs(tmp_path):
    home = home_with(tmp_path, "http://127.0.0.1:9/v1", "${CLOUD_KEY}")
    code, out, _ = await run_klaw("config", "check", "--home", str(home))
    assert code == 0
    assert "warning: providers.stub.apiKey: the environment variable CLOUD_KEY is not set" in out
    (home / "data").mkdir(mode=0o700)
    _, out, _ = await run_klaw("doctor", "--home", str(home), "--json")
    (found,) = [each for each in json.loads(out)["findings"] if each["name"] == "configuration"]
    assert found["level"] == "ok"
    assert "providers.stub.apiKey: the environment variable CLOUD_KEY is not set" in found["text"]


async def test_a_server_without_its_key_starts_says_so_and_recovers(tmp_path):
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    async with serve_llm() as llm:
        llm.replies.append(text_reply("Ahoy."))
        home = home_with(tmp_path, llm.url, "${credential:cloud}")
        async with served(home, environ={"CREDENTIALS_DIRECTORY": str(credentials)}) as server:
            async with talking(server.url) as talk:
                await talk.until(lambda: "llm:stub" in talk.degraded)
                assert "providers.stub.apiKey: cannot read" in talk.degraded["llm:stub"]
                assert not llm.requests
                (credentials / "cloud").write_text(KEY + "\n")
                await talk.ask(WORDS[0])
                await talk.until(lambda: "llm:stub" not in talk.degraded)
            assert llm.requests[-1].headers["authorization"] == f"Bearer {KEY}"
            assert KEY not in server.stderr
