"""Files of messages over HTTP: uploaded, named by a message, fetched, over kill -9; nobody else's; what breaks off."""

import base64
import hashlib
from functools import partial
from urllib.parse import urlsplit

import trio

from tests.e2e.test_http import http, token_for, until_served, world
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.waiting import HANG_S, until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 700
SHA = hashlib.sha256(PNG).hexdigest()
FILE = f"/api/v1/files/{SHA}"
SEES = {"echo": {"images": True, "contextTokens": 100_000}}


def left(server):
    return sorted(path.name for path in server.data.glob("**/attachments/*"))


async def test_a_picture_goes_with_a_message_over_kill_9(tmp_path):
    async with serve_llm() as llm:
        config = {"baseUrl": llm.url, "maxRetries": 0, "timeoutSeconds": 20, "models": SEES}
        async with served(write_home(tmp_path, llm=llm.url, providers={"stub": config})) as server:
            async with http(server) as client:
                kept = await client.post("/api/v1/files", params={"name": "../дача\u202e.png"}, content=PNG)
                file = {"sha256": SHA, "name": "дача.png", "type": "image/png", "bytes": len(PNG)}
                assert kept.status_code == 201
                assert kept.json() == {"file": file, "reading": "Models that take pictures will see it."}
            await server.kill()
            await server.start()
            async with http(server) as client:
                named = [{"sha256": SHA, "name": "дача.png"}]
                sent = await client.post("/api/v1/chats/main/messages", json={"files": named})
                assert sent.json()["message"]["files"] == [file]
                history = (await client.get("/api/v1/chats/main/messages")).json()
                assert history["messages"][0]["files"] == [file]
                fetched = await client.get(FILE, params={"name": "дача.png"})
                assert fetched.content == PNG
                assert fetched.headers["content-type"] == "image/png"
                assert fetched.headers["x-content-type-options"] == "nosniff"
                assert fetched.headers["cache-control"] == "no-store"
            (asked,) = [each for each in llm.requests[-1].body["messages"] if each["role"] == "user"]
            assert base64.b64encode(PNG).decode() in asked["content"][1]["image_url"]["url"]
            assert "дача" not in server.stderr


async def test_names_and_types_are_data(tmp_path):
    page = "<script>alert('привет')</script>".encode()
    async with world(tmp_path) as server, http(server) as client:
        for given, name in (
            ('attachment; filename="a\\"b.html"', 'a"b.html'),
            ("attachment; filename*=UTF-8''%D0%B4%D0%BE%D0%BC.html", "дом.html"),
            ('attachment; filename="дом.html"'.encode(), "дом.html"),
            ('attachment; filename="..\\\\..\\\\etc/passwd"', "passwd"),
            ("attachment; filename=..", "file"),
            ("nonsense", "file"),
        ):
            kept = await client.post("/api/v1/files", content=page, headers={"Content-Disposition": given})
            assert kept.json()["file"]["name"] == name, given
        for name in ("a\r\nSet-Cookie: x=y", "страница.html", "a\u202e;filename=x"):
            fetched = await client.get(f"/api/v1/files/{kept.json()['file']['sha256']}", params={"name": name})
            assert fetched.content == page
            assert fetched.headers["content-type"] == "application/octet-stream"
            assert fetched.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
            assert "set-cookie" not in fetched.headers
        wrong = await client.post("/api/v1/files", params={"nam": "x"}, content=page)
        assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_args")
        for path in ("0" * 64, "x", "..%2f..%2fconfig"):
            assert (await client.get(f"/api/v1/files/{path}")).status_code == 404


