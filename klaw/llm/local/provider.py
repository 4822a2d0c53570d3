"""The provider ``local``: the OpenAI client for the port that the embedded model listens on now, and ``LocalModel``,
its state, which the model's process writes. Every change of it is one assignment without an await."""

import enum

import attrs
import structlog
import trio

from klaw.config.llm import LOCAL_PROVIDER
from klaw.llm.errors import ProviderError, ProviderNetworkError, ProviderTimeout
from klaw.llm.providers.http import HttpProvider, HttpSettings
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.repetition import RepetitionStop
from klaw.llm.types import Completion, Delta, OnDelta, Request, TakenBack, TextDelta


class LocalState(enum.StrEnum):
    STARTING = "starting"
    READY = "ready"
    MISSING = "missing"
    """A file or a package is not there; looked for again from time to time."""
    BROKEN = "broken"
    """The last start failed; the supervisor tries again."""
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class LocalAddress:
    """Where the child process listens. Each start has its own port and key."""

    base_url: str
    key: str = attrs.field(repr=False)


class LocalModel:
    """The state of the embedded model."""

    def __init__(self) -> None:
        self.state = LocalState.STARTING
        self.reason = "the local model has not been started yet"
        self.endpoint: LocalAddress | None = None
        """None unless READY."""
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

log = structlog.get_logger("klaw.llm.local")


class LocalProvider:
    """``ready_within_s``: how long a call waits for a model that is loading or restarting."""

    def __init__(self, model: LocalModel, *, ready_within_s: float) -> None:
        self._model = model
        self._ready_within_s = ready_within_s
        self._endpoint: LocalAddress | None = None
        self._client: HttpProvider | None = None
        self._closed = False

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        """If the process died since the last call, the call goes to its successor.

        Raises:
            ProviderError: there is no local model, or it does not start; the text says what to do.
        """
        if request.temperature is None:
            request = attrs.evolve(request, temperature=TEMPERATURE)
        endpoint = await self._ready()
        answer = _LocalAnswer(on_delta)
        try:
            return await answer.stream(await self._client_of(endpoint), request)
        except ProviderNetworkError:
            if answer.begun or self._closed:
                raise
            log.info("local_model_call_repeated", model=request.model)
        with trio.move_on_after(NOTICE_S):
            await self._model.wait_gone(endpoint)
        return await _LocalAnswer(on_delta).stream(await self._client_of(await self._ready()), request)

    async def aclose(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ready(self) -> LocalAddress:
        with trio.move_on_after(self._ready_within_s):
            endpoint = await self._model.wait_settled()
            if endpoint is None:
                raise ProviderError(self._model.reason)
            return endpoint
        raise ProviderTimeout(self._model.reason)

    async def _client_of(self, endpoint: LocalAddress) -> HttpProvider:
        """For this start of the process; the connections of an earlier one died with it."""
        if self._closed:
            raise ProviderNetworkError("the local model's client is closed")
        if self._client is not None and self._endpoint is endpoint:
            return self._client
        settings = HttpSettings(
            name="local",
            base_url=endpoint.base_url,
            api_key=endpoint.key,
            extra_body=SAMPLING,
            timeout_s=SILENCE_S,
            idle_s=ANSWER_S,
            max_s=ANSWER_S,
            max_retries=0,
        )
        old, client = self._client, HttpProvider(settings, OpenAiDialect())
        self._endpoint, self._client = endpoint, client
        if old is not None:
            await old.aclose()
        return client


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
