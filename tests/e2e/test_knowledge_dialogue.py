"""A dialogue over documents with a real server: uploads, REST, the WebSocket, a kill in between, another user, the
routes of the RAG dialogue, and the documents' files."""

import httpx2

from tests.e2e.test_http import http, token_for, until_served, world
from tests.support.documents import pdf
from tests.support.llm_server import error_reply, text_reply
from tests.support.talking import talking
from tests.support.waiting import until

LEASE = """# Договор аренды

## Сроки

Срок аренды квартиры составляет одиннадцать месяцев с даты подписания договора.

## Залог

Залог за квартиру равен двум месячным платежам и возвращается через десять дней.
"""
HARBOUR = ["The mooring fee is 120 euros a month.", "The harbour office opens at seven in the morning."]
ANSWER = "«Срок аренды квартиры составляет одиннадцать месяцев» [1]. А ещё [9]."
CHECKED = "«Срок аренды квартиры составляет одиннадцать месяцев» [1]. А ещё."


async def read(client: httpx2.AsyncClient, base: str, count: int) -> dict[str, dict]:
    """The base's documents, when all are read."""

    async def look() -> dict[str, dict] | None:
        found = (await client.get(f"/api/v1/kb/{base}/documents")).json()["documents"]
        done = {each["name"]: each for each in found if each["state"] == "read"}
        return done if len(done) == count else None

    return await until(look)


async def made(client: httpx2.AsyncClient) -> tuple[str, dict[str, dict]]:
    created = await client.post("/api/v1/kb", json={"name": "Дом"})
    assert created.status_code == 200, created.text
    base = created.json()["base"]["id"]
    for name, data in (("договор.md", LEASE.encode()), ("harbour.pdf", pdf([[page] for page in HARBOUR]))):
        added = await client.post(f"/api/v1/kb/{base}/files", params={"name": name}, content=data)
        assert added.status_code == 201, added.text
    return base, await read(client, base, 2)


async def test_a_dialogue_over_documents_through_every_door(tmp_path):
    async with world(tmp_path, lambda _: text_reply(ANSWER)) as server, http(server) as client:
        _, documents = await made(client)
        bound = await client.post("/api/v1/kb/use", json={"bases": ["Дом"], "chat": "main"})
        assert bound.status_code == 200, bound.text
        # The WebSocket.
        async with talking(server.url, {"main": 0}) as talk:
            receipt = await talk.ask("Какой срок аренды квартиры?")
            answer = await talk.until(lambda: next((each for each in talk.entries if each.is_answer), None))
            assert answer.content == CHECKED
            used = answer.context_used
            assert used is not None
            first = used.passages[0]
            assert (first.number, first.name, first.cited, first.text) == (1, "договор.md", True, "")
            assert first.heading.startswith("Договор аренды")
            assert receipt.receipt["context_used"]["removed"] == 1
            assert "одиннадцать" in receipt.receipt["context_used"]["passages"][0]["text"]
        # A mark opens its passage.
        place = {"start": first.start, "end": first.end, "around": 0}
        opened = (await client.get(f"/api/v1/kb/documents/{first.document}", params=place)).json()
        assert "одиннадцать месяцев" in opened["passages"][0]["text"]
        # History, also after a kill.
        for _ in range(2):
            said = (await client.get("/api/v1/chats/main/messages")).json()["messages"]
            (told,) = [each for each in said if each["role"] == "assistant"]
            assert told["content"] == CHECKED
            assert told["context_used"]["passages"][0]["document"] == documents["договор.md"]["id"]
            await server.kill()
            await server.start()


