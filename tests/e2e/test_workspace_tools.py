"""A real server on a workspace made by ``klaw init``: the model reads, writes, loads skills, and cannot get out."""

import json

from tests.support.llm_server import Tool, serve_llm, text_reply, tool_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking


def _call(tool, /, **arguments):
    return Tool(id=f"{tool}-{len(arguments)}", name=tool, arguments=json.dumps(arguments))


def _results(request):
    return [message["content"] for message in request.messages if message["role"] == "tool"]


async def test_the_model_works_in_the_workspace_and_only_there(tmp_path):
    home = tmp_path / "home"
    code, _, said = await run_klaw("init", "--yes", "--home", str(home), "--language", "ru", "--user", "Анна")
    assert code == 0, said
    workspace = home / "workspace"
    (workspace / "skills" / "tea").mkdir()
    (workspace / "skills" / "tea" / "SKILL.md").write_text("---\ndescription: Как заварить чай\n---\nТри минуты.")
    (tmp_path / "canary.md").write_text("canary")
    (workspace / "out.md").symlink_to(tmp_path / "canary.md")
    async with serve_llm() as llm:
        stub = {"stub": {"baseUrl": llm.url, "models": {"echo": {"tools": True}}}}
        async with served(write_home(home, llm=llm.url, providers=stub)) as server, talking(server.url) as anna:
            llm.replies += [
                tool_reply(
                    _call("file_read", path="USER.md"),
                    _call("file_write", path="memory/2026-11-22.md", content="Анна любит чай.\n"),
                    _call("skill_load", name="tea"),
                    _call("file_read", path="../../canary.md", limit=5),
                    _call("file_list", path="out.md"),
                ),
                tool_reply(_call("file_read", path="out.md")),
                text_reply("Готово."),
            ]
            await anna.ask("Запиши, что я люблю чай")
    first, second, third = llm.requests
    offered = {tool["function"]["name"]: tool["function"]["description"] for tool in first.body["tools"]}
    assert {"file_read", "file_write", "file_list", "file_glob", "file_patch", "skill_list"} < set(offered)
    assert offered["skill_load"].endswith("- tea: Как заварить чай")
    assert json.dumps(first.body["tools"]) == json.dumps(third.body["tools"])
    read, written, skill, upwards, listed = _results(second)
    assert "Анна" in read
    assert written.startswith("memory/2026-11-22.md: created")
    assert skill == "Три минуты."
    assert "leads out" in upwards
    assert "leads out" in listed or "link" in listed
    assert "leads out" in _results(third)[-1]
    assert (workspace / "memory" / "2026-11-22.md").read_text() == "Анна любит чай.\n"
    assert "canary" not in json.dumps([request.body for request in llm.requests]).replace("canary.md", "")
