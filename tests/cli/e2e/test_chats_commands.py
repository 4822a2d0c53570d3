"""`klaw chats` on a running server that is killed: titles, archive, export and deletion, and what clients see of it."""

import json
from pathlib import Path

from tests.support.forgetting import holding
from tests.support.llm_server import serve_llm
from tests.support.server import Server, run_klaw, served, write_home
from tests.support.talking import talking

SECRET = "Ключ от сейфа называется Kanarienvogel8842, запомни"
TITLE = "Дача и сейф"


async def listed(server: Server, *, archived: bool = False) -> dict[str, str | None]:
    """Names and titles as a client is told."""
    async with talking(server.url) as talk:
        answer = await talk.client.call("chats_list", archived=archived)
    return {each["name"]: each["title"] or None for each in answer["chats"]}


async def test_over_kills(tmp_path: Path) -> None:
    home = tmp_path / "home"
    where = ("--home", str(home))
    async with serve_llm() as llm, served(write_home(home, llm=llm.url)) as server:
        async with talking(server.url) as talk:
            await talk.ask("Hello")
            await talk.ask(SECRET, chat="дача")
        code, out, err = await run_klaw("chats", "rename", "дача", TITLE, *where)
        assert (code, out) == (0, f"chat дача is now called “{TITLE}”\n"), err
        assert (await run_klaw("chats", "archive", "main", *where))[0] == 0
        await server.kill()
        await server.start()
        assert await listed(server) == {"дача": TITLE}
        assert await listed(server, archived=True) == {"main": None}
        async with talking(server.url) as talk:
            await talk.ask("Hello again")
        assert await listed(server) == {"main": None, "дача": TITLE}

        file = tmp_path / "дача.json"
        code, _, err = await run_klaw("chats", "export", "дача", "--json", "--to", str(file), *where)
        assert code == 0, err
        document = json.loads(file.read_text())
        assert (document["title"], document["messages"][0]["content"]) == (TITLE, SECRET)

        code, out, err = await run_klaw("chats", "delete", "дача", "--dry-run", *where)
        assert (code, "would be forgotten" in out, bool(holding(home, SECRET))) == (0, True, True), err
        code, out, err = await run_klaw("chats", "delete", "дача", "--yes", "--json", *where)
        assert code == 0, err
        answer = json.loads(out)
        assert (answer["forgotten"], answer["still_held"]) == (True, [])
        assert holding(home, SECRET, "Kanarienvogel8842", TITLE) == {}
        await server.kill()
        await server.start()
        assert await listed(server) == {"main": None}
        assert holding(home, SECRET, "Kanarienvogel8842", TITLE) == {}
        async with talking(server.url) as talk:
            seq = await talk.send("Снова о даче", chat="дача")
        assert seq > document["messages"][-1]["seq"]
        assert await listed(server) == {"main": None, "дача": None}
    async with served(home) as server:
        code, _, err = await run_klaw("reindex", *where)
        assert code == 0, err
        assert set(await listed(server)) == {"main", "дача"}
