"""Actor ``llm.local``: owns the child process of the embedded model.

It has no mailbox; its state is in ``LocalModel``. It waits for a model that is not installed. A crash of the child is a
crash of the actor, which the supervisor restarts.
"""

import importlib.util
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import structlog
import trio

from klaw.actor.failure import error_class, split_cancelled
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.config.llm import LocalModelConfig
from klaw.errors import INSTALL_AGAIN, ModelError
from klaw.llm.local import server
from klaw.llm.local.provider import LocalAddress, LocalModel, LocalState

ACTOR_NAME = "llm.local"
RECHECK_S = 30.0
"""How often a missing model or package is looked for."""
STOP_BUDGET_S = 2.0
"""For the child to end after its stdin closed, before it is killed."""
MAX_LINE_BYTES = 4096

_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
)
"""All that the child inherits: Klaw's own environment may hold keys."""

log = structlog.get_logger("klaw.llm.local")


class LocalProcess:
    """Runs the child for the supervisor. ``program`` is its Python file."""

    def __init__(
        self, config: LocalModelConfig, models_dir: Path, model: LocalModel, *, program: Path = Path(server.__file__)
    ) -> None:
        self._settings = config
        self._file = config.path or models_dir / config.model / "model.gguf"
        self._model = model
        self._program = program

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=STOP_BUDGET_S + 3, parent="llm")

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """``started()`` comes before the model is loaded, which may take a minute.

        Raises:
            ModelError: the child failed to start in time, or ended.

        Cancellation: the child has ended.
        """
        task_status.started()
        try:
            await self._wait_until_installed(vitals)
            vitals.doing("loading the model")
            self._model.not_ready(LocalState.STARTING, "the local model is still loading")
            await self._run_child(vitals)
        except BaseException as error:
            if split_cancelled(error)[0] is None:
                self._model.not_ready(LocalState.STOPPED, "the local model is stopped")
            raise

    async def _wait_until_installed(self, vitals: Vitals) -> None:
        while (missing := self._missing()) is not None:
            what, reason = missing
            if self._model.reason != reason:
                log.warning("local_model_missing", model=self._settings.model, missing=what)
            self._model.not_ready(LocalState.MISSING, reason)
            vitals.doing(f"degraded: no {what}")
            await trio.sleep(RECHECK_S)

    def _missing(self) -> tuple[str, str] | None:
        """What is not installed, and what to do about it."""
        if not self._file.is_file():
            return "model file", f"no local model {self._settings.model}: run `klaw models pull`"
        importlib.invalidate_caches()
        if importlib.util.find_spec("xllamacpp") is None:
            return "package", f"the local model needs the package xllamacpp: {INSTALL_AGAIN}"
        return None

    async def _run_child(self, vitals: Vitals) -> None:
        endpoint: LocalAddress | None = None
        key = secrets.token_urlsafe(32)
        began = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                process: trio.Process = await nursery.start(self._child, key)
                endpoint = LocalAddress(base_url=f"http://127.0.0.1:{await self._port(process)}/v1", key=key)
                took_s = trio.current_time() - began
                log.info("local_model_ready", model=self._settings.model, pid=process.pid, seconds=round(took_s, 2))
                self._model.ready(endpoint)
                vitals.doing("serving")
        except* Exception as group:
            code = _describe(group)
            log.warning("local_model_failed", model=self._settings.model, reason=code)
            if endpoint is None:
                self._model.not_ready(LocalState.BROKEN, f"the local model does not start ({code})")
            else:
                self._model.not_ready(LocalState.STARTING, "the local model is restarting after a crash")
            raise ModelError(f"the process of the local model {code}") from group

    async def _child(self, key: str, task_status: trio.TaskStatus[trio.Process]) -> None:
        """Ends in cancellation or ModelError."""
        settings = self._settings
        command = [sys.executable, "-P", str(self._program), "--model", str(self._file), "--name", settings.model]
        command += ["--context", str(settings.context_tokens), "--parallel", str(settings.parallel)]
        command += ["--threads", str(settings.threads)]
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        ended = await trio.run_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, server.KEY_VARIABLE: key},
            check=False,
            deliver_cancel=_stop,
            task_status=task_status,
        )
        log.warning("local_model_ended", model=settings.model, exit_code=ended.returncode)
        raise ModelError(f"ended with code {ended.returncode}")

    async def _port(self, process: trio.Process) -> int:
        """Read the child's one line."""
        line = bytearray()
        assert process.stdout is not None
        with trio.move_on_after(self._settings.start_timeout_s) as waiting:
            while not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                part = await process.stdout.receive_some(MAX_LINE_BYTES)
                if not part:
                    break
                line += part
        if waiting.cancelled_caught:
            raise ModelError(f"was not ready in {self._settings.start_timeout_s:g} s")
        try:
            report = json.loads(line)
        except ValueError:
            raise ModelError("ended before it was ready") from None
        if report.get("error") == "ImportError":
            raise ModelError("cannot import xllamacpp: is the system's libgomp installed?")
        if "port" not in report:
            why = str(report.get("reason") or "")
            raise ModelError(f"cannot load the model file: {why}" if why else "cannot load the model file")
        return int(report["port"])


def _describe(error: BaseException) -> str:
    """The text of the first ModelError in a group; of other errors the class only."""
    if isinstance(error, BaseExceptionGroup):
        chosen = error.subgroup(ModelError) or error
        return _describe(chosen.exceptions[0])
    return str(error) if isinstance(error, ModelError) else f"failed with {error_class(error)}"


async def _stop(process: trio.Process) -> None:
    """Close the child's stdin, wait for a bounded time, kill it. Trio calls this under its own shield."""
    assert process.stdin is not None
    with trio.move_on_after(STOP_BUDGET_S):
        await process.stdin.aclose()
        await process.wait()
    if process.returncode is None:
        process.kill()
