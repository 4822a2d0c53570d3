"""Documents that are dropped into a chat are read: short ones whole, of long ones the passages that fit each question.
Forgetting, variants, other chats and other users see nothing of them that they should not."""

import json

import pytest

from tests.e2e.test_http import http, token_for, world
from tests.support.documents import pdf
from tests.support.forgetting import holding
from tests.support.llm_server import text_reply
from tests.support.waiting import until

SHORT = pdf([["The boiler was serviced on 3 March by Wartmann GmbH."], ["Next service: March 2027."]])
FILLER = ["Общие положения, которые никому не нужны, и прочие сведения о порядке хранения бумаг в архиве."] * 12
SECRET = "Kanarienvogel8842"


def long_pdf(secret=SECRET):
    pages = [[f"Раздел {number}.", *FILLER] for number in range(1, 31)]
    pages[16] = ["Раздел 17. Гарантия.", f"Гарантия на насос действует 14 месяцев, код гарантии {secret}."]
    return pdf(pages)


def asked(llm_request):
    return [each["content"] for each in llm_request["messages"] if each["role"] == "user"][-1]


@pytest.fixture
async def requests():
    return []


@pytest.fixture
async def server(tmp_path, requests):
    def respond(request):
        requests.append(request.body)
        return text_reply("Понял [1].")

    async with world(tmp_path, respond) as running:
        yield running


async def drop(client, name, data):
    answer = (await client.post("/api/v1/files", params={"name": name}, content=data)).json()
    return answer["reading"], {"sha256": answer["file"]["sha256"], "name": answer["file"]["name"]}


async def say(client, chat, text, *files):
    sent = await client.post(f"/api/v1/chats/{chat}/messages", json={"text": text, "files": list(files)})
    assert sent.status_code == 200, sent.text
    return sent.json()


async def shown(client, chat):
    return (await client.get(f"/api/v1/chats/{chat}/messages")).json()["messages"]


async def test_a_short_document_stands_in_the_prompt_as_a_whole(server, requests):
    async with http(server) as client:
        reading, file = await drop(client, "boiler.pdf", SHORT)
        assert reading == "2 pages, 14 words"
        await say(client, "main", "Who serviced it?", file)
        assert asked(requests[-1]) == (
            "Who serviced it?\n[file boiler.pdf, 2 pages, 14 words: its text]\n"
            "> The boiler was serviced on 3 March by Wartmann GmbH.\n>\n> Next service: March 2027."
        )
        assert (await shown(client, "main"))[0]["files"][0]["reading"] == reading


async def test_passages_of_a_long_document_answer_later_questions_too(server, requests):
    async with http(server) as client:
        reading, file = await drop(client, "договор.pdf", long_pdf())
        assert reading.startswith("30 pages, ")
        for question in ("Сколько действует гарантия на насос?", "Спасибо!", "Какой код гарантии на насос?"):
            await say(client, "дом", question, *([file] if requests == [] else []))
        first, small_talk, later = map(asked, requests)
        assert "it begins so]\n> Раздел 1." in first
        for each in (first, later):
            assert "[1] договор.pdf, page 17" in each
            assert SECRET in each
        assert SECRET not in small_talk
        answers = [each for each in await shown(client, "дом") if each["role"] == "assistant"]
        (cited,) = answers[2]["context_used"]["passages"]
        assert (cited["name"], cited["first_page"], cited["cited"]) == ("договор.pdf", 17, True)
        place = {"start": cited["start"], "end": cited["end"], "around": 0}
        opened = (await client.get(f"/api/v1/kb/documents/{cited['document']}", params=place)).json()
        assert SECRET in json.dumps(opened)
        original = await client.get(f"/api/v1/kb/documents/{cited['document']}/file")
        assert (original.headers["content-type"], original.content) == ("application/pdf", long_pdf())
        assert (await client.get("/api/v1/kb")).json()["bases"] == []


