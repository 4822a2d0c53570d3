"""The examples of docs/api.md, run against a real server."""

import re
import sys

import trio

from klaw.gateway.tokens import add_token, tokens_file
from tests.support.llm_server import serve_llm, text_reply
from tests.support.repository import REPOSITORY
from tests.support.server import clean_environ, served, write_home
from tests.support.waiting import HANG_S


async def test_the_examples_of_the_api_page(tmp_path):
    blocks = re.findall(
        r"^```(bash|python)\n(.*?)^```$", (REPOSITORY / "docs/api.md").read_text(), re.MULTILINE | re.DOTALL
    )
    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply("Green ", "tea")
        home = write_home(tmp_path, llm=llm.url)
        _, token = add_token(tokens_file(home / "config"), "anna", "2026-01-01T00:00:00Z")
        async with served(home) as server:
            base = server.url.replace("ws://", "http://").removesuffix("/ws")
            environ = {**clean_environ(), "KLAW": base, "TOKEN": token}
            said = []
            for language, block in blocks:
                command = ["bash", "-ec", block] if language == "bash" else [sys.executable, "-c", block]
                with trio.fail_after(HANG_S):
                    done = await trio.run_process(command, env=environ, capture_stdout=True)
                said.append(done.stdout.decode())
    facts, messages, openai, ollama = said
    assert facts.count("Likes green tea") == 2
    assert '"code"' not in facts + messages
    assert "event: done" in messages
    assert messages.count('"status":"done"') >= 2
    assert [openai.strip(), ollama.strip()] == ["Green tea", "Green tea"]
