"""Asks a service which models it has, what they can do, and how long their context is. A service is recognised by its
address and its answers. These are bounded in time and size, no redirect is followed, and no message of a user is sent.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
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
KEY_REFUSED = frozenset({401, 403})


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

    @cached_property
    def _by_name(self) -> Mapping[str, ModelFacts]:
        return {model.name: model for model in self.models}

    def model(self, name: str) -> ModelFacts | None:
        """What it says of a model, also of a variant that it does not list."""
        names = (name, f"{name}:latest", name.rpartition(":")[0], name.removeprefix("models/"))
        return next((self._by_name[each] for each in names if each in self._by_name), None)


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
    base, headers = base_url.rstrip("/"), headers or {}
    believed = cast("ServiceName | None", service if service in get_args(ServiceName) else None)
    # Others speak Anthropic's API, too.
    named = believed if believed == "anthropic" else services.by_address(base) or believed
    dialect = AnthropicDialect() if named == "anthropic" else OpenAiDialect()
    given = {"accept": "application/json", **dialect.headers(api_key), **headers}
    if named == "gemini" and api_key is not None:
        given["x-goog-api-key"] = api_key
    try:
        with trio.move_on_after(within_s):
            try:
                async with client_of(base, given, 2 * within_s) as client:
                    inquiry = _Inquiry(client, base, within_s, iso((clock or SystemClock()).now()))
                    return await inquiry.find(named, with_key=api_key is not None)
            except httpx2.InvalidURL:
                raise ProviderUnreachable("this is no usable address") from None
        raise ProviderTimeout(f"the service did not answer within {within_s:.3g} s")
    except ProviderError as error:
        secrets = [*filter(None, (api_key, *headers.values()))]
        error.said = shown(error.said, secrets)
        error.known_words = loggable(error.said)
        error.args = (masked(str(error.args[0]), secrets), *error.args[1:])
        error.origin, error.hint = base, _hint(error, with_key=api_key is not None)
        raise


def _hint(error: ProviderError, *, with_key: bool) -> str:
    """What to look at."""
    status = getattr(error, "status", 0)
    # The question has nothing else that could be wrong: Google and LiteLLM refuse keys with 400.
    if status in KEY_REFUSED or (status == 400 and with_key):
        return "is the key right?" if with_key else "it wants a key"
    if status in (404, 405) or 300 <= status < 400 or isinstance(error, ProviderMalformed):
        return "is the address right? It mostly ends in /v1"
    return "is it running, and is the address right?" * isinstance(error, ProviderUnreachable | ProviderTimeout)


async def find_local(ports: Iterable[int] = LOCAL_PORTS) -> list[DiscoveredService]:
    """The services that answer on this machine; one that wants a key has a note and no models."""
    found: dict[int, DiscoveredService] = {}

    async def ask(port: int) -> None:
        url = f"http://127.0.0.1:{port}/v1"
        try:
            found[port] = await discover(None, url, None, within_s=LOCAL_WITHIN_S)
        except ProviderError as error:
            if getattr(error, "status", 0) in KEY_REFUSED:
                now = iso(SystemClock().now())
                found[port] = DiscoveredService(service="other", base_url=url, at=now, models=(), note="wants a key")

    async with trio.open_nursery() as nursery:
        for port in ports:
            nursery.start_soon(ask, port)
    return [found[port] for port in ports if port in found and found[port].service != "klaw"]


async def loads(base_url: str, model: str) -> bool:
    """Whether an Ollama has a model in its memory, or is loading it."""
    root = base_url.rstrip("/").removesuffix("/v1")
    with suppress(ProviderError):
        async with client_of(root, {}, LOCAL_WITHIN_S) as client:
            inquiry = _Inquiry(client, root, LOCAL_WITHIN_S, "")
            return any(row.get("model") == model for row in services.rows(await inquiry.ask(f"{root}/api/ps")) or ())
    return False


@attrs.frozen
class _Inquiry:
    """The questions to one service."""

    _client: httpx2.AsyncClient
    _base: str
    _within_s: float
    _at: str

    @property
    def _root(self) -> str:
        return self._base.removesuffix("/v1").rstrip("/")

    def _found(
        self, service: ServiceName, rows: list[Mapping[str, Any]], models: Iterable[ModelFacts], base: str
    ) -> DiscoveredService:
        read, note = tuple(islice(models, MOST_MODELS)), ""
        if not read:
            note = f"it lists no models{_GETTING_ONE.get(service, '')}"
        elif len(rows) > MOST_MODELS:
            note = f"it lists {len(rows)} models, of which {MOST_MODELS} are read"
        return DiscoveredService(service=service, base_url=base, at=self._at, models=read, note=note).dated()

    async def find(self, named: ServiceName | None, *, with_key: bool) -> DiscoveredService:
        if named == "anthropic":
            rows = await self._pages()
            return self._found(named, rows, services.of_anthropic(rows), self._base)
        if named is None or named not in _ELSEWHERE:
            return await self._unknown()
        of_gemini = f"{self._base.removesuffix('/openai')}/models?pageSize=1000"
        rows = _rows(await self.ask(of_gemini if named == "gemini" else f"{self._base}/models"))
        if named == "openrouter" and with_key:
            await self.ask(f"{self._base}/key")  # its list is for everybody
        return self._found(named, rows, services.listed(rows), self._base)

    async def _pages(self) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = []
        more = ""
        for _ in range(MOST_PAGES):
            page = await self.ask(f"{self._root}/v1/models?limit=1000{more}")
            rows += _rows(page)
            last = page.get("last_id") if isinstance(page, dict) and page.get("has_more") is True else None
            if not isinstance(last, str):
                break
            more = f"&after_id={quote(last, safe='')}"
        return rows

    async def _told(self, **urls: str) -> tuple[dict[str, object], dict[str, ProviderError]]:
        """The answers of several addresses, and the errors of the others."""
        told: dict[str, object] = {}
        errors: dict[str, ProviderError] = {}

        async def look(name: str, url: str) -> None:
            try:
                told[name] = await self.ask(url)
            except ProviderError as error:
                errors[name] = error

        async with trio.open_nursery() as nursery:
            for name, url in urls.items():
                nursery.start_soon(look, name, url)
        return told, errors

    async def _unknown(self) -> DiscoveredService:
        """Ask for what only one kind of service has, and for the list that all have."""
        root, base = self._root, self._base
        own = {"props": "/props", "studio": "/api/v0/models", "tags": "/api/tags", "proxied": "/model/info"}
        told, errors = await self._told(list=f"{base}/models", **{name: root + path for name, path in own.items()})
        props, face = told.pop("props", None), f"{root}/v1"
        found = {name: rows for name, answer in told.items() if (rows := services.rows(answer)) is not None}
        rows = found.get("list")
        if isinstance(props, dict) and "default_generation_settings" in props:
            rows = rows if rows is not None else _rows(await self.ask(f"{face}/models"))
            return self._found("llamacpp", rows, services.of_llamacpp(rows, props), face)
        if (studio := found.get("studio")) is not None:
            return self._found("lmstudio", studio, services.of_lmstudio(studio), face)
        if (tags := found.get("tags")) is not None and all("digest" in row for row in tags):
            return self._found("ollama", tags, await self._ollama(tags), face)
        if (proxied := found.get("proxied")) and all("model_name" in row for row in proxied):
            return self._found("litellm", proxied, services.of_litellm(proxied), base)
        if rows is None and root == base:
            told, more = await self._told(list=f"{face}/models")
            base, rows, errors = face, services.rows(told.get("list")), {**more, **errors}
        if rows is None:
            raise errors.get("list") or _no_list()
        return self._found(services.by_rows(rows), rows, services.listed(rows), base)

    async def _ollama(self, tags: list[Mapping[str, Any]]) -> Iterable[ModelFacts]:
        names = services.ollama_names(tags)[:MOST_MODELS]
        running: list[Mapping[str, Any]] = []
        shows: dict[str, object] = {}
        limit = trio.CapacityLimiter(SHOWN_AT_ONCE)

        async def look(name: str | None) -> None:
            async with limit:
                with suppress(ProviderError):  # less is known then
                    if name is None:
                        running.extend(services.rows(await self.ask(f"{self._root}/api/ps")) or ())
                    else:
                        shows[name] = await self.ask(f"{self._root}/api/show", {"model": name})

        with trio.move_on_after(SHOW_S):
            async with trio.open_nursery() as nursery:
                for name in (None, *names[:MOST_SHOWN]):
                    nursery.start_soon(look, name)
        return [services.of_ollama(name, shows.get(name), running) for name in names]

    async def ask(self, url: str, asked: Mapping[str, Any] | None = None) -> object:
        """The JSON of an address. Raises ProviderError."""
        body = BoundedBody(MAX_LIST_BYTES)
        method = "GET" if asked is None else "POST"
        with translated(self._within_s):
            async with self._client.stream(method, url, json=asked) as response:
                if response.is_redirect:
                    away = ProviderRefused(
                        "the service redirects elsewhere", status=response.status_code, retryable=False
                    )
                    away.said = response.headers.get("location", "").partition("?")[0]
                    raise away
                if response.status_code != 200:
                    raise await refusal(response)
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
