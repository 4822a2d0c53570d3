"""How the child of the embedded model starts, fails and ends. The children here are small scripts."""

import os
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import trio

import klaw.llm.local_model as local_process
from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import ActorState, Supervisor, Vitals
from klaw.config.llm import LocalModelConfig
from klaw.errors import ModelError
from klaw.llm.errors import ProviderNetworkError
from klaw.llm.local_model import ACTOR_NAME, LocalModel, LocalProcess, LocalState
from klaw.llm.types import ChatMessage, Request
from tests.support.waiting import HANG_S

SERVES = """
    import json, os, sys
    print(json.dumps({"port": 1}), flush=True)
    sys.stdin.read()
"""
REQUEST = Request(model="m", messages=(ChatMessage(role="user", content="Привет"),))
Make = Callable[..., LocalProcess]


class Unstarted:
    def started(self, value: object = None) -> None:
        pass


@pytest.fixture
async def model() -> LocalModel:
    return LocalModel()


@pytest.fixture
def make(tmp_path: Path, model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a process whose child runs the given script."""
    monkeypatch.setattr(local_process, "RECHECK_S", 0.01)

    def process(script: str, *, installed: bool = True, start_timeout_s: float = HANG_S) -> LocalProcess:
        file, program = tmp_path / "model.gguf", tmp_path / "child.py"
        program.write_text(textwrap.dedent(script))
        if installed:
            file.touch()
        settings = LocalModelConfig(model="tiny", path=file, start_timeout_s=start_timeout_s)
        return LocalProcess(settings, file.parent, model, program=str(program))

    return process


@asynccontextmanager
async def running(process: LocalProcess) -> AsyncIterator[Vitals]:
    """Run one incarnation for the body."""
    vitals = Vitals(SystemClock())
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.run, vitals, Unstarted())
            yield vitals
            nursery.cancel_scope.cancel(reason="the test is over")


async def failure(process: LocalProcess) -> str:
    """Run an incarnation that is to fail. Returns the error's text."""
    with trio.fail_after(HANG_S), pytest.raises(ModelError) as caught:
        await process.run(Vitals(SystemClock()), Unstarted())
    return str(caught.value)


async def test_ready_serving_stopped(make: Make, model: LocalModel) -> None:
    """Every start has a new key; a stop ends the child and says so."""
    keys = set()
    for _ in range(2):
        async with running(make(SERVES)) as vitals:
            endpoint = await model.wait_settled()
            assert endpoint is not None
            assert endpoint.base_url == "http://127.0.0.1:1/v1"
            assert vitals.activity == "serving"
            keys.add(endpoint.key)
            assert endpoint.key not in repr(endpoint)
        assert model.state is LocalState.STOPPED
        assert model.endpoint is None
        with pytest.raises(ProviderNetworkError, match="closed"):
            await endpoint.client.stream(REQUEST, lambda _delta: None)
        model.not_ready(LocalState.STARTING, "again")
    assert len(keys) == 2


async def test_the_child_sees_neither_our_secrets_nor_a_key_on_its_command_line(
    make: Make, model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLM_API_KEY", "canary")
    seen = tmp_path / "seen"
    script = f"import os, sys; open({str(seen)!r}, 'w').write(repr((sys.argv, dict(os.environ))))" + SERVES.replace(
        "\n    ", "\n"
    )
    async with running(make(script)):
        endpoint = await model.wait_settled()
        assert endpoint is not None
        arguments, environment = seen.read_text().split("], {")
        assert endpoint.key not in arguments
        assert endpoint.key in environment
        assert "canary" not in environment


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("raise SystemExit(3)", "ended"),
        ("print('no json', flush=True); input()", "before it was ready"),
        ('print(\'{"error": "RuntimeError"}\', flush=True); input()', "cannot load"),
        ('print(\'{"error": "RuntimeError", "reason": "no magic"}\', flush=True); input()', "file: no magic"),
        ('print(\'{"error": "ImportError"}\', flush=True); input()', "libgomp"),
        ("print('x' * 10000, flush=True); input()", "before it was ready"),
    ],
)
async def test_a_failed_start_is_a_crash(make: Make, model: LocalModel, script: str, says: str) -> None:
    """And callers are told at once, without waiting for the next attempt."""
    assert says in await failure(make(script))
    assert model.state is LocalState.BROKEN
    assert "does not start" in model.reason


