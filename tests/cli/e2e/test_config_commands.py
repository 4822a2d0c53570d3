"""``klaw config set``, ``unset`` and ``reload``, with a server and without one, and SIGHUP."""

import json
import signal
import socket

import yaml

from tests.support.llm_server import serve_llm, text_reply
from tests.support.repository import REPOSITORY
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking
from tests.support.waiting import until


async def config(home, *words):
    return await run_klaw("config", *words, "--home", str(home))


async def test_without_a_server_the_file_is_changed_after_a_check(tmp_path):
    file = tmp_path / "config" / "engine.yaml"
    code, out, _ = await config(tmp_path, "set", "autoRag.topK", "5")
    assert (code, yaml.safe_load(file.read_text())) == (0, {"autoRag": {"topK": 5}})
    assert "no server is running" in out
    file.write_text("# mine\n" + file.read_text())
    assert (await config(tmp_path, "set", "routing.fallback", "local/smollm2-135m-instruct"))[0] == 0
    text = file.read_text()
    for words, told in (
        (("set", "autoRag.topK", "0"), "autoRag.topK: must be >= 1, got 0"),
        (("set", "autoRag.topX", "5"), "autoRag.topX: unknown key"),
        (("set", "autoRag.topK", "5", "6"), "takes one value"),
    ):
        code, _, err = await config(tmp_path, *words)
        assert (code, file.read_text()) == (1, text)
        assert told in err
    code, _, err = await config(tmp_path, "reload")
    assert code == 1
    assert "no server is running" in err
    assert (await config(tmp_path, "unset", "autoRag.topK", "routing"))[0] == 0
    assert file.read_text() == "# mine\n"


async def test_a_running_server_takes_changes_up(tmp_path):
    async with serve_llm() as llm, serve_llm() as other, served(write_home(tmp_path, llm=llm.url)) as server:
        other.respond = lambda _: text_reply("other")
        code, out, _ = await config(server.home, "set", "providers.other.baseUrl", other.url)
        assert (code, out.strip()) == (0, "providers.other: changed")
        code, out, _ = await config(server.home, "set", "routing.default", "other/big")
        assert code == 0
        async with talking(server.url) as talk:
            assert await talk.answer_to(await talk.ask("Who are you?")) == "other"
        code, out, _ = await config(server.home, "set", "store.readers", "3")
        assert (code, out.strip()) == (0, "store.readers: needs a restart")
        status = await server.status_when(lambda status: status["config"]["restart"])
        assert status["config"] == {"wrong": None, "restart": ["store.readers"]}
        await until(lambda: server.events("settings_taken_up"))


async def test_a_signal_reads_the_file_again_and_a_wrong_one_is_told_everywhere(tmp_path):
    async with served(write_home(tmp_path)) as server:
        file = server.home / "config" / "engine.yaml"
        right = json.loads(file.read_text())

        def hang_up(**sections):
            file.write_text(json.dumps({**right, **sections}))
            server.process.send_signal(signal.SIGHUP)

        hang_up(logging={"format": "json", "level": "loud"})
        status = await server.status_when(lambda status: status["config"]["wrong"])
        assert "logging.level: must be one of" in status["config"]["wrong"]
        assert [each["code"] for each in status["degraded"]] == ["config_wrong"]
        (event,) = server.events("configuration_wrong")
        assert "logging.level" in event["reason"]
        code, _, err = await config(server.home, "reload")
        assert code == 1
        assert "logging.level: must be one of" in err
        code, out, _ = await run_klaw("status", "--home", str(server.home))
        assert code == 3
        assert "logging.level" in out
        hang_up(logging={"format": "json", "level": "debug"})
        status = await server.status_when(lambda status: status["log_level"] == "debug")
        assert (status["config"]["wrong"], status["degraded"]) == (None, [])


async def test_what_systemd_runs_at_a_reload(tmp_path):
    """The command of the unit itself, which only gets the unit's environment."""
    unit = (REPOSITORY / "conf" / "klaw.service").read_text()
    (command,) = [line.split()[1:] for line in unit.splitlines() if line.startswith("ExecReload=")]
    environ = {"KLAW_HOME": str(write_home(tmp_path))}
    async with served(tmp_path) as server:
        file = server.home / "config" / "engine.yaml"
        right = json.loads(file.read_text())
        file.write_text(json.dumps({**right, "autoRag": {"topK": 5}}))
        code, out, _ = await run_klaw(*command, environ=environ)
        assert (code, "autoRag.topK: changed" in out) == (0, True)
        file.write_text(json.dumps({**right, "autoRag": {"topK": 0}}))
        code, _, err = await run_klaw(*command, environ=environ)
        assert (code, "autoRag.topK: must be >= 1" in err) == (1, True)
        assert server.process.returncode is None


async def test_an_address_that_would_stop_the_next_start_is_refused(tmp_path):
    async with served(write_home(tmp_path)) as server:
        file = server.home / "config" / "engine.yaml"
        before = file.read_bytes()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for key, value, told in (
                ("gateway.host", "0.0.0.0", "klaw token add"),
                ("gateway.port", str(port), f"cannot listen on 127.0.0.1, port {port}"),
            ):
                code, _, err = await config(server.home, "set", key, value)
                assert (code, file.read_bytes()) == (1, before)
                assert f"{key}: " in err
                assert told in err
