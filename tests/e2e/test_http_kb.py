"""Files of knowledge bases over HTTP: kept when that is answered, over kill -9; roles, limits, what breaks off."""

import trio

from tests.e2e.test_http import http, token_for, until_served, world
from tests.support.server import served, write_home
from tests.support.waiting import until

FILES = "/api/v1/kb/{}/files"


def kept(server):
    folder = server.data / "knowledge"
    return {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()}


def uploads(server):
    return list((server.data / "knowledge" / "uploads").glob("*"))


async def test_a_file_is_kept_when_it_is_answered(tmp_path):
    text = "Срок аренды один год. ".encode() * 20_000
    async with served(write_home(tmp_path, kb={"maxFileBytes": 2_000_000})) as server:
        async with http(server) as client:
            base = (await client.post("/api/v1/kb", json={"name": "Договоры"})).json()["base"]["id"]
            for at in ("Договоры", base):
                added = await client.post(FILES.format(at), params={"name": "../аренда.txt"}, content=text)
                assert added.status_code == 201
                source = added.json()["source"]
                # Without tokens it is whoever runs the server that asks.
                assert (source["name"], source["size"], source["added_by"]) == ("аренда.txt", len(text), "")
        await server.kill()
        await server.start()
        async with http(server) as client:
            (found,) = (await client.get(f"/api/v1/kb/{base}/sources")).json()["sources"]
            assert (found["id"], kept(server)) == (source["id"], {source["id"]: text})
            large = await client.post(FILES.format(base), params={"name": "large"}, content=b"x" * 2_000_001)
            assert (large.status_code, large.json()["code"]) == (413, "file_too_large")
            empty = await client.post(FILES.format(base), params={"name": "empty"}, content=b"")
            assert (empty.status_code, empty.json()["code"]) == (400, "empty_file")
            with trio.move_on_after(0.5):

                async def endless():
                    while True:
                        yield b"x" * 100
                        await trio.sleep(0.05)

                await client.post(FILES.format(base), params={"name": "cut"}, content=endless())
            await until(lambda: not uploads(server))
            gone = await client.request("DELETE", f"/api/v1/kb/{base}", params={"dry_run": "false"})
            assert gone.json()["removed"]
            assert kept(server) == {}


async def test_only_editors_may_upload(tmp_path):
    async with world(tmp_path) as server:
        hers, his = (token_for(server, user)[1] for user in ("anna", "boris"))
        async with http(server) as nobody:
            await until_served(nobody, 401)
        async with http(server, hers) as anna, http(server, his) as boris:
            base = (await anna.post("/api/v1/kb", json={"name": "Notes"})).json()["base"]["id"]
            refused = await boris.post(FILES.format(base), params={"name": "a.txt"}, content=b"x")
            assert (refused.status_code, refused.json()["code"]) == (404, "unknown_base")
            await anna.post(f"/api/v1/kb/{base}/share", json={"member": "boris", "role": "viewer"})
            refused = await boris.post(FILES.format(base), params={"name": "a.txt"}, content=b"x")
            assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
            await anna.post(f"/api/v1/kb/{base}/share", json={"member": "boris", "role": "editor"})
            added = await boris.post(FILES.format(base), params={"name": "a.txt"}, content=b"x")
            assert (added.status_code, added.json()["source"]["added_by"]) == (201, "boris")
            assert uploads(server) == []
            await anna.post(f"/api/v1/kb/{base}/share", json={"member": "boris", "role": "none"})
            for method, path in (("DELETE", f"sources/{added.json()['source']['id']}"), ("GET", base)):
                assert (await boris.request(method, f"/api/v1/kb/{path}")).status_code == 404
