"""Invariant private-logs: nothing that people, prompt files or providers wrote stands in the server's output."""

import json

import pytest
import trio

from klaw.errors import RequestRefused, ServerRefused
from tests.support.llm_server import Cut, Raw, Reply, Text, error_reply, serve_llm, text_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import bare_socket, talking
from tests.support.waiting import HANG_S

ENGLISH = "zucchini-canary-5150"
RUSSIAN = "канарейка-Жёлудь-7731"
BOTH = f"{ENGLISH} and {RUSSIAN}"

# Short codes such as "insufficient_quota" are the one thing of an error body that users are told; these are none.
FAILURES = (
    error_reply(500, code=BOTH, message=BOTH),
    error_reply(401, code=BOTH, message=BOTH),
    error_reply(400, code="context_length_exceeded", message=f"maximum context length is exceeded: {BOTH}"),
    Reply(status=200, body=f"<html>{BOTH}</html>".encode(), content_type="text/html"),
    Reply(status=302, headers=(("location", f"http://127.0.0.1:9/{ENGLISH}"),), body=BOTH.encode()),
    Reply(steps=(Raw(f"data: {{{BOTH}\n\n".encode()),)),
    Reply(steps=(Raw(f'data: {{"error": {{"message": "{BOTH}", "code": "{BOTH}"}}}}\n\n'.encode()),)),
    Reply(steps=(Text(BOTH), Cut())),
)


async def _bad_frames(url):
    """Everything that a broken or hostile client may send, with canaries in it."""
    hello = json.dumps({"type": "hello", "version": 2})
    frames = (
        BOTH,
        f"{{{BOTH}",
        json.dumps([BOTH]),
        json.dumps({"type": BOTH}),
        json.dumps({BOTH: BOTH}),
        json.dumps({"type": "send", "id": BOTH, "chat": "main", "text": BOTH}),
        json.dumps({"type": "send", "id": "x", "chat": f"../{BOTH}", "text": BOTH}),
        json.dumps({"type": "send", "id": "x", "chat": [BOTH], "text": {BOTH: BOTH}}),
        json.dumps({"type": "send", "id": "x", "chat": "main", "text": f"{BOTH} \ud800 \x00"}),
        json.dumps({"type": "call", "operation": "receipt", "args": {"turn": BOTH, BOTH: BOTH}, "ref": BOTH}),
        json.dumps({"type": "call", "operation": "chats_messages", "args": {"chat": BOTH}, "ref": ENGLISH}),
        BOTH.encode(),
        BOTH * 3_000,
    )
    for frame in frames:
        async with bare_socket(url) as socket:
            await socket.send_message(hello)
            await socket.send_message(frame)
            await socket.send_message(json.dumps({"type": "call", "operation": "health", "ref": "last"}))
            while json.loads(await socket.get_message()).get("ref") != "last":
                pass
    async with bare_socket(url, [("X-Note", ENGLISH.encode())]) as socket:
        await socket.send_message(BOTH)  # instead of hello
        while True:
            await socket.get_message()


async def test_private_logs_hold_no_content(tmp_path):
    """Through normal and failing paths, at debug level, no line of the server's stdout and stderr has a canary."""
    async with serve_llm() as llm:
        provider = {
            "baseUrl": llm.url,
            "maxRetries": 1,
            "apiKey": f"sk-{ENGLISH}",
            "headers": {"X-Team": ENGLISH},
            "extraBody": {"note": BOTH},
        }
        home = write_home(
            tmp_path,
            routing={"default": "stub/model"},
            providers={"stub": provider},
            logging={"level": "debug"},
            context={"slidingWindow": 4},
        )
        (home / "workspace").mkdir()
        (home / "workspace" / "SOUL.md").write_text(f"You keep secrets: {BOTH}")
        (home / "workspace" / "USER.md").write_bytes(f"broken {BOTH} ".encode() + b"\xff\xfe")
        (home / "data").mkdir(mode=0o700)
        (home / "data" / "core_memory.json").write_text(f'{{"{BOTH}": ')
        async with served(home) as server:
            llm.respond = lambda _request: text_reply(f"Of course: {ENGLISH}", f" и {RUSSIAN}")
            async with talking(server.url) as talk:
                for number in range(4):  # beyond the window, so that recall runs too
                    await talk.ask(f"Remember {BOTH} number {number}, please, запомни это")
                assert RUSSIAN in str(talk.entries)
                assert ENGLISH in str(llm.requests[0].messages), "the prompt files were read"
                assert ENGLISH in llm.requests[0].headers["authorization"]
                for command in ("/context", "/status", f"/{ENGLISH.partition('-')[0]}", "/help"):
                    await talk.send(command)
                for failure in FAILURES:
                    failures = len(talk.errors)
                    llm.respond = lambda _request, failure=failure: failure
                    seq = await talk.send(f"And {BOTH}?")
                    await talk.until(lambda n=failures, seq=seq: len(talk.errors) > n or _answered(talk, seq))
                assert len(talk.errors) >= 5
                assert ENGLISH not in str(talk.errors), "nor do clients see what providers write in errors"
                await _refused_id(talk)
            with trio.fail_after(HANG_S):
                await _bad_frames(server.url)

            await server.kill()
            for log in [*server.data.glob("conversations/*/*.jsonl"), *server.data.glob("turns/*.jsonl")]:
                with log.open("ab") as file:
                    file.write(f'{{"rowid": "{BOTH}"}}\n{{"content": "{BOTH}'.encode())
            with (server.data / "commit.log").open("ab") as file:
                file.write(f"../{BOTH}\t{BOTH}\n{BOTH}\nconversations/x/{BOTH}".encode())
            await server.start()
            assert server.events("malformed_line"), "the damage was met"
            llm.respond = lambda _request: text_reply(BOTH)
            async with talking(server.url) as talk:
                await talk.ask(f"Still there, {BOTH}?")

            code, token, _ = await run_klaw("token", "add", "anna", "--home", str(home))
            assert code == 0
            secret = token.split()[-1] if token.split()[-1].startswith("klaw_") else token.split()[0]
            await server.terminate()
            await server.start()
            for wrong in (ENGLISH, f"klaw_{ENGLISH}"):
                with pytest.raises(ServerRefused):
                    async with talking(server.url, token=wrong):
                        pass
            async with talking(server.url, token=secret) as talk:
                await talk.ask(f"I am Anna, {BOTH}")
            await server.terminate()
            output = server.stdout.decode() + server.stderr
    assert len(output.splitlines()) > 50
    for name in ("turn_failed", "client_connected", "client_disconnected"):
        assert name in output, "the failing paths were taken and logged"
    for canary in (ENGLISH, RUSSIAN, json.dumps(RUSSIAN)[1:-1], secret):
        lines = [line for line in output.splitlines() if canary in line]
        assert lines == []


def _answered(talk, seq):
    return any(entry.is_answer and entry.seq > seq for entry in talk.entries)


async def _refused_id(talk):
    """The same id in another chat."""
    await talk.send(f"{BOTH} once more", "main", "used-id")
    with pytest.raises(RequestRefused) as refused:
        await talk.send(BOTH, "elsewhere", "used-id")
    assert refused.value.code == "id_conflict"
    assert ENGLISH not in str(refused.value)
