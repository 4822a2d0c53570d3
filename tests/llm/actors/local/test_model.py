"""The embedded model itself: the real llama.cpp with the real SmolLM2 in a real child process."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attrs
import httpx2
import pytest
import structlog
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.config.llm import LocalModelConfig
from klaw.llm import local_server as child
from klaw.llm.errors import ProviderNetworkError
from klaw.llm.local_model import ACTOR_NAME, LocalModel, LocalProcess, LocalProvider
from klaw.llm.types import ChatMessage, Delta, JsonSchema, Request, ToolCall, ToolDescription
from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S, first_line

pytest.importorskip("xllamacpp")

CANARY = "ZEBRACANARY"


@attrs.frozen
class Local:
    provider: LocalProvider
    model: LocalModel


@pytest.fixture
async def local(local_llm_dir: Path) -> AsyncIterator[Local]:
    """A supervised model, loading."""
    model = LocalModel()
    settings = LocalModelConfig(
        model="smollm2-135m-instruct", path=local_llm_dir / "model.gguf", context_tokens=1024, threads=1
    )
    provider = LocalProvider(model, ready_within_s=60)
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(nursery, SystemClock())
            await supervisor.start(LocalProcess(settings, Path(), model).spec())
            yield Local(provider, model)
            assert await supervisor.stop(ACTOR_NAME, "the test is over")
    await provider.aclose()


def ask(text: str, max_tokens: int) -> Request:
    messages = (ChatMessage(role="user", content=text),)
    return Request(model="smollm2-135m-instruct", messages=messages, max_tokens=max_tokens, temperature=0.0)


def children(of: int) -> list[int]:
    """Ids of the model processes that a process started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        parent = int(status.read_text().rpartition(")")[2].split()[1])
        if parent == of and child.__file__.encode() in (status.parent / "cmdline").read_bytes():
            found.append(int(status.parent.name))
    return found


async def test_answers_and_survives_kill_9_in_the_middle_of_a_stream(local: Local) -> None:
    """The torn call is a network error; the next call is answered by the next process."""
    deltas: list[Delta] = []
    completion = await local.provider.stream(ask("What is 2+2?", 30), deltas.append)
    assert completion.text
    assert "".join(delta.text for delta in deltas) == completion.text
    assert completion.usage is not None
    assert completion.usage.completion_tokens > 0

    def kill(_delta: Delta) -> None:
        for pid in children(os.getpid()):
            os.kill(pid, signal.SIGKILL)

    with structlog.testing.capture_logs():
        with pytest.raises(ProviderNetworkError):
            await local.provider.stream(ask("Write a long story about the sea.", 500), kill)
        completion = await local.provider.stream(ask("Say: привет", 10), deltas.append)
    assert completion.text


