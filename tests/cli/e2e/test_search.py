"""``klaw search``, as a person runs it: beside a running server and without one, in Russian and English."""

import json
import shlex
from typing import Any

import pytest

from tests.support.llm_server import serve_llm
from tests.support.server import Server, run_klaw, served, write_home
from tests.support.talking import talking

SAID = (
    ("main", "The wifi password of the summer house is tangerine-42."),
    ("main", "/new"),
    ("дача", "Пароль от вайфая на даче — мандарин-42, запиши его."),
    ("work", "I am allergic to peanuts and hazelnuts, the doctor says."),
)
ANNA = "Annas wifi password is persimmon-7, пароль от вайфая у Анны."


async def token(home: str, user: str) -> str:
    code, out, _ = await run_klaw("token", "add", user, "--home", home, "--json")
    assert code == 0
    return str(json.loads(out)["token"])


async def say(server: Server, local: str, anna: str) -> None:
    async with talking(server.url, token=local) as talk:
        for chat, text in SAID:
            if text.startswith("/"):
                await talk.send(text, chat)
            else:
                await talk.ask(text, chat)
    async with talking(server.url, token=anna) as talk:
        await talk.ask(ANNA)


def embedded(status: dict[str, Any]) -> bool:
    """All messages have their vectors."""
    embedder = status["embedder"]
    return bool(embedder["state"] == "ready" and embedder["embedded"] and not embedder["waiting"])


async def found(home: str, *arguments: str) -> list[str]:
    code, out, err = await run_klaw("search", "--home", home, "--json", *arguments)
    assert code in (0, 1), err
    results = json.loads(out)["results"]
    assert code == (0 if results else 1)
    return [f"{each['chat']}#{each['seq']}" for each in results if each["role"] == "user"]


async def check(home: str, *, by_meaning: bool) -> None:
    """What must hold with and without a server."""
    for query, first in (("passwords wifi", "local:main#1"), ("вайфай на даче", "local:дача#1")):
        places = await found(home, query, "--limit", "100")
        assert places[0] == first
        assert all(place.startswith("local:") for place in places)
    if by_meaning:
        assert "local:work#1" in (await found(home, "аллергия на орехи"))[:2]
    assert not any("anna:" in place for place in await found(home, "хурма persimmon Annas", "--role", "user"))
    assert await found(home, "wifi", "--user", "anna") == ["anna:main#1"]
    assert await found(home, "wifi", "--until", "yesterday") == []


@pytest.mark.parametrize("with_model", [True, False], ids=["model", "no model"])
async def test_search_with_and_without_a_server(tmp_path, embedding_model_dir, with_model):
    async with serve_llm() as llm:
        models = embedding_model_dir.parent if with_model else None
        home = write_home(tmp_path / "home", llm=llm.url, models=models)
        tokens = [await token(str(home), user) for user in ("local", "anna")]
        async with served(home) as server:
            await say(server, *tokens)
            if with_model:
                await server.status_when(embedded)
            await check(str(home), by_meaning=with_model)
            code, out, err = await run_klaw("search", "--home", str(home), "password", "--limit", "1")
            assert (code, err) == (0, "" if with_model else "klaw: full text only: embedding.enabled is false\n")
            head, snippet, _, count, more = out.splitlines()
            assert head.split()[2:] in (["main#1", "user"], ["main#2", "assistant"], ["дача#1", "user"])
            assert snippet.startswith("    ")
            assert "\x1b" not in out
            assert count.startswith("1 to 1 of ")
            next_page = shlex.split(more.removeprefix("more: klaw "))
            code, out, _ = await run_klaw(*next_page)
            assert code == 0
            assert out.splitlines()[0] != head
            assert "tangerine" not in server.stderr
        await check(str(home), by_meaning=with_model)
        code, _, err = await run_klaw("search", "--home", str(home), "password", "--since", "soon")
        assert (code, err.split(":")[:2]) == (2, ["klaw", " --since"])
