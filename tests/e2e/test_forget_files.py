"""A message with a file is forgotten over HTTP: the file is gone from the disk and every door, also after a kill."""

from tests.e2e.test_http import http, world
from tests.support.forgetting import holding
from tests.support.llm_server import text_reply

SECRET = "Kanarienvogel8842"
DOCUMENT = f"Пароль от дачи: {SECRET}. The end.".encode()


async def test_the_file_is_gone_from_everywhere(tmp_path):
    async with world(tmp_path, lambda _: text_reply("ok")) as server:

        async def exported(client):
            texts = [
                (await client.get("/api/v1/chats/main/export", params={"format": form})).text
                for form in ("markdown", "json")
            ]
            return "".join([*texts, (await client.get("/api/v1/chats/main/messages")).text])

        async with http(server) as client:
            kept = (await client.post("/api/v1/files", params={"name": f"{SECRET}.txt"}, content=DOCUMENT)).json()
            file = f"/api/v1/files/{kept['file']['sha256']}"
            named = [{"sha256": kept["file"]["sha256"], "name": kept["file"]["name"]}]
            for text, files in (("Прочти это", named), ("And this is left", [])):
                sent = await client.post("/api/v1/chats/main/messages", json={"text": text, "files": files})
                assert sent.status_code == 200
            assert SECRET in await exported(client)
            would = (await client.post("/api/v1/forget", json={"what": "main#1"})).json()
            assert (would["forgotten"], (await client.get(file)).content) == (False, DOCUMENT)
            done = (await client.post("/api/v1/forget", json={"what": "main#1", "dry_run": False})).json()
            assert (done["forgotten"], done["still_held"]) == (True, [])
        for killed in (False, True):
            if killed:
                await server.kill()
                await server.start()
            async with http(server) as client:
                assert (await client.get(file)).status_code == 404
                told = await exported(client)
                assert "And this is left" in told
                assert kept["file"]["sha256"] not in told
                assert SECRET not in told
                missing = await client.post("/api/v1/chats/main/messages", json={"files": named})
                assert missing.json()["code"] == "unknown_file"
            assert holding(server.home, SECRET) == {}
