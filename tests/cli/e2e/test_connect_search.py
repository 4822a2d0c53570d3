"""``klaw connect search``: from a key to an answer with links, without editing a file or a restart. What goes wrong on
the way changes nothing."""

import json
import stat

import httpx2
import pytest
import trio

from tests.cli.e2e.test_models_connect import files, fresh
from tests.e2e.test_thinking_over_http import base
from tests.support.dialogue import dialogue
from tests.support.llm_server import Tool, serve_llm, text_reply, tool_reply
from tests.support.programs.searxng import searxng
from tests.support.server import run_klaw, served
from tests.support.services.imitation import json_reply
from tests.support.services.search import FOUND, KEY, SEARCH_IMITATIONS
from tests.support.talking import talking
from tests.support.waiting import HANG_S

LIGHT = FOUND[0]
LINK = f"[1] [{LIGHT[0]}]({LIGHT[1]})"


def home_with(tmp_path, llm):
    """A home whose model calls tools, and no search service."""
    home = fresh(tmp_path)
    file = home / "config" / "engine.yaml"
    own = {"providers": {"stub": {"baseUrl": llm.url, "models": {"model": {"tools": True}}}}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **own, "routing": {"default": "stub/model"}}))
    return home


def answer(request):
    last = request.messages[-1]
    if last["role"] == "user":
        return tool_reply(Tool("t1", "web_search", '{"query": "lighthouse"}'))
    return text_reply("Built in 1818 [1].")


async def connect(home, service, *more, key=KEY):
    return await run_klaw(
        *("connect", "search", service.kind, "--url", service.root, "--key-env", "THE_KEY", "--yes", *more),
        *("--home", str(home)),
        environ={"THE_KEY": key},
    )


@pytest.mark.parametrize(("kind", "running"), [("brave", True), ("tavily", False), ("exa", True)])
async def test_from_a_key_to_an_answer_with_links(tmp_path, kind, running):
    async with serve_llm() as llm, serve_llm(SEARCH_IMITATIONS[kind]()) as service:
        llm.respond = answer
        async with served(home_with(tmp_path, llm), start=running) as server:
            code, out, error = await connect(tmp_path, service, "--fetch")
            assert code == 0, error
            for said in (f"{service.root} answers:", f"  {LIGHT[0]}", "The key is in secrets.env as THE_KEY."):
                assert said in out
            if not running:
                await server.start()
            async with talking(server.url) as at:
                assert await at.answer_to(await at.ask("When was it built?")) == f"Built in 1818 [1].\n\n{LINK}"
            assert service.asked_for == ["Wikipedia", "lighthouse"]
            offered = {each["function"]["name"] for each in llm.requests[0].body["tools"]}
            assert {"web_search", "web_fetch"} <= offered
            assert KEY not in (tmp_path / "config" / "engine.yaml").read_text() + server.stderr
    secrets = tmp_path / "config" / "secrets.env"
    assert (stat.S_IMODE(secrets.stat().st_mode), secrets.read_text()) == (0o600, f"THE_KEY={KEY}\n")


@pytest.mark.parametrize(
    ("kind", "reply", "key", "said"),
    [
        ("exa", None, "wrong-key-7777", "Invalid API key"),
        ("brave", None, "wrong-key-7777", "subscription token *** is invalid"),
        ("tavily", json_reply({"detail": {"error": "plan"}}, 432), KEY, "the plan's searches are used up"),
    ],
)
async def test_what_goes_wrong_is_told_and_changes_nothing(tmp_path, kind, reply, key, said):
    async with serve_llm() as llm, serve_llm(SEARCH_IMITATIONS[kind]()) as service:
        service.replaced = {service.path: reply} if reply is not None else {}
        before = files(home_with(tmp_path, llm))
        code, out, error = await connect(tmp_path, service, key=key)
        assert code == 1
        assert said in error
        assert key not in out + error
        assert files(tmp_path) == before


async def test_a_person_is_asked_and_may_say_no(tmp_path):
    async with serve_llm() as llm, serve_llm(SEARCH_IMITATIONS["tavily"]()) as service:
        home = home_with(tmp_path, llm)
        before = files(home)
        given = ("connect", "search", "--url", service.root, "--home", str(home))
        asked = [("Its number or name", "tavily"), ("Key", "wrong"), ("Key", KEY), ("Use it?", "no")]
        code, shown = await trio.to_thread.run_sync(dialogue, given, asked)
        assert "Unauthorized: missing or invalid API key" in shown
        assert LIGHT[0] in shown
        assert "Nothing was changed." in shown
        assert (code, files(home)) == (1, before)
        asked = [("Its number or name", "3"), ("Key", KEY), ("Use it?", "да"), ("read the pages", "no")]
        code, shown = await trio.to_thread.run_sync(dialogue, given, asked)
        assert code == 0, shown
        assert (home / "config" / "secrets.env").read_text() == f"TAVILY_API_KEY={KEY}\n"
        assert "enabled: true" not in (home / "config" / "engine.yaml").read_text()


async def test_a_real_searxng_is_connected_and_used(tmp_path):
    async with serve_llm() as llm, searxng(tmp_path, FOUND) as port:
        llm.respond = answer
        async with served(home_with(tmp_path / "home", llm)) as server:
            url = f"http://127.0.0.1:{port}"
            given = ("connect", "search", "searxng", "--url", url, "--yes", "--home", str(tmp_path / "home"))
            code, out, error = await run_klaw(*given)
            assert code == 0, error
            assert f"{url} answers:" in out
            async with talking(server.url) as at:
                assert await at.answer_to(await at.ask("When was it built?")) == f"Built in 1818 [1].\n\n{LINK}"
            # A program that is sent the answer piece by piece gets the links, too.
            async with httpx2.AsyncClient(base_url=base(server), timeout=HANG_S, trust_env=False) as http:
                asked = {"model": "klaw", "stream": True, "messages": [{"role": "user", "content": "And where?"}]}
                lines = (await http.post("/v1/chat/completions", json=asked)).text.splitlines()
            events = [json.loads(each[6:]) for each in lines if each.startswith("data: {")]
            pieces = [choice["delta"].get("content") or "" for each in events for choice in each["choices"]]
            assert "".join(pieces) == f"Built in 1818 [1].\n\n{LINK}"
