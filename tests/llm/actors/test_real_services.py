"""Discovery against programs that Klaw has nothing to do with: llama.cpp's own server, and LiteLLM's proxy before it.

KLAW_TEST_SERVICES names a Python that has xllamacpp and ``litellm[proxy]``; without it these tests are skipped."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from klaw.llm.discovery import DiscoveredService, discover
from klaw.llm.errors import ProviderError, ProviderRefused
from tests.support.repository import REPOSITORY
from tests.support.server import free_port
from tests.support.waiting import until

PYTHON = os.environ.get("KLAW_TEST_SERVICES", "")
MODEL = REPOSITORY / ".models" / "smollm2-135m-instruct" / "model.gguf"
KEY = "sk-of-the-proxy"
pytestmark = pytest.mark.skipif(
    not (PYTHON and shutil.which(PYTHON) and MODEL.exists()),
    reason="KLAW_TEST_SERVICES names no Python with xllamacpp and litellm, or smollm2-135m-instruct is not pulled",
)
LLAMA = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.hostnames = sys.argv[1], int(sys.argv[2]), ["127.0.0.1"]
params.model_alias, params.n_ctx, params.n_parallel = {"smol"}, 2048, 1
params.cpuparams.n_threads, params.use_jinja, params.offline = 1, True, True
server = xllamacpp.Server(params)
sys.stdin.read()
"""


@asynccontextmanager
async def running(command: list[str], cwd: Path) -> AsyncIterator[None]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.PIPE}
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, command, cwd=cwd, check=False, **quiet)
        await nursery.start(start)
        yield
        nursery.cancel_scope.cancel(reason="the test is over")


async def answered(url: str, key: str | None) -> DiscoveredService:
    async def ask() -> DiscoveredService | None:
        try:
            return await discover(None, url, key)
        except ProviderError:
            return None  # it still loads

    return await until(ask, every_s=1.0)  # type: ignore[return-value]


@asynccontextmanager
async def llama(folder: Path) -> AsyncIterator[str]:
    port = free_port()
    async with running([PYTHON, "-c", LLAMA, str(MODEL), str(port)], folder):
        yield f"http://127.0.0.1:{port}/v1"


async def test_llamacpp_itself(tmp_path: Path) -> None:
    async with llama(tmp_path) as url:
        found = await answered(url, None)
    assert found.service == "llamacpp"
    (model,) = found.models
    assert (model.name, model.context_tokens, model.images) == ("smol", 2048, False)
    assert model.origins["context_tokens"].source == "service"


async def test_litellm_before_llamacpp(tmp_path: Path) -> None:
    port = free_port()
    async with llama(tmp_path) as url:
        about = {"max_input_tokens": 2048, "supports_function_calling": False, "supports_vision": False}
        behind = {"model": "openai/smol", "api_base": url, "api_key": "none"}
        models = [{"model_name": "small", "litellm_params": behind, "model_info": about}]
        config = {"model_list": models, "general_settings": {"master_key": KEY}}
        (tmp_path / "proxy.yaml").write_text(json.dumps(config))
        proxy = [str(Path(PYTHON).with_name("litellm")), "--config", "proxy.yaml", "--port", str(port)]
        async with running([*proxy, "--host", "127.0.0.1"], tmp_path):
            address = f"http://127.0.0.1:{port}"
            found = await answered(f"{address}/v1", KEY)
            bare = await answered(address, KEY)
            with pytest.raises(ProviderRefused, match="is the key right"):
                await discover(None, f"{address}/v1", "sk-wrong-one")
    assert found.service == bare.service == "litellm"
    (model,) = found.models
    assert (model.name, model.context_tokens, model.tools, model.images) == ("small", 2048, False, False)
