"""Uploading and fetching files over real WebSockets: pieces, limits, other users, what breaks off."""

import base64
import hashlib

import attrs
import pytest
import trio

from klaw.config.schema import AttachmentsConfig
from klaw.gateway.tokens import add_token
from tests.support.gateway_world import QUICK, world
from tests.support.waiting import until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 300
SHA = hashlib.sha256(PNG).hexdigest()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def upload(client, data, name="дача.jpg", size=40_000):
    """Returns the last answer."""
    for offset in range(0, len(data) or 1, size):
        piece = data[offset : offset + size]
        last = offset + len(piece) == len(data)
        await client.say("upload", name=name, offset=offset, data=encoded(piece), last=last, ref=f"u{offset}")
        answer = await client.hear()
        if answer["type"] == "error":
            break
        assert answer["bytes"] == offset + len(piece)
    return answer


def left(folder):
    return sorted(path.name for path in folder.glob("**/attachments/*"))


async def test_a_file_comes_back_as_it_was_uploaded(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        answer = await upload(c, PNG, "../../дача\u202e.png")
        assert answer["file"] == {"sha256": SHA, "name": "дача.png", "type": "image/png", "bytes": len(PNG)}
        assert left(tmp_path) == [f"{SHA}.new"]
        got = b""
        while True:
            piece = (await c.call("file_piece", sha256=SHA, offset=len(got)))["result"]
            assert (piece["bytes"], piece["type"]) == (len(PNG), "image/png")
            if not piece["data"]:
                break
            got += base64.b64decode(piece["data"])
        assert got == PNG


async def test_welcome_tells_the_limits(tmp_path):
    async with world(tmp_path) as w, w.client(hello=False) as c:
        limits = (await c.hello())["limits"]
        assert (limits["max_file_bytes"], limits["max_files"]) == (AttachmentsConfig().max_file_bytes, 10)


async def test_a_piece_that_does_not_follow_is_refused_and_the_upload_goes_on(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        await c.say("upload", offset=5, data="", ref="u")
        assert (await c.hear())["code"] == "bad_offset"
        await c.say("upload", name="a", offset=0, data=encoded(b"abc"))
        await c.hear()
        await c.say("upload", offset=4, data=encoded(b"x"))
        assert (await c.hear())["code"] == "bad_offset"
        await c.say("upload", offset=3, data=encoded(b"def"), last=True)
        assert (await c.hear())["file"]["sha256"] == hashlib.sha256(b"abcdef").hexdigest()
        await c.say("upload", offset=6, data=encoded(b"x"))
        assert (await c.hear())["code"] == "bad_offset"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offset": 0, "data": "не base64"}, "data: must be base64"),
        ({"offset": 0, "data": "YQ"}, "data: must be base64"),
        ({"offset": 0, "data": 5}, "data: must be a text"),
        ({"offset": -1, "data": ""}, "offset: must be at least 0"),
        ({"data": ""}, "offset: is required"),
        ({"offset": 0, "data": "", "name": "x" * 1001}, "name: must have 0 to 1000 characters"),
    ],
)
async def test_a_bad_piece_names_the_field(tmp_path, fields, message):
    async with world(tmp_path) as w, w.client() as c:
        await c.say("upload", ref="u1", **fields)
        error = await c.hear()
        assert (error["code"], error["message"], error["ref"]) == ("bad_frame", message, "u1")


@pytest.mark.parametrize("sha256", ["0" * 64, "../" + "0" * 61, "0" * 63, "А" * 64])
async def test_a_file_that_is_not_there(tmp_path, sha256):
    async with world(tmp_path) as w, w.client() as c:
        assert (await c.call("file_piece", sha256=sha256))["code"] in ("unknown_file", "bad_args")


async def test_what_is_over_a_limit_is_refused_and_nothing_of_it_stays(tmp_path):
    files = AttachmentsConfig(max_file_bytes=50_000, max_user_bytes=60_000)
    async with world(tmp_path, files=files) as w, w.client() as c:
        error = await upload(c, bytes(50_001))
        assert (error["code"], error["retryable"], error["ref"]) == ("file_too_large", False, "u40000")
        assert "50,000 bytes" in error["message"]
        assert "attachments.maxFileBytes" in error["message"]
        assert left(tmp_path) == []
        assert (await upload(c, b"a" * 40_000))["file"]["bytes"] == 40_000
        error = await upload(c, b"b" * 30_000)
        assert error["code"] == "files_full"
        assert len(left(tmp_path)) == 1
        assert (await upload(c, b""))["code"] == "empty_file"


async def test_a_broken_connection_leaves_no_draft(tmp_path):
    async with world(tmp_path) as w:
        async with w.client() as c:
            await c.say("upload", name="a", offset=0, data=encoded(b"half"))
            await c.hear()
            assert [name.endswith(".part") for name in left(tmp_path)] == [True]
        await until(lambda: not left(tmp_path))


async def test_a_piece_that_came_too_fast_is_sent_again(tmp_path):
    config = attrs.evolve(QUICK, messages_per_second=50.0, burst=2)
    async with world(tmp_path, config) as w, w.client() as c:
        await c.say("upload", name="a", offset=0, data=encoded(b"abc"))
        await c.hear()
        while True:
            await c.say("upload", offset=3, data=encoded(b"def"), last=True)
            answer = await c.hear()
            if answer["type"] == "uploaded":
                break
            assert answer["code"] == "rate_limited"
            await trio.sleep(answer["retry_after_ms"] / 1000)
        assert answer["file"]["bytes"] == 6


async def test_a_message_with_files_may_have_no_text_and_at_most_ten_files(tmp_path):
    async with world(tmp_path) as w, w.client() as c:
        file = {"sha256": SHA, "name": "дача.png"}
        await c.say("send", id="m1", chat="main", text=" ", files=[file])
        assert (await c.hear())["type"] == "ack"  # the chats of this world look at no files
        await c.say("send", id="m2", chat="main", text=" ", files=[])
        assert (await c.hear())["code"] == "empty_text"
        await c.say("send", id="m3", chat="main", text="hi", files=[file] * 11)
        error = await c.hear()
        assert (error["code"], error["message"]) == ("bad_frame", "files: must have at most 10 entries")
        await c.say("send", id="m4", chat="main", text="hi", files=[{"sha256": "x"}])
        error = await c.hear()
        assert (error["code"], error["id"]) == ("bad_frame", "m4")
        assert "files[0].sha256" in error["message"]


async def test_another_users_file_is_not_found(tmp_path):
    async with world(tmp_path) as w:
        (_, anna), (_, bob) = (add_token(w.tokens, user, "2026-11-22T12:00:00.000Z") for user in ("anna", "bob"))
        async with w.client(token=anna) as a, w.client(token=bob) as b:
            await upload(a, PNG)
            theirs = await b.call("file_piece", sha256=SHA)
            assert theirs == await b.call("file_piece", sha256="0" * 64)
            assert theirs["code"] == "unknown_file"
