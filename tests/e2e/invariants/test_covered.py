"""Invariant ``covered``: what search cannot find is repaired, or counted and shown; on a real server."""

import json
from pathlib import Path
from typing import Any

import apsw

from klaw.store.engine.connect import prepare_writer
from tests.support.llm_server import echo_reply, serve_llm
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking

FACT = "Код калитки в саду tulip47"
TALK = [FACT, "Good morning", "It rains again today", "I had soup for lunch", "Завтра поедем на дачу"]


def spoil(database: Path, *statements: str) -> None:
    """Damage the database of a stopped server."""
    connection = apsw.Connection(str(database))
    prepare_writer(connection)
    for statement in statements:
        connection.execute(statement)
    connection.close()


async def klaw_json(home: Path, *command: str) -> dict[str, Any]:
    """What a command prints with ``--json``, whatever its exit code."""
    _, out, error = await run_klaw(*command, "--home", str(home), "--json")
    assert out, error
    return dict(json.loads(out))


async def test_a_message_that_search_lost_is_found_again(tmp_path):
    """Rows of the fact are taken out of full text; the next start puts them back, and the question recalls it."""
    async with serve_llm() as llm:
        llm.respond = echo_reply
        home = write_home(tmp_path / "home", llm=llm.url, context={"slidingWindow": 2})
        async with served(home) as server:
            async with talking(server.url) as talk:
                for text in TALK:
                    await talk.ask(text)
            await server.terminate()
            spoil(
                server.database,
                "INSERT INTO messages_fts (messages_fts, rowid, content, scope)"
                " SELECT 'delete', rowid, content, scope FROM messages_search WHERE content LIKE '%tulip47%'",
            )
            await server.start()
            status = await server.status_when(lambda status: status["coverage"]["whole"])
            assert status["coverage"]["repaired_texts"] == 2  # the fact, and the echo of it
            assert status["coverage"]["uncovered"] == 0
            assert status["degraded"] == []
            async with talking(server.url, {"main": 0}) as talk:
                receipt = await talk.ask("Какой код у калитки?")
                assert 1 in receipt.receipt["recall"]["kept"]
            assert "tulip47" not in server.stderr


async def test_what_cannot_be_repaired_is_counted_and_shown(tmp_path):
    """With a full-text index that is broken itself the server lives, and says how many messages are lost."""
    async with serve_llm() as llm:
        llm.respond = echo_reply
        home = write_home(tmp_path / "home", llm=llm.url, context={"slidingWindow": 2})
        async with served(home) as server:
            async with talking(server.url) as talk:
                for text in TALK:
                    await talk.ask(text)
            await server.terminate()
            spoil(server.database, "DELETE FROM messages_fts_docsize WHERE id = 1", "DELETE FROM messages_fts_data")
            await server.start()
            status = await server.status_when(lambda status: status["coverage"]["whole"])
            assert status["coverage"]["chats"] == {"local:main": 1}
            assert [each["code"] for each in status["degraded"]] == ["uncovered"]
            assert status["degraded"][0]["text"].startswith("some messages cannot be found by search")
            assert server.events("index_not_repaired")
            assert server.running


async def test_doctor_beside_a_running_server_and_without_one(tmp_path):
    """All is well in both cases; a fault gives exit code 1 and the message's number."""
    async with serve_llm() as llm:
        llm.respond = echo_reply
        home = write_home(tmp_path / "home", llm=llm.url, context={"slidingWindow": 2})
        async with served(home) as server:
            async with talking(server.url) as talk:
                for text in TALK:
                    await talk.ask(text)
                code, out, error = await run_klaw("doctor", "--home", str(home))
                assert (code, error) == (0, ""), out
                assert "All is well." in out
                assert "runs, pid" in out
            await server.kill()
            answer = await klaw_json(home, "doctor", "--full")
            assert (answer["problems"], answer["warnings"]) == (0, 0), answer
            assert answer["chats"]["local:main"]["messages"] == 2 * len(TALK)
            await server.start()
            await server.terminate()
            spoil(server.database, "DELETE FROM messages_fts_docsize WHERE id = 1")
            code, out, _ = await run_klaw("doctor", "--home", str(home))
            assert code == 1
            assert "local:main#1" in out
            assert "tulip47" not in out


async def test_why_tells_where_a_message_is(tmp_path, embedding_model_dir):
    """Of a real server with vectors, and after its end; the words that are named are in no log."""
    async with serve_llm() as llm:
        llm.respond = echo_reply
        home = write_home(
            tmp_path / "home", llm=llm.url, models=embedding_model_dir.parent, context={"slidingWindow": 2}
        )
        async with served(home) as server:
            async with talking(server.url) as talk:
                for text in TALK:
                    await talk.ask(text)
                await talk.ask("Какой код у калитки?")
            await server.status_when(
                lambda status: status["embedder"]["embedded"] and not status["embedder"]["waiting"]
            )
            why = await klaw_json(home, "why", "main#1", "--query", "Какой код у калитки?")
            assert (why["place"], why["query"]["recalled"]) == ("auto_rag", True)
            assert (why["turns"][0]["as"], why["turns"][-1]["as"]) == ("recalled", "question")
            assert "tulip47" in [word["word"] for word in why["rare_words"]]
            _, out, _ = await run_klaw("why", "main#1", "--home", str(home))
            assert "Ask in the chat main" in out
            await server.terminate()
            after = await klaw_json(home, "why", "main#1")
            assert {**after, "query": why["query"]} == why
            code, _, error = await run_klaw("why", "main#99", "--home", str(home))
            assert code == 1
            assert "there is no such message; a message is named by its id, or by chat and number" in error
            assert "tulip47" not in server.stderr