async def test_cancelling_a_call_frees_its_slot_in_the_process(local: Local) -> None:
    """More cancelled calls than slots, then one that is answered."""
    for _ in range(4):
        with trio.CancelScope() as scope:
            await local.provider.stream(
                ask("Write a long story about the sea.", 900),
                lambda _delta, scope=scope: scope.cancel(reason="/stop"),  # type: ignore[misc]
            )
        assert scope.cancelled_caught
    completion = await local.provider.stream(ask("Say hello.", 5), lambda _delta: None)
    assert completion.text


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
    },
    "required": ["name", "kind", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("text", ["My cat Barsik is 5 years old. Describe him.", "Моего пса зовут Рекс. Опиши его."])
async def test_an_answer_fits_its_schema(local: Local, text: str) -> None:
    """llama.cpp samples only what the schema allows, so even this small model cannot get it wrong."""
    request = attrs.evolve(ask(text, 120), json_schema=JsonSchema(name="pet", schema=SCHEMA))
    completion = await local.provider.stream(request, lambda _delta: None)
    pet = json.loads(completion.text)
    assert set(pet) == {"name", "kind", "age"}
    assert pet["kind"] in ("cat", "dog")
    assert type(pet["age"]) is int
    assert completion.model == "local/smollm2-135m-instruct"


async def test_the_engine_takes_tools_and_their_results(local: Local) -> None:
    """llama.cpp renders them by the model's template; what a model of this size makes of them is another matter."""
    parameters = {"type": "object", "properties": {"zone": {"type": "string", "maxLength": 40}}, "required": ["zone"]}
    tool = ToolDescription(name="current_time", description="Tell the time.", parameters=parameters)
    call = ToolCall(id="1", name="current_time", arguments='{"zone": "Europe/Moscow"}')
    request = attrs.evolve(ask("Сколько времени?", 20), tools=(tool,))
    rounds = (
        *request.messages,
        ChatMessage(role="assistant", content="", tool_calls=(call,)),
        ChatMessage(role="tool", content="12:30", tool_call_id="1"),
    )
    for messages in (request.messages, rounds):
        completion = await local.provider.stream(attrs.evolve(request, messages=messages), lambda _delta: None)
        assert completion.text or completion.tool_calls


def command(model: Path) -> list[str]:
    options = {"model": str(model), "name": "local", "context": 512, "parallel": 1, "threads": 1}
    return [sys.executable, "-P", child.__file__, json.dumps(options)]


@pytest.fixture
def alone(local_llm_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The child program without its supervisor."""
    process = subprocess.Popen(
        command(local_llm_dir / "model.gguf"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, child.KEY_VARIABLE: "the-key"},
    )
    with process:
        yield process
        process.kill()


async def test_the_server_wants_its_key_and_never_prints_what_it_reads(alone: subprocess.Popen[bytes]) -> None:
    """Every address but the health check is closed to others; signals of the terminal do not end it, stdin does."""
    assert alone.stdin is not None
    assert alone.stdout is not None
    assert alone.stderr is not None
    url = f"http://127.0.0.1:{json.loads(await trio.to_thread.run_sync(alone.stdout.readline))['port']}"
    body = {"messages": [{"role": "user", "content": CANARY}], "max_tokens": 4}
    async with httpx2.AsyncClient(trust_env=False, timeout=HANG_S) as client:
        for key in (None, "wrong", "the-key2"):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            assert (await client.post(f"{url}/v1/chat/completions", json=body, headers=headers)).status_code == 401
            for path in ("/slots", "/props", "/v1/models", "/metrics", "/"):
                response = await client.get(url + path, headers=headers)
                assert response.status_code in (401, 404), path
        alone.send_signal(signal.SIGTERM)
        alone.send_signal(signal.SIGINT)
        headers = {"authorization": "Bearer the-key"}
        response = await client.post(f"{url}/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == 200
        for path in ("/slots", "/props"):
            assert CANARY not in (await client.get(url + path, headers=headers)).text
    alone.stdin.close()
    assert await trio.to_thread.run_sync(alone.wait) == 0
    assert alone.stdout.read() + alone.stderr.read() == b""


async def test_no_key_no_server(local_llm_dir: Path) -> None:
    ended = await trio.run_process(command(local_llm_dir / "model.gguf"), capture_stderr=True, check=False)
    assert ended.returncode == 1
    assert child.KEY_VARIABLE.encode() in ended.stderr


async def test_a_file_that_is_no_model_is_said_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "model.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    process = await trio.lowlevel.open_process(
        command(broken),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, child.KEY_VARIABLE: "k"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with trio.fail_after(HANG_S):
        answer = json.loads(await first_line(process.stdout))
        assert (answer["error"], answer["reason"].partition(":")[0]) == ("RuntimeError", "gguf_init_from_reader")
        assert [part async for part in process.stderr] == []
        assert await process.wait() == 1


async def test_kill_9_of_the_parent_ends_the_child(local_llm_dir: Path) -> None:
    """A real parent process with a real child; nobody tells the child anything."""
    script = f"""
        import trio
        from pathlib import Path
        from klaw.actor.clock import SystemClock
        from klaw.actor.supervisor import Vitals
        from klaw.config.llm import LocalModelConfig
        from klaw.llm.local_model import LocalProcess
        from klaw.llm.local_model import LocalModel
        import structlog
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())

        class Started:
            def started(self, value=None): pass

        async def main():
            model = LocalModel()
            settings = LocalModelConfig(model="m", path=Path({str(local_llm_dir / "model.gguf")!r}), context_tokens=512)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(LocalProcess(settings, Path(), model).run, Vitals(SystemClock()), Started())
                assert await model.wait_settled()
                print("ready", flush=True)
        trio.run(main)
    """
    with trio.fail_after(HANG_S):
        parent = await trio.lowlevel.open_process(
            [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, cwd=REPOSITORY
        )
        assert parent.stdout is not None
        assert await first_line(parent.stdout) == b"ready\n"
        (pid,) = children(parent.pid)
        pidfd = os.pidfd_open(pid)
        parent.kill()
        await parent.wait()
        with trio.fail_after(HANG_S):
            await trio.lowlevel.wait_readable(pidfd)  # readable when the process has ended
        os.close(pidfd)
