"""What a program can leave in the workspace for a server to stumble over: it answers all, and ends when told to."""

import os

import pytest
import trio

from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S

NAMES = ("SOUL.md", "USER.md", "HEARTBEAT.md", "MEMORY.md", "memory/2026-01-01.md", "skills/light/SKILL.md")


@pytest.mark.parametrize("trap", ["pipe", "environment", "zero device"])
async def test_traps_neither_reach_the_model_nor_stop_the_server(tmp_path, trap):
    """Before, a pipe held two shared threads, and with them every chat and the end of the process."""
    workspace = tmp_path / "workspace"
    for name in NAMES:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        if trap == "pipe":
            os.mkfifo(workspace / name)
        else:
            (workspace / name).symlink_to("/proc/self/environ" if trap == "environment" else "/dev/zero")
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.replies += [text_reply("да"), text_reply("yes")]
        async with talking(server.url) as talk:
            await talk.ask("привет")
            await talk.ask("hello", "other")
        assert "PATH=" not in str(llm.requests[0].body)
        with trio.fail_after(HANG_S):
            assert await server.terminate() == 0