async def test_limits_are_told_also_to_who_goes_on_sending(tmp_path):
    limits = {"maxFileBytes": 300_000, "maxUserBytes": 400_000}
    gateway = {"http": {"maxBodyBytes": 2048}}
    async with world(tmp_path, attachments=limits, gateway=gateway) as server, http(server) as client:
        for size, code, status in ((300_001, "file_too_large", 413), (5_000_000, "file_too_large", 413)):
            refused = await client.post("/api/v1/files", content=bytes(size))
            assert (refused.status_code, refused.json()["code"]) == (status, code)
        assert (await client.post("/api/v1/files", content=b"")).json()["code"] == "empty_file"
        assert (await client.post("/api/v1/files", content=bytes(300_000))).status_code == 201
        assert (await client.post("/api/v1/files", content=PNG)).json()["code"] == "files_full"
        named = [{"sha256": SHA, "name": "x.png"}]
        missing = await client.post("/api/v1/chats/main/messages", json={"text": "x", "files": named})
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_file")
        many = await client.post("/api/v1/chats/main/messages", json={"text": "x", "files": named * 11})
        assert (many.status_code, many.json()["errors"][0]["field"]) == (400, "files")
        assert len(left(server)) == 1


async def test_a_body_that_breaks_off_leaves_nothing(tmp_path):
    async with world(tmp_path) as server:
        place = urlsplit(server.url)
        stream = await trio.open_tcp_stream(place.hostname, place.port)
        head = f"POST /api/v1/files?name=a HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 900000\r\n\r\n"
        await stream.send_all(head.encode() + bytes(100_000))
        await until(lambda: [name for name in left(server) if name.endswith(".part")])
        await stream.aclose()
        await until(lambda: not left(server))
        async with http(server) as client:
            assert (await client.get("/healthz")).status_code == 200
        assert "request_failed" not in server.stderr


async def test_who_is_refused_and_sends_on_is_answered_and_let_go(tmp_path):
    """A body that nobody reads must not hold the connection."""
    async with world(tmp_path) as server:
        place = urlsplit(server.url)
        for path, status in (("/api/v1/nothing", b"404"), ("/healthz", b"405"), ("/api/v1/facts", b"413")):
            stream = await trio.open_tcp_stream(place.hostname, place.port)
            head = f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 6000000\r\n\r\n"
            got = b""
            with trio.fail_after(HANG_S):
                await stream.send_all(head.encode())
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(stream.send_all, bytes(6_000_000)))
                    while b"\r\n" not in got:
                        got += await stream.receive_some()
            assert status in got.split(b"\r\n")[0]
            await stream.aclose()


async def test_files_of_others_are_not_there(tmp_path):
    async with world(tmp_path, lambda _: text_reply("ok")) as server:
        (_, hers), (_, his) = token_for(server, "anna"), token_for(server, "boris")
        async with http(server, hers) as anna, http(server, his) as boris, http(server) as nobody:
            await until_served(nobody, 401)
            assert (await anna.post("/api/v1/files", content=PNG)).status_code == 201
            theirs, none = await boris.get(FILE), await boris.get(f"/api/v1/files/{'0' * 64}")
            assert (theirs.status_code, theirs.json()) == (404, none.json())
            named = {"text": "x", "files": [{"sha256": SHA, "name": "x"}]}
            assert (await boris.post("/api/v1/chats/main/messages", json=named)).json()["code"] == "unknown_file"
            assert (await nobody.get(FILE)).status_code == 401
            assert (await nobody.post("/api/v1/files", content=PNG)).status_code == 401


async def test_every_route_is_described(tmp_path):
    async with world(tmp_path) as server, http(server) as client:
        told = (await client.get("/api/openapi.json")).json()["paths"]
        assert set(told["/api/v1/chats/{chat}/messages"]) == {"get", "post"}
        (upload,) = told["/api/v1/files"]["post"]["requestBody"]["content"].items()
        assert upload == ("application/octet-stream", {"schema": {"type": "string", "format": "binary"}})
        body = told["/api/v1/chats/{chat}/messages"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(body["properties"]) == {"text", "files", "transcribed", "stream", "wait"}
        assert {"/api/v1/login", "/api/v1/logout", "/api/v1/me", "/api/v1/render"} <= set(told)
        names = [each["operationId"] for methods in told.values() for each in methods.values()]
        assert len(names) == len(set(names))
