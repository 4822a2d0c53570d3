"""``klaw reindex`` as a person runs it: beside a stopped server, and while one is running and written to."""

import json
import re

import apsw
import pytest
import trio

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from klaw.store.rebuild.offline import drop
from tests.support.llm_server import echo_reply, serve_llm
from tests.support.plugins.models import models_dir
from tests.support.reindexing import digests_of, run
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S

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
        assert report["vectors"]["taken_over"] + report["vectors"]["waiting"] == 6
        assert [line.split(" (")[0] for line in errors.splitlines()] == [
            "reading the logs", "messages", "answers",
            *(["vectors taken over"] if report["vectors"]["taken_over"] else []),
            "comparing", "swapping the databases",
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
        assert "vectors: 0 taken over, 6 left to the server" in out, out
        assert "DIFFERS" not in out
        assert "--drop-old" in out
        async with served(home) as server, talking(server.url) as talk:
            assert await talk.history() == history
            assert not server.events("reconciled")
            assert await embedded(server, 6) == 6, "the server makes them again"


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
    before = digests_of(server.database)
    code, out, errors = await run_klaw("reindex", "--home", str(home))
    assert (code, errors) == (1, "")
    assert re.search(r"messages +6 +5 +1 +0 +0 +DIFFERS: 3", out), out
    assert "--accept-differences" in out
    assert "калитки" not in out
    assert digests_of(server.database) == before
    code, out, _ = await run_klaw("reindex", "--home", str(home), "--accept-differences", "--json")
    assert (code, json.loads(out)["swapped"]) == (0, True)


async def test_nothing_to_reindex(tmp_path):
    code, out, errors = await run_klaw("reindex", "--home", str(tmp_path / "nowhere"))
    assert (code, out) == (1, "")
    assert errors.startswith("klaw: there is no ")


# -- a running server ------------------------------------------------------------------------------------------------


class Writing:
    """Clients that write until they are told to stop."""

    def __init__(self, url):
        self.url = url
        self.written = []
        """Chat, seq and text of what was acknowledged."""
        self.stop = False
        self._news = trio.Event()

    async def run(self):
        async with trio.open_nursery() as nursery:
            for chat in CHATS:
                nursery.start_soon(self._client, chat)

    async def _client(self, chat):
        async with talking(self.url) as talk:
            while not self.stop:
                text = f"{chat}: {WORDS[len(self.written) % len(WORDS)]} {len(self.written)}"
                self.written.append((chat, await talk.send(text, chat=chat), text))
                self._news.set()
                await trio.sleep(0.1)  # as fast as they can, the test would mostly look at what they wrote

    async def until(self, count):
        """Wait until so many were acknowledged."""
        with trio.fail_after(HANG_S):
            while len(self.written) < count:
                self._news = trio.Event()
                await self._news.wait()


def read_all(database):
    """Messages of a stopped server's database by chat, in order: seq, content."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = {}
        for chat, seq, content in connection.execute("SELECT chat_id, seq, content FROM messages ORDER BY rowid"):
            found.setdefault(chat.split(":", 1)[1], []).append((seq, content))
        return found
    finally:
        connection.close()


def check_written(server, written):
    """Everything acknowledged is there once, in order; logs and database have the same content."""
    found = read_all(server.database)
    for rows in found.values():
        assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
    for chat, seq, text in written:
        assert found[chat][seq - 1] == (seq, text)
    contents = [content for rows in found.values() for _, content in rows]
    assert all(contents.count(text) == 1 for _, _, text in written)
    report = run(server.data)
    assert report.swapped, report.tables
    assert all(table.live.digest == table.built.digest for table in report.tables if table.name != "vectors")
    drop(server.database)


WORDS = ["the garden gate", "калитка в саду", "a long sentence about boats and trains " * 20, "дождь и ветер", "猫"]
CHATS = ["main", "работа", "travel"]
FEW_TURNS = {"debounceMs": 500, "debounceMaxMs": 1_000}
"""What is written counts here, not the answers."""


async def test_a_running_server_that_is_written_to(tmp_path):
    """Two reindexes under load: each swaps, nothing is lost or doubled, and the digests are equal in the end."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, processing=FEW_TURNS)
        async with served(home) as server, trio.open_nursery() as nursery:
            clients = Writing(server.url)
            nursery.start_soon(clients.run)
            for _ in range(2):
                before = len(clients.written)
                code, out, errors = await run_klaw("reindex", "--home", str(home), "--json")
                report = json.loads(out)
                assert (code, report["swapped"]) == (0, True), (out, errors)
                assert {table["same"] for table in report["tables"]} == {True}
                assert report["tally"]["messages"] >= before
                await clients.until(before + 1)
                assert digests_of(server.database.with_name("klaw.db.old"))["messages"]
                code, _, _ = await run_klaw("reindex", "--home", str(home), "--drop-old")
                assert code == 0
            clients.stop = True
        assert len(server.events("database_swapped")) == 2
        assert not server.events("actor_crashed")
    check_written(server, clients.written)


async def embedded(server, count):
    """How many messages have a vector, once that are so many."""
    status = await server.status_when(
        lambda status: status["embedder"]["embedded"] >= count and not status["embedder"]["waiting"]
    )
    return status["embedder"]["embedded"]


async def test_the_server_answers_from_the_new_database(tmp_path, embedding_model_dir):
    """With the real model: what was said before and during the swap is recalled, and the counts are right."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, models=models_dir(), context={"slidingWindow": 2})
        llm.respond = echo_reply
        async with served(home) as server, talking(server.url) as talk:
            for text in [*CONVERSATION, *(f"Something else happened, number {n}, nobody cares." for n in range(4))]:
                await talk.ask(text)
            assert await embedded(server, 14) == 14
            code, out, errors = await run_klaw("reindex", "--home", str(home))
            assert code == 0, out + errors
            assert "vectors: 14 taken over, 0 left" in out
            assert "the new database is in use" in out
            receipt = await talk.ask("Which food must Anna, my sister, not eat?")
            assert receipt.last_seq == 15
            assert 1 in receipt.receipt["recall"]["kept"]
            assert await embedded(server, 16) == 16, "the embedder goes on with the new file"
    drop(server.database)
    check_written(server, [])


@pytest.mark.parametrize("at", ["scan", "messages", "compare", "swap"])
async def test_the_server_is_killed_in_the_middle(tmp_path, at):
    """SIGKILL while it reindexes and is written to; the next start is whole, and a new reindex goes on."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, processing=FEW_TURNS)
        paths = Paths.resolve(home, {})
        async with served(home) as server:
            clients = Writing(server.url)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(clients.run)
                await clients.until(100)
                call(paths, "reindex", action="start")
                with trio.fail_after(HANG_S):
                    while True:
                        status = await trio.to_thread.run_sync(lambda: call(paths, "reindex", action="status"))
                        if status["state"] != "running" or status["progress"]["phase"] == at:
                            break
                        await trio.sleep(0.01)
                await server.kill()
                clients.stop = True
                await server.start()
            code, out, errors = await run_klaw("reindex", "--home", str(home))
            assert code == 0 or "--drop-old" in errors, out + errors
    drop(server.database)
    check_written(server, clients.written)
