"""Invariant durable-ack: what was acknowledged is there after a SIGKILL, exactly once and in order."""

from tests.support.llm_server import serve_llm
from tests.support.programs.drill import drill
from tests.support.server import served, write_home
from tests.support.talking import talking


async def test_durable_ack_survives_a_kill_at_once(tmp_path):
    """The process is killed in the moment in which the ack arrives, five times."""
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        texts = [f"important {n}, важно {n} 🙂" for n in range(5)]
        for number, text in enumerate(texts):
            async with talking(server.url) as talk:
                await talk.send(text, message_id=f"m{number}")
                await server.kill()
            await server.start()
        async with talking(server.url) as talk:
            mine = [message for message in await talk.history() if message.role == "user"]
            again = await talk.send(texts[2], message_id="m2")
    assert [(message.id, message.content) for message in mine] == [(f"m{n}", text) for n, text in enumerate(texts)]
    assert again == mine[2].seq, "the same id again gives the same ack"


async def test_crash_drill_of_three_rounds():
    """tools/crash_drill.py, as by hand but shorter: 20 clients and two that share a chat, three kills under load."""
    report = await drill("crash_drill.py", "--rounds", "3")
    assert report["kills"] == 3
    assert report["acknowledged"] >= 21, "every client that writes has at least one"
