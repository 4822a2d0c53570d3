"""``klaw reindex`` as a person runs it: beside a stopped server, and while one is running and written to."""

import json
import re

from klaw.store.reindex.compare import MIN_COSINE
from tests.e2e.talking import talking
from tests.support.llm_server import echo_reply, serve_llm
from tests.support.models import models_dir
from tests.support.reindexing import digests_of
from tests.support.server import run_klaw, served, write_home

CONVERSATION = [
    "My sister Anna is allergic to peanuts, so please never suggest them.",
    "Код от калитки в саду 4711, а ключ лежит под синим горшком.",
    "We are going to Lisbon in May with the children and two bicycles.",
]


async def test_a_stopped_server(tmp_path, embedding_model_dir):
    """With the real model: report, files, exit codes; --drop-old; the server goes on with the new database."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, models=models_dir())
        llm.respond = echo_reply
        async with served(home) as server, talking(server.url) as talk:
            for text in CONVERSATION:
                await talk.ask(text)
            history = await talk.history()
        database = server.database
        before = digests_of(database)
        code, out, errors = await run_klaw("reindex", "--home", str(home), "--json")
        report = json.loads(out)
        assert (code, report["swapped"], report["compared"]) == (0, True, True), errors
        assert report["vectors"]["taken_over"] + report["vectors"]["made"] == 6
        assert [line.split(" (")[0] for line in errors.splitlines()] == [
            "reading the logs", "messages", "turns", "vectors taken over",
            *(["vectors made"] if report["vectors"]["made"] else []), "comparing", "swapping the databases",
        ]  # fmt: skip
        assert digests_of(database.with_name("klaw.db.old")) == before
        assert {**digests_of(database), "vectors": ""} == {**before, "vectors": ""}
        code, out, errors = await run_klaw("reindex", "--home", str(home))
        assert (code, out) == (1, "")
        assert "klaw reindex --drop-old" in errors
        code, out, _ = await run_klaw("reindex", "--home", str(home), "--drop-old")
        assert (code, out.split()[0]) == (0, "freed")
        code, out, errors = await run_klaw("reindex", "--home", str(home), "--embed-again")
        assert code == 0, out + errors
        assert re.search(r"vectors: 0 taken over, 6 made, 0 left", out), out
        assert "DIFFERS" not in out, f"made again, they point where they did (cosine >= {MIN_COSINE})"
        assert "--drop-old" in out
        async with served(home) as server, talking(server.url) as talk:
            assert await talk.history() == history
            assert not server.events("reconciled")


async def test_logs_that_lack_a_message_are_not_swapped_in(tmp_path):
    """Exit code 1, the table with the row ids and no content, and what to do; with --accept-differences it is done."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url)
        async with served(home) as server, talking(server.url) as talk:
            for text in CONVERSATION:
                await talk.ask(text)
    (log,) = server.data.glob("conversations/*/*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2] + lines[3:]))
    before = server.database.read_bytes()
    code, out, errors = await run_klaw("reindex", "--home", str(home))
    assert (code, errors) == (1, "")
    assert re.search(r"messages +6 +5 +1 +0 +0 +DIFFERS: 3", out), out
    assert "--accept-differences" in out
    assert "калитки" not in out
    assert server.database.read_bytes() == before
    code, out, _ = await run_klaw("reindex", "--home", str(home), "--accept-differences", "--json")
    assert (code, json.loads(out)["swapped"]) == (0, True)


async def test_nothing_to_reindex(tmp_path):
    code, out, errors = await run_klaw("reindex", "--home", str(tmp_path / "nowhere"))
    assert (code, out) == (1, "")
    assert errors.startswith("klaw: there is no ")
