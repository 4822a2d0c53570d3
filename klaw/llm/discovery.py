"""Asks a service which models it has, what they can do, and how long their context is. A service is recognised by its
address and its answers. These are bounded in time and size, no redirect is followed, and no message of a user is sent.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, cast, get_args
from urllib.parse import quote

import attrs
import httpx2
import trio

from klaw.actor.clock import Clock, SystemClock, iso
from klaw.actor.threads import read_input
from klaw.bounded_body import BoundedBody
from klaw.errors import ToolRefused
from klaw.llm import facts as services
from klaw.llm.errors import ProviderError, ProviderMalformed, ProviderRefused, ProviderTimeout, ProviderUnreachable
from klaw.llm.facts import MOST_MODELS, FactOrigin, ModelFacts, ServiceName
from klaw.llm.providers.anthropic import AnthropicDialect
from klaw.llm.providers.dialect import parse
from klaw.llm.providers.http import client_of, refusal, translated
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.providers.refusals import loggable, masked, shown

WITHIN_S = 10.0
LOCAL_WITHIN_S = 2.0
LOCAL_PORTS = (11434, 1234, 8080, 8000)
"""Ollama, LM Studio, llama.cpp, vLLM."""
MAX_LIST_BYTES = 16 * 1024 * 1024
MOST_PAGES = 5
MOST_SHOWN = 500
"""Models of Ollama that are asked about one by one."""
SHOWN_AT_ONCE = 8
SHOW_S = 6.0
_ELSEWHERE = frozenset({"openrouter", "anthropic", "openai", "gemini", "mistral", "groq", "deepseek", "zai", "qwen"})
_GETTING_ONE = {"ollama": "; `ollama pull NAME` fetches one", "lmstudio": "; download one in LM Studio"}
_KEY_REFUSED = frozenset({401, 403})


@attrs.frozen(kw_only=True)
class DiscoveredService:
    service: ServiceName
    base_url: str
    """Where it answered: what ``baseUrl`` of a provider should be."""
    at: str
    """When it was asked (ISO-8601 UTC)."""
    models: tuple[ModelFacts, ...]
    note: str = ""
    """What people should know: that it lists none, or more than are read."""

    def dated(self) -> "DiscoveredService":
        """With the service's answer as the origin of all values that have no other."""
        origin = FactOrigin(source="service", at=self.at)
        return attrs.evolve(self, models=tuple(model.dated(origin) for model in self.models))

    def undated(self) -> "DiscoveredService":
        """As it is kept: thousands of equal origins are left out."""
        return attrs.evolve(self, models=tuple(model.undated() for model in self.models))


async def discover(
    service: str | None,
    base_url: str,
    api_key: str | None,
    *,
    headers: Mapping[str, str] | None = None,
    within_s: float = WITHIN_S,
    clock: Clock | None = None,
) -> DiscoveredService:
    """Ask the service at an address. ``service`` is what it is believed to be, a ``ServiceName``. Raises ProviderError:
    its text says in one sentence what is wrong, and of the key nothing."""
    base = base_url.rstrip("/")
    believed = service if service in get_args(ServiceName) else None
    at_home = None if believed == "anthropic" else services.by_address(base)  # others speak its API, too
    named = at_home or cast("ServiceName | None", believed)
    dialect = AnthropicDialect() if named == "anthropic" else OpenAiDialect()
    given = {"accept": "application/json", **dialect.headers(api_key), **(headers or {})}
    if named == "gemini" and api_key is not None:
        given["x-goog-api-key"] = api_key
    secrets = [*filter(None, (api_key, *(headers or {}).values()))]
    try:
        with trio.move_on_after(within_s):
            try:
                async with client_of(base, given, 2 * within_s) as client:
                    found = await _Inquiry(client, base, within_s).find(named, with_key=api_key is not None)
            except httpx2.InvalidURL:
                raise ProviderUnreachable("this is no usable address") from None
            return _report(found, iso((clock or SystemClock()).now()))
        raise ProviderTimeout(f"the service did not answer within {within_s:.3g} s")
    except ProviderError as error:
        _explain(error, base, secrets, with_key=api_key is not None)
        raise


