"""Klaw promises that nothing leaves the machine unless it is configured: no dependency looks up a name, connects to
another machine or leaves a file outside of Klaw's folders."""

import json
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import trio
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.plugins.models import models_dir
from tests.support.programs.mcp_client import program
from tests.support.programs.tracing import needs_strace, plain_environ, traced, trespasses
from tests.support.repository import REPOSITORY
from tests.support.server import free_port, served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S

MODEL = "smollm2-135m-instruct"

USE_ALL = """
import importlib, json, sys, threading, time
import klaw

for name in json.loads(sys.argv[1]):
    importlib.import_module(name)

from pathlib import Path
import httpx2, onnx, opentelemetry.trace, trio
from genai_prices.data_snapshot import get_snapshot
from onnx import TensorProto, helper
from klaw.memory.embed.model import EmbeddingModel

model = EmbeddingModel.load(Path(sys.argv[2]), threads=1, batch_tokens=512)
assert model.embed(["hello", "привет"], kind="passage").shape == (2, model.dimension)
assert get_snapshot().providers
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
onnx.checker.check_model(helper.make_model(graph))
with opentelemetry.trace.get_tracer("klaw").start_as_current_span("span"):
    pass

async def ask():
    async with httpx2.AsyncClient() as client:
        try:
            await client.get("http://127.0.0.1:" + sys.argv[3])
        except httpx2.ConnectError:
            return

trio.run(ask)
time.sleep(2)  # whoever reports does it from a thread of its own
print("all used")
"""


def _modules() -> list[str]:
    """What Klaw's own dependencies, and theirs, offer for import."""
    found: set[str] = set()
    waiting = [("klaw", frozenset({"", "local", "mcp"}))]
    while waiting:
        name, extras = waiting.pop()
        for text in requires(name) or ():
            needed = Requirement(text)
            wanted = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras)
            key = canonicalize_name(needed.name)
            if wanted and key not in found:
                found.add(key)
                waiting.append((key, frozenset({"", *needed.extras})))
    offered = packages_distributions()
    return sorted(
        module
        for module, owners in offered.items()
        if module.isidentifier() and not module.startswith("_") and any(canonicalize_name(o) in found for o in owners)
    )


async def test_no_dependency_looks_up_a_name_or_leaves_a_file(tmp_path: Path, embedding_model_dir: Path) -> None:
    """All that an installation brings is imported, and what works with data is used."""
    needs_strace()
    trace, home = tmp_path / "trace", tmp_path / "user"
    modules = _modules()
    assert {"onnxruntime", "onnx", "xllamacpp", "genai_prices", "mcp", "opentelemetry", "httpx2"} <= set(modules)
    command = [*traced(trace), "-c", USE_ALL, json.dumps(modules), str(embedding_model_dir), str(free_port())]
    with trio.fail_after(HANG_S):
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False, cwd=REPOSITORY, env=plain_environ(home)
        )
    assert done.stdout == b"all used\n", done.stderr.decode()[-2000:]
    assert trespasses(trace, [tmp_path]) == []
    assert list(home.rglob("*")) == []


@pytest.mark.usefixtures("embedding_model_dir", "local_llm_dir")
async def test_start_embed_and_chat_look_up_no_name_and_leave_no_file(tmp_path: Path) -> None:
    """With both models and an MCP server, in the server and in the commands that embed by themselves."""
    needs_strace()
    trace, user = tmp_path / "trace", tmp_path / "user"
    home = write_home(
        tmp_path / "home",
        models=models_dir(),
        embedding={"enabled": True},
        routing={"default": f"local/{MODEL}"},
        localModel={"parallel": 1},
        mcp={"servers": {"notes": program()}},
    )
    engine = home / "config" / "engine.yaml"
    engine.write_text(json.dumps({**json.loads(engine.read_text()), "llm": {"maxReplyTokens": 16}}))
    environ = plain_environ(user)
    async with served(home, start=False) as server:
        server.program = (*traced(trace), "-m", "klaw")
        server.environ = environ
        await server.start()
        async with talking(server.url, {"main": 0}) as talk:
            for text in ("My cat is called Minka.", "Моего кота зовут Минька."):
                assert (await talk.answer_to(await talk.ask(text))).strip()
        assert await server.terminate() == 0
    commands = (["search", "cat", "--json"], ["doctor", "--full"], ["status"], ["models", "list", "--verify"])
    for number, arguments in enumerate(commands):
        command = [*traced(tmp_path / f"trace{number}"), "-m", "klaw", *arguments, "--home", str(home)]
        with trio.fail_after(HANG_S):
            await trio.run_process(
                command, capture_stdout=True, capture_stderr=True, check=False, cwd=REPOSITORY, env=environ
            )
    for path in (trace, *(tmp_path / f"trace{number}" for number in range(len(commands)))):
        assert "\n" in path.read_text(errors="replace")
        assert trespasses(path, [tmp_path, models_dir().resolve()]) == [], path.name
    assert list(user.rglob("*")) == []


def test_onnx_runtime_is_imported_in_one_place() -> None:
    """Beneath the package that switches its reports off."""
    found = {
        str(path.relative_to(REPOSITORY))
        for folder in ("klaw", "tools", "tests")
        for path in (REPOSITORY / folder).rglob("*.py")
        if "import onnxruntime" in path.read_text() or "from onnxruntime" in path.read_text()
    }
    assert found - {str(Path(__file__).relative_to(REPOSITORY))} == {"klaw/memory/embed/model.py"}
    assert sys.modules["klaw"].__file__ == str(REPOSITORY / "klaw" / "__init__.py")
