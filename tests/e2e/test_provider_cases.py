"""26.C1 with a whole server: the reason of a cut answer at the doors; what goes back to a provider survives a reindex,
and is in no export, no frame and no log."""

import json

import httpx2
import pytest

from tests.support.llm_server import Raw, Reply, Text, event, serve_llm, text_reply
from tests.support.repository import REPOSITORY
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S

CASES = REPOSITORY / "tests/data/cases/provider"


def case(name):
    return Reply(steps=(Raw((CASES / f"{name}.sse").read_bytes()),), finish_reason=None, usage=None, done=False)


def home_of(tmp_path, url, **provider):
    return write_home(
        tmp_path / "home",
        llm=url,
        routing={"default": "stub/m"},
        providers={"stub": {"baseUrl": url, "maxRetries": 0, "models": {"m": {"tools": True}}, **provider}},
    )


async def test_doors_say_why_an_answer_ended(tmp_path):
    async with serve_llm() as llm, served(home_of(tmp_path, llm.url)) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        async with httpx2.AsyncClient(base_url=base, timeout=HANG_S, trust_env=False) as http:
            for number, (reply, reason) in enumerate(
                [
                    (case("length"), "length"),
                    (Reply(steps=(Text("Half"),), finish_reason="content_filter"), "content_filter"),
                    (text_reply("Whole."), "stop"),
                ]
            ):

                async def ask(path, stream, reply=reply, number=number):
                    llm.replies.append(reply)
                    said = [{"role": "user", "content": f"{path} {stream} {number}?"}]
                    answer = await http.post(path, json={"model": "klaw", "messages": said, "stream": stream})
                    assert answer.status_code == 200, answer.text
                    return answer

                whole = (await ask("/v1/chat/completions", stream=False)).json()["choices"][0]
                assert whole["finish_reason"] == reason
                assert "(The" not in whole["message"]["content"]
                lines = (await ask("/v1/chat/completions", stream=True)).text.splitlines()
                chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
                assert [each["choices"][0]["finish_reason"] for each in chunks][-1] == reason
                assert (await ask("/api/chat", stream=False)).json()["done_reason"] == reason
                last = json.loads((await ask("/api/chat", stream=True)).text.splitlines()[-1])
                assert last["done_reason"] == reason


async def test_thinking_that_came_without_its_tag_is_not_in_a_whole_answer(tmp_path):
    async with serve_llm() as llm, served(home_of(tmp_path, llm.url)) as server:
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        pieces = ("Add them.\n", "</thi", "nk>\n\nFo", "ur.")
        llm.replies.append(text_reply(*pieces))
        async with httpx2.AsyncClient(base_url=base, timeout=HANG_S, trust_env=False) as http:
            said = [{"role": "user", "content": "Two and two?"}]
            answer = await http.post("/v1/chat/completions", json={"model": "klaw", "messages": said})
            assert answer.json()["choices"][0]["message"]["content"] == "Four."


@pytest.mark.parametrize("name", ["signature_to_send_back_gemini", "reasoning_to_send_back_deepseek"])
async def test_what_goes_back_stays_inside_and_signatures_survive_a_reindex(tmp_path, name):
    is_signed = "gemini" in name
    kept = "c2ln" if is_signed else "I need the time."
    async with serve_llm() as llm:
        home = home_of(tmp_path, llm.url)
        async with served(home) as server:
            async with talking(server.url) as talk:
                llm.replies.extend([case(name), text_reply("Noon.")])
                await talk.ask("What time is it?")
                assert kept in json.dumps(llm.requests[1].body)
            code, out, _ = await run_klaw("reindex", "--home", str(home))
            assert code == 0, out
            async with talking(server.url) as talk:
                llm.replies.append(text_reply("Noon still."))
                await talk.ask("And now?")
                assert (kept in json.dumps(llm.requests[2].body)) is is_signed
                assert kept not in repr(await talk.history())
            for form in ((), ("--json",)):
                code, out, _ = await run_klaw("chats", "export", "main", *form, "--home", str(home))
                assert code == 0, out
                assert "Noon." in out
                assert kept not in out
            code, out, _ = await run_klaw("search", kept.rstrip("."), "--home", str(home), "--json")
            assert code in {0, 1}
            assert kept not in json.dumps(json.loads(out)["results"])
            log = server.stderr
    assert kept not in log


async def test_a_provider_may_say_something_that_no_dialect_knows(tmp_path):
    """An event of another kind in between takes nothing from the answer."""
    odd = event({"id": "c1", "object": "chat.completion.chunk", "choices": [], "x_vendor": {"a": 1}})
    async with serve_llm() as llm, served(home_of(tmp_path, llm.url)) as server, talking(server.url) as talk:
        llm.replies.append(Reply(steps=(Text("Fo"), Raw(odd), Text("ur."))))
        assert await talk.answer_to(await talk.ask("Two and two?")) == "Four."