async def test_why_llama_cpp_does_not_load_a_file_is_told(
    model: LocalModel, tmp_path: Path, log_events: list[dict[str, object]]
) -> None:
    """By its own first error, to callers and in the log."""
    pytest.importorskip("xllamacpp")
    file = tmp_path / "model.gguf"
    file.write_bytes(b"hello, I am no model" * 100)
    why = await failure(LocalProcess(LocalModelConfig(model="tiny", path=file), file.parent, model))
    assert "cannot load the model file: gguf_init_from_reader: invalid magic characters" in why
    assert why.endswith(str(log_events[-1]["reason"]))
    assert log_events[-1]["event"] == "local_model_failed"


async def test_a_start_that_hangs_is_given_up(make: Make, model: LocalModel) -> None:
    assert "not ready in 0.05 s" in await failure(make("input()", start_timeout_s=0.05))
    assert model.state is LocalState.BROKEN


async def test_a_child_that_dies_later_is_a_crash_and_callers_wait(make: Make, model: LocalModel) -> None:
    script = """
        import os, signal
        print('{"port": 1}', flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert "ended with code -9" in await failure(make(script))
    assert model.state is not LocalState.READY
    assert model.endpoint is None


async def test_a_child_that_does_not_end_is_killed(make: Make, model: LocalModel, tmp_path: Path) -> None:
    """It ignores the end of its stdin and every polite signal."""
    script = f"""
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        print('{{"port": 1}}', flush=True)
        time.sleep(1000)
    """
    async with running(make(script)):
        await model.wait_settled()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_missing_model_is_no_crash_and_is_found_when_it_comes(
    make: Make, model: LocalModel, tmp_path: Path
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(make(SERVES, installed=False)) as vitals:
            while model.state is not LocalState.MISSING:
                await trio.lowlevel.checkpoint()
            assert "klaw models pull" in model.reason
            assert vitals.activity == "degraded: no model file"
            (tmp_path / "model.gguf").touch()
            while model.state is not LocalState.READY:
                await trio.lowlevel.checkpoint()
    assert [entry["event"] for entry in logs].count("local_model_missing") == 1


async def test_a_missing_package_names_the_command(
    make: Make, model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    async with running(make(SERVES)):
        while model.state is not LocalState.MISSING:
            await trio.lowlevel.checkpoint()
        assert "pip install --require-hashes -r requirements.txt" in model.reason


async def test_the_supervisor_starts_it_again(make: Make, model: LocalModel) -> None:
    """Start-up is never held up by loading, and a stop works while it serves."""
    process = make(SERVES)
    with trio.fail_after(HANG_S), structlog.testing.capture_logs():
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(nursery, SystemClock())
            await supervisor.start(process.spec())
            assert supervisor.state(ACTOR_NAME) is ActorState.RUNNING
            first = await model.wait_settled()
            assert first is not None
            _kill_children()
            await model.wait_gone(first)
            second = await model.wait_settled()
            assert second is not None
            assert second.key != first.key
            assert await supervisor.stop(ACTOR_NAME, "the test is over")
    assert model.state is LocalState.STOPPED


def _kill_children() -> None:
    """Kill the scripts that this test process has started."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        parent = int(status.read_text().rpartition(")")[2].split()[1])
        if parent == os.getpid() and b"child.py" in (status.parent / "cmdline").read_bytes():
            os.kill(int(status.parent.name), 9)