async def find_local(ports: Iterable[int] = LOCAL_PORTS) -> list[DiscoveredService]:
    """The services that answer on this machine; one that wants a key has a note and no models."""
    found: dict[int, DiscoveredService] = {}

    async def ask(port: int) -> None:
        url = f"http://127.0.0.1:{port}/v1"
        try:
            answer = await discover(None, url, None, within_s=LOCAL_WITHIN_S)
        except ProviderRefused as error:
            if error.status in _KEY_REFUSED:
                now = iso(SystemClock().now())
                found[port] = DiscoveredService(service="other", base_url=url, at=now, models=(), note="wants a key")
        except ProviderError:
            pass
        else:
            if answer.service != "klaw":
                found[port] = answer

    async with trio.open_nursery() as nursery:
        for port in ports:
            nursery.start_soon(ask, port)
    return [found[port] for port in ports if port in found]


@attrs.frozen
class _Answer:
    service: ServiceName
    base_url: str
    models: Iterable[ModelFacts]
    count: int


class _Inquiry:
    """The questions to one service."""

    def __init__(self, client: httpx2.AsyncClient, base: str, within_s: float) -> None:
        self._client = client
        self._base = base
        self._root = base.removesuffix("/v1").rstrip("/")
        self._within_s = within_s

    async def find(self, named: ServiceName | None, *, with_key: bool) -> _Answer:
        if named == "anthropic":
            return await self._anthropic()
        if named == "gemini":
            root = self._base.removesuffix("/openai")
            rows = _rows(await self._ask(f"{root}/models?pageSize=1000"))
            return _Answer("gemini", self._base, services.of_gemini(rows), len(rows))
        if named in _ELSEWHERE:
            rows = _rows(await self._ask(f"{self._base}/models"))
            if named == "openrouter" and with_key:
                await self._ask(f"{self._base}/key")  # its list is for everybody
            return _Answer(named, self._base, services.listed(rows), len(rows))
        return await self._unknown()

    async def _anthropic(self) -> _Answer:
        rows: list[Mapping[str, Any]] = []
        more = ""
        for _ in range(MOST_PAGES):
            page = await self._ask(f"{self._root}/v1/models?limit=1000{more}")
            rows += _rows(page)
            last = page.get("last_id") if isinstance(page, dict) and page.get("has_more") is True else None
            if not isinstance(last, str):
                break
            more = f"&after_id={quote(last, safe='')}"
        return _Answer("anthropic", self._base, services.of_anthropic(rows), len(rows))

    async def _unknown(self) -> _Answer:
        """Ask for what only one kind of service has, and for the list that all have."""
        paths = ("/props", "/api/v0/models", "/api/tags", "/model/info")
        told: dict[str, object] = {}
        errors: list[ProviderError] = []

        async def look(path: str) -> None:
            with suppress(ProviderError):  # it is another service, or the list says what is wrong
                told[path] = await self._ask(f"{self._root}{path}")

        async def look_at_list() -> None:
            try:
                told["/models"] = await self._ask(f"{self._base}/models")
            except ProviderError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look_at_list)
            for path in paths:
                nursery.start_soon(look, path)
        return await self._recognised(told, errors)

    async def _recognised(self, told: Mapping[str, object], errors: list[ProviderError]) -> _Answer:
        props, tags = told.get("/props"), services.rows(told.get("/api/tags"))
        studio, proxied = services.rows(told.get("/api/v0/models")), services.rows(told.get("/model/info"))
        face = f"{self._root}/v1"
        rows = services.rows(told.get("/models"))
        if isinstance(props, dict) and "default_generation_settings" in props:
            rows = rows if rows is not None else _rows(await self._ask(f"{face}/models"))
            return _Answer("llamacpp", face, services.of_llamacpp(rows, props), len(rows))
        if studio is not None:
            return _Answer("lmstudio", face, services.of_lmstudio(studio), len(studio))
        if tags is not None and all("digest" in row for row in tags):
            return await self._ollama(tags)
        if proxied and all("model_name" in row for row in proxied):
            return _Answer("litellm", self._base, services.of_litellm(proxied), len(proxied))
        base = self._base
        if rows is None and self._root == base:
            try:
                base, rows = face, services.rows(await self._ask(f"{face}/models"))
            except ProviderError as error:
                errors.append(error)
        if rows is None:
            raise errors[0] if errors else _no_list()
        return _Answer(services.by_rows(rows), base, services.listed(rows), len(rows))

    async def _ollama(self, tags: list[Mapping[str, Any]]) -> _Answer:
        names = services.ollama_names(tags)[:MOST_MODELS]
        running: list[Mapping[str, Any]] = []
        shows: dict[str, object] = {}
        limit = trio.CapacityLimiter(SHOWN_AT_ONCE)

        async def look() -> None:
            running.extend(services.rows(await self._ask(f"{self._root}/api/ps")) or ())

        async def show(name: str) -> None:
            async with limit:
                shows[name] = await self._ask(f"{self._root}/api/show", {"model": name})

        async def quietly(ask: Callable[[], Awaitable[None]]) -> None:
            with suppress(ProviderError):  # less is known then
                await ask()

        with trio.move_on_after(SHOW_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(quietly, look)
                for name in names[:MOST_SHOWN]:
                    nursery.start_soon(quietly, partial(show, name))
        models = [services.of_ollama(name, shows.get(name), running) for name in names]
        return _Answer("ollama", f"{self._root}/v1", models, len(tags))

    async def _ask(self, url: str, asked: Mapping[str, Any] | None = None) -> object:
        """The JSON of an address. Raises ProviderError."""
        body = BoundedBody(MAX_LIST_BYTES)
        method = "GET" if asked is None else "POST"
        with translated(self._within_s):
            async with self._client.stream(method, url, json=asked) as response:
                if response.status_code != 200:
                    raise await _refused(response)
                try:
                    whole = await body.read(response.aiter_raw())
                except ToolRefused:
                    whole = False
        if not whole:
            raise ProviderMalformed(f"the service's list of models is longer than {MAX_LIST_BYTES // 1024**2} MB")
        data = bytes(body.data)
        if data.lstrip()[:1] == b"<":
            raise ProviderMalformed("a web page answers there, not a list of models")
        return await read_input(len(data), lambda: parse(data.decode("utf-8", "replace")))


def _rows(answer: object) -> list[Mapping[str, Any]]:
    found = services.rows(answer)
    if found is None:
        raise _no_list()
    return found


def _no_list() -> ProviderMalformed:
    return ProviderMalformed("what answers there is not a list of models")


async def _refused(response: httpx2.Response) -> ProviderError:
    if response.is_redirect:
        target = response.headers.get("location", "")
        error = ProviderRefused("the service redirects elsewhere", status=response.status_code, retryable=False)
        error.said = target.partition("?")[0]
        return error
    return await refusal(response)


def _report(found: _Answer, at: str) -> DiscoveredService:
    models = tuple(islice(found.models, MOST_MODELS))
    note = ""
    if not models:
        note = f"it lists no models{_GETTING_ONE.get(found.service, '')}"
    elif found.count > MOST_MODELS:
        note = f"it lists {found.count} models, of which {MOST_MODELS} are read"
    answer = DiscoveredService(service=found.service, base_url=found.base_url, at=at, models=models, note=note)
    return answer.dated()


def _explain(error: ProviderError, base: str, secrets: list[str], *, with_key: bool) -> None:
    """Whose error it is, what to look at, and no secret in it."""
    error.said = shown(error.said, secrets)
    error.known_words = loggable(error.said)
    error.args = (masked(str(error.args[0]), secrets), *error.args[1:])
    error.origin = base
    if isinstance(error, ProviderRefused):
        # The question has nothing else that could be wrong: Google and LiteLLM refuse keys so.
        if error.status in _KEY_REFUSED or (error.status == 400 and with_key):
            error.hint = "is the key right?" if with_key else "it wants a key"
        elif error.status in (404, 405) or 300 <= error.status < 400:
            error.hint = "is the address right? It mostly ends in /v1"
    elif isinstance(error, ProviderMalformed):
        error.hint = "is the address right? It mostly ends in /v1"
    elif isinstance(error, ProviderUnreachable | ProviderTimeout):
        error.hint = "is it running, and is the address right?"
