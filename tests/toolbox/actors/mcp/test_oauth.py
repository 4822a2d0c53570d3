"""Logins to an MCP server that is its own authorization server, made with the parts of the SDK."""

import http.server
import json
import os
import threading
from contextlib import contextmanager

import httpx2
import pytest
import trio

from klaw.toolbox.mcp.host import LoginFile
from klaw.toolbox.mcp.server import McpState
from tests.support.programs.mcp_client import SERVER, Person, problem, running, yes_sayer
from tests.support.waiting import until
from tests.toolbox.actors.mcp.test_http import Process

REDIRECT = "http://127.0.0.1:1/oauth/callback"


class Guarded(Process):
    async def start(self):
        command = [SERVER["command"], "-m", "tests.support.programs.mcp_features", "--http", str(self.port)]
        environ = {**os.environ, "PYTHONPATH": SERVER["cwd"]}
        self.process = await trio.lowlevel.open_process(command, env=environ, cwd=SERVER["cwd"])

    async def control(self, word):
        async with httpx2.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{self.port}/control/{word}")).text


@pytest.fixture
async def guarded():
    server = Guarded()
    await server.start()
    try:
        await until_listening(server.port)
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.kill()


async def until_listening(port):
    while True:
        try:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
        except OSError:
            await trio.sleep(0.05)
        else:
            return


async def browse(server, change=lambda address: address):
    """Log in as a person does. Returns why it failed."""
    login = server.log_in(REDIRECT, device=False)
    await login.wait()
    if not login.over:
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(login.address)
        assert login.answer(change(answer.headers["location"]))
        await login.wait()
    return login.problem


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves its stream of events
async def test_a_login_is_kept_renewed_and_over(guarded, tmp_path):
    file = LoginFile(tmp_path, "far")
    async with running({"far": guarded.config}, ready=False, host=yes_sayer(tmp_path, Person())) as here:
        far = await here.until("far", McpState.WAITING)
        wants = "the MCP server far is not connected: it wants a login; log in: klaw mcp login far"
        assert problem(far) == wants
        assert "klaw mcp login far" in (await far.call("work", {})).text
        assert not far.takes_login(f"{REDIRECT}?code=x&state=y")
        assert await browse(far) == ""
        await here.until("far", McpState.READY)
        assert (await here.call("far__work")).text == "worked"
        assert oct((tmp_path / "mcp/far.tokens.json").stat().st_mode)[-3:] == "600"
        first = file.read()
        assert first["tokens"]["refresh_token"].startswith("renewal-")
        await trio.sleep(1.1)  # its tokens last a second
        assert (await here.call("far__work")).text == "worked"
        assert int(await guarded.control("nothing")) >= 1
        assert file.read()["tokens"] != first["tokens"]

    async with running({"far": guarded.config}, host=yes_sayer(tmp_path, Person())) as here:  # after a restart
        far = here.servers["far"]
        await guarded.control("refuse")
        await trio.sleep(1.1)
        await here.call("far__work")
        await until(lambda: "klaw mcp login far" in (far.report().reason or ""))
        assert "tokens" not in file.read() or not file.read()["tokens"]
        await guarded.control("nothing")
        assert await browse(far) == ""
        await here.until("far", McpState.READY)
        assert file.remove()
        far.reconnect()
        await until(lambda: problem(far) == wants)


async def test_wrong_answers_are_refused(guarded, tmp_path):
    async with running({"far": guarded.config}, ready=False, host=yes_sayer(tmp_path, Person())) as here:
        far = await here.until("far", McpState.WAITING)
        wrong = await browse(
            far, lambda address: address.replace(f"iss=http%3A%2F%2F127.0.0.1%3A{guarded.port}", "iss=x")
        )
        assert "iss mismatch" in wrong
        await until(
            lambda: far.report().reason == "the login failed: the answer came from another authorization server"
        )
        assert await browse(far, lambda address: address.replace("code=", "error=access_denied&c=")) != ""
        await until(lambda: far.report().reason == "the login failed: it was refused (access_denied)")
        await guarded.control("misdirect")  # its tokens are for another server
        assert await browse(far) == "it refuses the token of its authorization server"
        assert not file_tokens(tmp_path)


def file_tokens(folder):
    return LoginFile(folder, "far").read().get("tokens")


@contextmanager
def site(respond):
    """A web site in a thread of its own. ``respond`` makes status and JSON of a path and an authorization."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, found = respond(base, self.path, self.headers.get("authorization"))
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        base = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield base
        finally:
            server.shutdown()
            thread.join()


ELSEWHERE = "it names a server for logins that Klaw does not ask"


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"resource": "https://other.example/mcp"}, "the login failed: its metadata is about another address"),
        ({"authorization_servers": ["http://169.254.169.254"]}, ELSEWHERE),
        ({"authorization_servers": ["https://192.168.7.7"]}, ELSEWHERE),
        ({"authorization_servers": ["http://1.1.1.1"]}, ELSEWHERE),
    ],
)
async def test_a_login_leads_to_no_other_place(named, reason, tmp_path):
    def respond(base, path, _authorization):
        if "protected-resource" in path:
            return 200, {"resource": f"{base}/mcp", "authorization_servers": [base], **named}
        return (401 if path == "/mcp" else 404), {}

    with site(respond) as base:
        async with running({"far": {"url": f"{base}/mcp"}}, ready=False, host=yes_sayer(tmp_path)) as here:
            far = await here.until("far", McpState.WAITING)
            await browse(far)
            await until(lambda: (far.report().reason or "").startswith(reason))


async def test_a_code_on_another_device(tmp_path):
    polls = []

    def respond(base, path, authorization):
        match path:
            case "/.well-known/oauth-protected-resource/mcp":
                return 200, {"resource": f"{base}/mcp", "authorization_servers": [base]}
            case "/.well-known/oauth-authorization-server":
                named = ("authorization", "token", "registration", "device_authorization")
                return 200, {"issuer": base, **{f"{each}_endpoint": f"{base}/{each}" for each in named}}
            case "/registration":
                return 201, {"client_id": "c"}
            case "/device_authorization":
                return 200, {"device_code": "d", "user_code": "ABCD", "verification_uri": f"{base}/go", "interval": 0}
            case "/token":
                polls.append(path)
                pending = len(polls) == 1
                return (400, {"error": "authorization_pending"}) if pending else (200, {"access_token": "t"})
        return (503 if authorization == "Bearer t" else 401), {}

    with site(respond) as base:
        async with running({"far": {"url": f"{base}/mcp"}}, ready=False, host=yes_sayer(tmp_path)) as here:
            far = await here.until("far", McpState.WAITING)
            login = far.log_in(REDIRECT, device=True)
            await login.wait()
            assert (login.address, login.code) == (f"{base}/go", "ABCD")
            await until(lambda: login.over)
            assert (login.problem, file_tokens(tmp_path)["access_token"], len(polls)) == ("", "t", 2)


def test_a_login_is_read_again_or_refused(tmp_path, monkeypatch):
    """Where systemd-creds works, the file is encrypted; it is read by its owner alone in any case."""
    file = LoginFile(tmp_path, "a")
    file.write({"tokens": 1})
    assert file.read() == {"tokens": 1}
    monkeypatch.setenv("PATH", "/nowhere")
    plain = LoginFile(tmp_path, "b")
    plain.write({"tokens": 2})
    assert (tmp_path / "mcp/b.tokens.json").read_bytes() == b'{"tokens": 2}'
    assert plain.read() == {"tokens": 2}