async def test_the_routes_of_the_rag_dialogue(tmp_path):
    async with world(tmp_path, lambda _: text_reply(ANSWER)) as server:
        (_, anna), (_, boris) = token_for(server, "anna"), token_for(server, "boris")
        async with http(server, anna) as client, http(server, boris) as other, http(server) as nobody:
            await until_served(nobody, 401)
            base, documents = await made(client)
            for which in ("Дом", base):
                answer = await client.post(f"/rags/{which}/chat", json={"question": "Какой срок аренды квартиры?"})
                told = answer.json()
                assert answer.status_code == 200, told
                assert told["answer"] == CHECKED
                assert "одиннадцать" in told["context_used"]["passages"][0]["text"]
                assert [(each["number"], each["name"]) for each in told["sources"]] == [(1, "договор.md")]
            said = (await client.get(f"/rags/{base}/chat/messages", params={"limit": 3})).json()["messages"]
            assert [each["role"] for each in said] == ["assistant", "user", "assistant"]
            assert said[-1]["id"] == told["message_id"]
            assert said[-1]["context_used"] == told["context_used"]
            before = (await client.get(f"/rags/{base}/chat/messages", params={"before": said[0]["seq"]})).json()
            assert [each["content"] for each in before["messages"]] == ["Какой срок аренды квартиры?"]
            # What looks like a command is a question, too.
            for question in ("/new", "/kb use none", "/forget yes"):
                answer = await client.post(f"/rags/{base}/chat", json={"question": question})
                assert (answer.status_code, answer.json()["answer"][:5]) == (200, "«Срок"), answer.text
            said = (await client.get(f"/rags/{base}/chat/messages", params={"limit": 10})).json()["messages"]
            assert [each["content"] for each in said if each["role"] == "user"][-1] == "/forget yes"
            # Errors as everywhere.
            wrong = await client.post(f"/rags/{base}/chat", json={"query": "x"})
            assert (wrong.status_code, wrong.headers["content-type"]) == (400, "application/problem+json")
            blank = await client.post(f"/rags/{base}/chat", json={"question": " "})
            assert (blank.status_code, blank.json()["code"]) == (400, "empty_text")
            for path in (f"/rags/{base}/chat", "/rags/nothing/chat"):
                refused = await other.post(path, json={"question": "Какой срок?"})
                assert (refused.status_code, refused.json()["code"]) == (404, "unknown_base")
            assert (await other.get(f"/rags/{base}/chat/messages")).status_code == 404
            assert (await nobody.post(f"/rags/{base}/chat", json={"question": "x"})).status_code == 401
            described = (await client.get("/api/openapi.json")).json()["paths"]
            assert {"/rags/{id}/chat", "/rags/{id}/chat/messages", "/api/v1/kb/documents/{document}/file"} <= set(
                described
            )
            # The files: what a browser shows, and what it only saves.
            shown = await client.get(f"/api/v1/kb/documents/{documents['harbour.pdf']['id']}/file")
            assert shown.content.startswith(b"%PDF-")
            assert shown.headers["content-type"] == "application/pdf"
            assert shown.headers["content-disposition"].startswith("inline;")
            assert shown.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" not in shown.headers["content-security-policy"]  # Chromium shows no PDF in a sandbox
            saved = await client.get(f"/api/v1/kb/documents/{documents['договор.md']['id']}/file")
            assert saved.content.decode() == LEASE
            assert saved.headers["content-disposition"].startswith("attachment;")
            assert saved.headers["content-security-policy"].startswith("sandbox;")
            gone = await other.get(f"/api/v1/kb/documents/{documents['договор.md']['id']}/file")
            assert (gone.status_code, gone.json()["code"]) == (404, "unknown_document")


async def test_a_model_that_fails_is_a_problem_and_the_question_is_kept(tmp_path):
    async with world(tmp_path, lambda _: error_reply(500)) as server, http(server) as client:
        base, _ = await made(client)
        failed = await client.post(f"/rags/{base}/chat", json={"question": "Какой срок аренды?"})
        assert failed.status_code == 424
        assert failed.headers["content-type"] == "application/problem+json"
        said = (await client.get(f"/rags/{base}/chat/messages")).json()["messages"]
        assert [each["content"] for each in said] == ["Какой срок аренды?"]
