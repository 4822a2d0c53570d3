"""A server on the home that commit 5dcae64 wrote: it answers, forgets, and rebuilds its database from the logs."""

import json
from pathlib import Path

from tests.support.forgetting import holding
from tests.support.llm_server import serve_llm
from tests.support.old_home import old_data
from tests.support.reindexing import digests_of
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking

FACT = "Факт 1: likes tea number 1."


async def test_an_old_home_answers_forgets_and_is_reindexed(tmp_path: Path) -> None:
    async with serve_llm() as llm:
        home = write_home(tmp_path / "home", llm=llm.url)
        old_data(home / "data")
        where = ("--home", str(home))
        async with served(home) as server:
            async with talking(server.url) as talk:
                receipt = await talk.ask("Кто я?")
                assert receipt.status == "done"
            assert any("Пётр" in str(request.messages) for request in llm.requests)  # of the old core memory
            code, out, _ = await run_klaw("facts", "list", "--json", *where)
            assert code == 0
            fact = next(each["id"] for each in json.loads(out)["facts"] if each["text"] == FACT)
            code, _, err = await run_klaw("forget", f"fact:{fact}", "--yes", *where)
            assert code == 0, err
            assert holding(home / "data", FACT) == {}
            await server.terminate()
        before = digests_of(home / "data" / "klaw.db")
        code, _, err = await run_klaw("reindex", *where)
        assert code == 0, err
        after = digests_of(home / "data" / "klaw.db")
        assert {name for name in before if before[name] != after[name]} <= {"vectors"}
