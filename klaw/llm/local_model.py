"""The embedded model: the actor ``llm.local``, which owns its child process, and the provider ``local``, the OpenAI
client for the port that the process listens on now.

The actor has no mailbox; ``LocalModel`` is its state, and every change of it is one assignment without an await. It
waits for a model that is not installed. A crash of the child is a crash of the actor, which the supervisor restarts.
"""

import enum
import importlib.util
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import attrs
import structlog
import trio

from klaw.actor.failure import error_class, leaves, split_cancelled
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.config.llm import LOCAL_PROVIDER, LocalModelConfig
from klaw.errors import INSTALL_AGAIN, ModelError
from klaw.llm import local_server
from klaw.llm.errors import ProviderError, ProviderNetworkError, ProviderTimeout
from klaw.llm.providers.http import HttpProvider, HttpSettings
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.repetition import RepetitionStop
from klaw.llm.types import Completion, Delta, OnDelta, Request, TakenBack, TextDelta

ACTOR_NAME = "llm.local"
RECHECK_S = 30.0
STOP_BUDGET_S = 2.0
"""For the child to end after its stdin closed, before it is killed."""
MAX_LINE_BYTES = 4096
SILENCE_S = 300.0
"""A small machine may read a long prompt for minutes before the first byte."""
ANSWER_S = 3600.0
"""Prompt and text at less than a token a second."""
NOTICE_S = 2.0
"""A broken connection usually means that the process died; until that is noticed."""
SAMPLING = {"top_p": 0.9, "frequency_penalty": 0.2, "repeat_last_n": 256}
"""llama.cpp's own members. Without a penalty a model of this size says the same until the reply is full. This one grows
with each repetition, so that a recalled fact may still be repeated once: without it three of six replies looped, with
it none, and 7 of 10 recalled facts were told as before; DRY left 2 of 9."""
TEMPERATURE = 0.2
"""Where the configuration leaves it open: what the makers of SmolLM2 recommend."""

_ENVIRONMENT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV",
)  # fmt: skip
"""All that the child inherits: Klaw's own environment may hold keys."""

log = structlog.get_logger("klaw.llm.local")


class LocalState(enum.StrEnum):
    STARTING = "starting"
    READY = "ready"
    MISSING = "missing"
    """A file or a package is not there; it is looked for again from time to time."""
    BROKEN = "broken"
    """The last start failed; the supervisor tries again."""
    STOPPED = "stopped"


class LocalAddress:
    """Where the child process listens, and a client for it. Each start has its own port and key."""

    def __init__(self, *, base_url: str, key: str) -> None:
        self.base_url, self.key = base_url, key
        settings = HttpSettings(
            name=LOCAL_PROVIDER,
            base_url=base_url,
            api_key=key,
            extra_body=SAMPLING,
            timeout_s=SILENCE_S,
            idle_s=ANSWER_S,
            max_s=ANSWER_S,
            max_retries=0,
        )
        self.client = HttpProvider(settings, OpenAiDialect())


class LocalModel:
    def __init__(self) -> None:
        self.state = LocalState.STARTING
        self.reason = "the local model has not been started yet"
        self.endpoint: LocalAddress | None = None
        self._changed = trio.Event()

    def report(self) -> dict[str, str]:
        return {"state": self.state, "reason": self.reason}

    def problems(self, *, only: bool) -> dict[str, str]:
        code = "no_llm" if only else "no_local_llm"
        return {} if self.state is LocalState.READY else {code: self.reason}

    def ready(self, endpoint: LocalAddress) -> None:
        self._change(LocalState.READY, "", endpoint)

    def not_ready(self, state: LocalState, reason: str) -> None:
        self._change(state, reason, None)

    async def wait_settled(self) -> LocalAddress | None:
        """Wait while it is starting. Returns None when it will not listen soon (see ``reason``)."""
        await trio.lowlevel.checkpoint()
        while self.state is LocalState.STARTING:
            await self._changed.wait()
        return self.endpoint

    async def wait_gone(self, endpoint: LocalAddress) -> None:
        await trio.lowlevel.checkpoint()
        while self.endpoint is endpoint:
            await self._changed.wait()

    def _change(self, state: LocalState, reason: str, endpoint: LocalAddress | None) -> None:
        self.state, self.reason, self.endpoint = state, reason, endpoint
        self._changed.set()
        self._changed = trio.Event()


