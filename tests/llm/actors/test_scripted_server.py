"""The scripted server as a program of its own, as benchmarks use it."""

import json
import subprocess
import sys
from functools import partial

import pytest
import trio

from klaw.llm.providers.http import HttpProvider, HttpSettings
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.types import ChatMessage, Request
from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S, first_line


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(["--reply", "да и нет"], "да и нет"), (["--echo", "--delay-ms", "1", "--first-delay-ms", "1"], "echo: a б")],
)
async def test_it_prints_its_port_and_answers(arguments: list[str], answer: str) -> None:
    async with trio.open_nursery() as nursery:
        command = [sys.executable, "-m", "tests.support.llm_server", *arguments]
        run = partial(trio.run_process, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=REPOSITORY)
        process = await nursery.start(run)
        with trio.fail_after(HANG_S):
            port = json.loads(await first_line(process.stdout))["port"]
            provider = HttpProvider(HttpSettings(name="x", base_url=f"http://127.0.0.1:{port}/v1"), OpenAiDialect())
            request = Request(model="m", messages=(ChatMessage(role="user", content="a б"),))
            assert (await provider.stream(request, lambda _delta: None)).text == answer
            await provider.aclose()
        nursery.cancel_scope.cancel(reason="the test is over")