async def test_nothing_of_it_is_in_another_chat_or_another_users(server, requests):
    tokens = [token_for(server, user)[1] for user in ("anna", "bob")]
    async with http(server, tokens[0]) as client, http(server, tokens[1]) as bob:
        _, file = await drop(client, "договор.pdf", long_pdf())
        await say(client, "дом", "Вот договор.", file)
        for who, chat in ((client, "другой"), (bob, "дом")):
            await say(who, chat, "Какой код гарантии на насос?")
            assert SECRET not in json.dumps(requests[-1])
        refused = await bob.post("/api/v1/chats/дом/messages", json={"text": "?", "files": [file]})
        assert refused.json()["code"] == "unknown_file"


async def test_search_finds_what_stands_in_files_of_all_chats_but_temporary_ones(server):
    async with http(server) as client:
        for chat, secret in (("дом", SECRET), ("тайна", "Zauberwort77")):
            if chat == "тайна":
                assert (await client.post(f"/api/v1/chats/{chat}/temporary")).status_code == 200
            _, file = await drop(client, f"{chat}.pdf", long_pdf(secret))
            await say(client, chat, "Вот договор.", file)
        found = (await client.get("/api/v1/search", params={"query": "гарантия на насос"})).json()
        documents = [each for each in found["results"] if each["kind"] == "document"]
        assert [(each["name"], each["page"]) for each in documents] == [("дом.pdf", 17)]


async def test_what_cannot_be_read_says_why_and_the_model_hears_it(server, requests):
    async with http(server) as client:
        reading, file = await drop(client, "снимок.bin", bytes(range(256)) * 50)
        assert reading.startswith("Not read: it has an unknown format")
        await say(client, "main", "Что это?", file)
        assert asked(requests[-1]) == f"Что это?\n[file снимок.bin: {reading}]"


async def test_a_message_is_forgotten_with_what_was_read_of_its_file(server):
    async with http(server) as client:
        _, file = await drop(client, f"{SECRET}.pdf", long_pdf())
        await say(client, "дом", "Вот договор.", file)
        await say(client, "дом", "Какой код гарантии на насос?")
        assert holding(server.home, SECRET)
        done = (await client.post("/api/v1/forget", json={"what": "дом#1", "dry_run": False})).json()
        assert (done["forgotten"], done["still_held"]) == (True, [])
        await say(client, "дом", "Какой код гарантии на насос?")
        found = (await client.get("/api/v1/search", params={"query": "гарантия на насос"})).json()
        assert SECRET not in json.dumps(found)
    for killed in (False, True):
        if killed:
            await server.kill()
            await server.start()
        assert holding(server.home, SECRET, "Гарантия на насос действует") == {}


async def test_files_of_messages_from_before_are_read_after_the_start(server, requests):
    async with http(server) as client:
        _, file = await drop(client, "договор.pdf", long_pdf())
        await say(client, "дом", "Вот договор.", file)
    await server.kill()
    (server.data / "klaw.db").unlink()  # made again of the logs
    await server.start()
    async with http(server) as client:
        await say(client, "дом", "Продолжим.", file)
        await say(client, "дом", "Какой код гарантии на насос?")
        assert SECRET in asked(requests[-1])


async def test_a_file_of_a_replaced_message_is_not_searched(server, requests):
    async with http(server) as client:
        _, file = await drop(client, "договор.pdf", long_pdf())
        await say(client, "дом", "Вот договор.", file)
        edited = await client.post("/api/v1/chats/дом/edit", json={"seq": 1, "text": "Без договора.", "files": []})
        assert edited.status_code == 200, edited.text
        await until(lambda: len(requests) == 2)
        await say(client, "дом", "Какой код гарантии на насос?")
        assert SECRET not in json.dumps(requests[-1])


async def test_short_documents_that_have_no_room_together_are_searched(server, requests):
    async with http(server) as client:
        names = [f"Rechnung {number}.pdf" for number in range(10)]
        text = "An invoice for works on the roof of the north barn, to be paid within two weeks. "
        totals = [[f"The total of invoice {number} is {4100 + number} euros."] for number in range(10)]
        made = [pdf([[text] * 40, total]) for total in totals]
        await say(client, "main", "Hi", *[(await drop(client, *each))[1] for each in zip(names, made, strict=True)])
        await say(client, "main", "What is the total of invoice 0?")
        assert "4100" in json.dumps(requests[-1])
