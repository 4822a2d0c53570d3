"""``reasoning_content`` for OpenAI's clients that ask for it, and ``thinking`` among the events of a message."""

import json

import httpx2
import pytest

from tests.support.llm_server import Reasoning, Reply, Text, serve_llm
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S

THOUGHTFUL = Reply(steps=(Reasoning("Two and "), Reasoning("два."), Text("Fo"), Text("ur.")))


def base(server):
    return server.url.replace("ws://", "http://").removesuffix("/ws")


@pytest.mark.parametrize("wanted", [True, False, None])
async def test_reasoning_content_is_there_if_it_is_asked_for(tmp_path, wanted):
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _request: THOUGHTFUL
        async with httpx2.AsyncClient(base_url=base(server), timeout=HANG_S, trust_env=False) as http:

            async def ask(stream):
                said = [{"role": "user", "content": f"Two and two, {stream}?"}]
                asked = {"model": "klaw", "messages": said, "stream": stream}
                asked |= {"include_reasoning": wanted} if wanted is not None else {}
                answer = await http.post("/v1/chat/completions", json=asked)
                assert answer.status_code == 200, answer.text
                return answer

            message = (await ask(stream=False)).json()["choices"][0]["message"]
            assert message["content"] == "Four."
            assert message.get("reasoning_content") == ("Two and два." if wanted else None)
            streamed = await ask(stream=True)
            assert "x-klaw-chat" in streamed.headers
            lines = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
            deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
            assert "".join(each.get("content", "") for each in deltas) == "Four."
            assert "".join(each.get("reasoning_content", "") for each in deltas) == ("Two and два." if wanted else "")
            assert deltas[0]["role"] == "assistant"


async def test_the_events_of_a_message_have_it(tmp_path):
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _request: THOUGHTFUL
        async with httpx2.AsyncClient(base_url=base(server), timeout=HANG_S, trust_env=False) as http:
            asked = {"text": "Two and two?", "stream": True}
            events = (await http.post("/api/v1/chats/main/messages", json=asked)).text
        thought = [json.loads(line[6:]) for line in events.splitlines() if '"type":"thinking"' in line]
        assert "".join(each["text"] for each in thought) == "Two and два."
        assert events.index("event: thinking") < events.index("event: delta")