@attrs.define(eq=False)
class LocalProvider:
    _model: LocalModel
    _ready_within_s: float = attrs.field(kw_only=True)
    """How long a call waits for a model that is loading or restarting."""
    _closed: bool = attrs.field(default=False, init=False)

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """If the process died since the last call, ask its successor. Raises ProviderError, which says what to do."""
        if request.temperature is None:
            request = attrs.evolve(request, temperature=TEMPERATURE)
        endpoint = await self._ready()
        answer = _LocalAnswer(on_delta)
        try:
            return await answer.stream(endpoint.client, request)
        except ProviderNetworkError:
            if answer.begun or self._closed:
                raise
            log.info("local_model_call_repeated", model=request.model)
        with trio.move_on_after(NOTICE_S):
            await self._model.wait_gone(endpoint)
        endpoint = await self._ready()
        return await _LocalAnswer(on_delta).stream(endpoint.client, request)

    async def aclose(self) -> None:
        self._closed = True
        if self._model.endpoint is not None:
            await self._model.endpoint.client.aclose()

    async def _ready(self) -> LocalAddress:
        if self._closed:
            raise ProviderNetworkError("the local model's client is closed")
        with trio.move_on_after(self._ready_within_s):
            endpoint = await self._model.wait_settled()
            if endpoint is None:
                raise ProviderError(self._model.reason)
            return endpoint
        raise ProviderTimeout(self._model.reason)


class _LocalAnswer:
    """One answer; it ends where it begins to repeat itself."""

    def __init__(self, on_delta: OnDelta) -> None:
        self.begun = False
        self._on_delta = on_delta
        self._stop = RepetitionStop()
        self._text: list[str] = []
        self._scope = trio.CancelScope()

    async def stream(self, client: HttpProvider, request: Request) -> Completion:
        if request.json_schema is not None:  # half of a JSON value is worth nothing; its length is bounded
            return await client.stream(request, self._pass_on)
        completion = Completion(text="", model=f"{LOCAL_PROVIDER}/{request.model}")
        with self._scope:
            completion = await client.stream(request, self._relay)
        if self._stop.looped:
            log.info("local_answer_repeats_itself", model=request.model, size=len("".join(self._text)))
        self._say(self._stop.end())
        return attrs.evolve(completion, text="".join(self._text))

    def _relay(self, delta: Delta) -> None:
        if isinstance(delta, TakenBack):
            self._text.clear()
            self._stop = RepetitionStop()
        if not isinstance(delta, TextDelta):
            self._pass_on(delta)
            return
        self.begun = True
        self._say(self._stop.feed(delta.text))
        if self._stop.looped:
            self._scope.cancel(reason="the answer repeats itself")

    def _say(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._pass_on(TextDelta(text))

    def _pass_on(self, delta: Delta) -> None:
        self.begun = True
        self._on_delta(delta)


@attrs.define(eq=False)
class LocalProcess:
    """Runs the child for the supervisor. ``program`` is its Python file."""

    _settings: LocalModelConfig
    _models_dir: Path
    _model: LocalModel
    _program: str = local_server.__file__

    @property
    def _file(self) -> Path:
        return self._settings.path or self._models_dir / self._settings.model / "model.gguf"

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=STOP_BUDGET_S + 3, parent="llm")

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """``started()`` does not wait for the model. Raises ModelError: the child did not start in time, or ended."""
        task_status.started()
        try:
            while (missing := self._missing()) is not None:
                what, reason = missing
                if self._model.reason != reason:
                    log.warning("local_model_missing", model=self._settings.model, missing=what)
                self._model.not_ready(LocalState.MISSING, reason)
                vitals.doing(f"degraded: no {what}")
                await trio.sleep(RECHECK_S)
            vitals.doing("loading the model")
            self._model.not_ready(LocalState.STARTING, "the local model is still loading")
            await self._run_child(vitals)
        except BaseException as error:
            if split_cancelled(error)[0] is None:
                self._model.not_ready(LocalState.STOPPED, "the local model is stopped")
            raise

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
        except Exception as group:
            known = (str(leaf) for leaf in leaves(group) if isinstance(leaf, ModelError))
            code = next(known, f"failed with {error_class(group)}")
            log.warning("local_model_failed", model=self._settings.model, reason=code)
            if endpoint is None:
                self._model.not_ready(LocalState.BROKEN, f"the local model does not start ({code})")
            else:
                self._model.not_ready(LocalState.STARTING, "the local model is restarting after a crash")
            raise ModelError(f"the process of the local model {code}") from group
        finally:
            if endpoint is not None:
                await endpoint.client.aclose()

    async def _child(self, key: str, task_status: trio.TaskStatus[trio.Process]) -> None:
        settings = self._settings
        options = {
            "model": str(self._file),
            "name": settings.model,
            "context": settings.context_tokens,
            "parallel": settings.parallel,
            "threads": settings.threads,
        }
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        ended = await trio.run_process(
            [sys.executable, "-P", self._program, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, local_server.KEY_VARIABLE: key},
            check=False,
            deliver_cancel=_stop,
            task_status=task_status,
        )
        log.warning("local_model_ended", model=settings.model, exit_code=ended.returncode)
        raise ModelError(f"ended with code {ended.returncode}")

    async def _port(self, process: trio.Process) -> int:
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
            why = f": {report['reason']}" if report.get("reason") else ""
            raise ModelError(f"cannot load the model file{why}")
        return int(report["port"])


async def _stop(process: trio.Process) -> None:
    """Close the child's stdin, wait for a bounded time, kill it. Trio shields this."""
    assert process.stdin is not None
    with trio.move_on_after(STOP_BUDGET_S):
        await process.stdin.aclose()
        await process.wait()
    if process.returncode is None:
        process.kill()
