"""A plain tree -> ``EngineConfig``, strictly, with every broken rule found in one go.

cattrs walks the classes; the hooks here put the rule that ``key`` declared beside each value. What counts as a bool,
an int or a text is decided in ``scalars``.
"""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from klaw.config.document import UNREADABLE, join_path, kind_of
from klaw.config.environment import Reference, Secret
from klaw.config.keys import MODEL_NAME, Rule, file_key, rule_of
from klaw.config.knowledge import KnowledgeConfig
from klaw.config.llm import LOCAL_PROVIDER, LocalModelConfig, ProviderConfig, RoutingConfig
from klaw.config.memory import AutoRagConfig, ContextConfig, EmbeddingConfig
from klaw.config.scalars import (
    BrokenRuleError,
    ReportedError,
    number_reader,
    read_choice,
    read_json,
    read_path,
    read_secret,
    read_str,
    shown,
)
from klaw.config.schema import (
    MIN_HEARTBEAT_S,
    SYSTEM_ZONE,
    EngineConfig,
    HeartbeatConfig,
    ProcessingConfig,
    SubagentsConfig,
)
from klaw.domain.names import zone
from klaw.errors import ConfigError, InvalidName, Problem

_T = TypeVar("_T")
_CHOICES: tuple[object, ...] = (Literal,)


def structure(tree: dict[str, Any], known: tuple[Problem, ...] = ()) -> EngineConfig:
    """Make the configuration out of a tree of ``read_document``.

    Args:
        tree: the file's sections; absent and empty ones take their defaults.
        known: problems found before; they make this raise even when the tree is sound.

    Raises:
        ConfigError: with ``known`` and every broken rule of the tree.
    """
    problems = list(known)
    config = None
    try:
        config = _converter().structure(tree, EngineConfig)
    except Exception as exc:  # noqa: BLE001  cattrs wraps whatever a hook raises; unknown leaves are re-raised below
        problems += _problems_of(exc, "")
    problems += _cross_key_problems(tree)
    if problems or config is None:
        raise ConfigError(problems)
    return config


def _cross_key_problems(tree: dict[str, Any]) -> Iterator[Problem]:
    """Check rules that span keys or are no plain limits, each as soon as the sections that it needs are sound."""
    processing = _sound(tree, "processing", ProcessingConfig)
    if processing and processing.debounce_max_ms < processing.debounce_ms:
        yield Problem(
            path="processing.debounceMaxMs",
            message=f"must be >= processing.debounceMs ({processing.debounce_ms}), got {processing.debounce_max_ms}",
        )
    context = _sound(tree, "context", ContextConfig)
    if context and context.reply_reserve_tokens >= context.default_budget_tokens:
        yield Problem(
            path="context.replyReserveTokens",
            message=f"must be < context.defaultBudgetTokens ({context.default_budget_tokens}), "
            f"got {context.reply_reserve_tokens}",
        )
    providers = tree.get("providers") or {}
    heartbeat = _sound(tree, "heartbeat", HeartbeatConfig)
    if heartbeat and 0 < heartbeat.interval_s < MIN_HEARTBEAT_S:
        yield Problem(
            path="heartbeat.intervalSeconds", message=f"must be 0 or >= {MIN_HEARTBEAT_S}, got {heartbeat.interval_s}"
        )
    subagents = _sound(tree, "subagents", SubagentsConfig)
    if subagents and subagents.zone != SYSTEM_ZONE:
        try:
            zone(subagents.zone)
        except InvalidName as error:
            yield Problem(path="subagents.zone", message=str(error))
    if isinstance(providers, dict):
        yield from _route_problems(tree, providers)
        yield from _endpoint_problems(tree, providers)
        yield from _address_problems(providers)
        yield from _price_problems(providers)
    mcp = tree.get("mcp") or {}
    if isinstance(mcp, dict) and isinstance(mcp.get("servers"), dict):
        yield from _mcp_problems(mcp["servers"])
    knowledge = _sound(tree, "kb", KnowledgeConfig)
    for name, endpoint in knowledge.endpoints.items() if knowledge else ():
        if (endpoint.user is None) != (endpoint.password is None):
            yield Problem(path=join_path("kb.endpoints", name), message="needs both user and password, or none of them")


def _mcp_problems(servers: dict[str, Any]) -> Iterator[Problem]:
    """A server is a program or has an address; each way has keys that mean nothing to the other."""
    for name, server in servers.items():
        if not isinstance(server, dict):
            continue
        path = join_path("mcp.servers", name)
        given = {key for key in server if _given(server, key)}
        if "command" in given and "url" in given:
            yield Problem(path=path, message="has both command and url; give only one of them")
        elif not given & {"command", "url"}:
            yield Problem(path=path, message="needs command (a program) or url (a server behind HTTP)")
        else:
            way, others = ("command", ("headers",)) if "command" in given else ("url", ("args", "env", "cwd"))
            for key in others:
                if key in given:
                    yield Problem(path=join_path(path, key), message=f"means nothing beside {way}")


def _route_problems(tree: dict[str, Any], providers: dict[str, Any]) -> Iterator[Problem]:
    """Each route must lead to a provider that there is, and to the local model by its name."""
    routing = _sound(tree, "routing", RoutingConfig)
    local = _sound(tree, "localModel", LocalModelConfig)
    for path, name in routing.places() if routing else ():
        provider, _, model = name.partition("/")
        if provider not in {LOCAL_PROVIDER, *providers}:
            names = ", ".join(map(repr, sorted(providers))) or "none"
            yield Problem(
                path=path,
                message=f"the provider must be {LOCAL_PROVIDER!r} or a name in providers (there: {names}), "
                f"got {shown(name, name, quote_text=True)}",
            )
        elif provider == LOCAL_PROVIDER and local and model != local.model:
            yield Problem(
                path=path,
                message=f"the local model must be localModel.model ({local.model!r}), "
                f"got {shown(name, name, quote_text=True)}",
            )


def _endpoint_problems(tree: dict[str, Any], providers: dict[str, Any]) -> Iterator[Problem]:
    """What is asked beside chats needs a provider that speaks OpenAI's API, and a model."""
    places: dict[str, tuple[str, object]] = {}
    embedding, recall = _sound(tree, "embedding", EmbeddingConfig), _sound(tree, "autoRag", AutoRagConfig)
    if embedding is not None:
        yield from _embedding_problems(embedding, tree.get("embedding") or {})
        if embedding.provider is not None:
            places["embedding"] = embedding.provider, _given(tree["embedding"], "model")
    if recall is not None and recall.rerank.provider is not None:
        places["autoRag.rerank"] = recall.rerank.provider, recall.rerank.model
    elif recall is not None and recall.rerank.model is not None:
        yield Problem(path="autoRag.rerank.provider", message="is required beside model")
    for path, (name, model) in places.items():
        if name not in providers:
            names = ", ".join(map(repr, sorted(providers))) or "none"
            text = f"must be a name in providers (there: {names}), got {shown(name, name, quote_text=True)}"
            yield Problem(path=f"{path}.provider", message=text)
        elif isinstance(providers[name], dict) and _given(providers[name], "type") not in (None, "openai"):
            yield Problem(path=f"{path}.provider", message="must name a provider of type 'openai'")
        if not model:
            yield Problem(path=f"{path}.model", message="is required beside provider")


def _embedding_problems(embedding: EmbeddingConfig, given: Mapping[str, Any]) -> Iterator[Problem]:
    """A model of a provider, or one of this machine: each way has keys that mean nothing to the other."""
    if embedding.provider is not None:
        if embedding.path is not None:
            yield Problem(path="embedding.path", message="means nothing beside provider")
        return
    if broken := Rule(description="", **MODEL_NAME).broken_by(embedding.model):
        text = f"{broken}, got {shown(embedding.model, embedding.model, quote_text=True)}"
        yield Problem(path="embedding.model", message=text)
    for name in ("dimensions", "queryPrefix", "passagePrefix"):
        if _given(given, name):
            yield Problem(path=f"embedding.{name}", message="needs embedding.provider")


def _address_problems(providers: dict[str, Any]) -> Iterator[Problem]:
    """Only one API has an address of its own."""
    for name, provider in providers.items():
        if not isinstance(provider, dict) or _given(provider, "baseUrl"):
            continue
        if _given(provider, "type") in (None, "openai"):
            yield Problem(path=join_path(f"providers.{name}", "baseUrl"), message="is required for type 'openai'")


def _given(section: Mapping[str, Any], name: str) -> Any:
    """A value of the tree, with a reference looked up; one that leads nowhere counts as given and is reported by the
    main walk."""
    value = section.get(name)
    if isinstance(value, Reference):
        try:
            return value.text()
        except ValueError:
            return UNREADABLE
    return value


def _price_problems(providers: dict[str, Any]) -> Iterator[Problem]:
    """Half a price would count half of what is spent."""
    for provider in providers:
        settings = _sound(providers, provider, ProviderConfig)
        for model, known in settings.models.items() if settings else ():
            prices = (known.input_price, known.output_price, known.cached_input_price, known.cache_write_price)
            missing = "inputPrice" if known.input_price is None else "outputPrice" if known.output_price is None else ""
            if missing and any(price is not None for price in prices):
                path = join_path(join_path(join_path("providers", provider), "models"), model)
                yield Problem(path=f"{path}.{missing}", message="is required beside another price")


def _sound(tree: dict[str, Any], name: str, cls: type[_T]) -> _T | None:
    try:
        return _converter().structure(tree.get(name), cls)
    except Exception:  # noqa: BLE001  its problems are reported by the main walk
        return None


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    for kind, wanted in ((bool, "true or false"), (int, "a whole number"), (float, "a number")):
        converter.register_structure_hook(kind, number_reader(kind, wanted))
    converter.register_structure_hook(str, read_str)
    converter.register_structure_hook(Secret, read_secret)
    converter.register_structure_hook(Path, read_path)
    converter.register_structure_hook_func(lambda cls: get_origin(cls) in _CHOICES, read_choice)
    converter.register_structure_hook_factory(attrs.has, _section_factory)
    return converter


def _section_factory(cls: type, converter: cattrs.Converter) -> Any:
    overrides: dict[str, Any] = {
        field.name: override(rename=file_key(field.name), struct_hook=_field_hook(rule_of(field), converter))
        for field in attrs.fields(cls)
    }
    inner: Any = make_dict_structure_fn(
        cls, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True, **overrides
    )

    def hook(value: object, _: type) -> Any:
        return inner(_expect({} if value is None else value, dict), cls)

    return hook


def _field_hook(rule: Rule, converter: cattrs.Converter) -> Any:
    def hook(value: object, cls: Any) -> Any:
        if get_origin(cls) is tuple:
            value = [value] if rule.one_or_more and isinstance(value, str | Reference) else value
            return tuple(_items(enumerate(_expect(value, list)), get_args(cls)[0], rule, converter).values())
        if get_origin(cls) is Mapping:
            pairs = _expect({} if value is None else value, dict).items()
            return _items(pairs, get_args(cls)[1], rule, converter)
        return _checked(value, cls, rule, converter)

    return hook


def _items(pairs: Any, cls: Any, rule: Rule, converter: cattrs.Converter) -> dict[Any, Any]:
    """Structure every item of a list or map, and collect what is wrong with any of them."""
    made: dict[Any, Any] = {}
    errors: list[Exception] = []
    for place, item in pairs:
        bad_name = rule.name_broken_by(place) if isinstance(place, str) else None
        if bad_name:
            errors.append(_at(place, BrokenRuleError(bad_name)))
        try:
            made[place] = read_json(item) if cls is Any else _checked(item, cls, rule, converter)
        except Exception as exc:  # noqa: BLE001  collected into the group below, none is lost
            errors.append(_at(place, exc))
    if errors:
        raise IterableValidationError("", errors, dict)
    return made


def _at(place: str | int, error: Exception) -> Exception:
    error.add_note(IterableValidationNote("", place, object))
    return error


def _checked(value: object, cls: Any, rule: Rule, converter: cattrs.Converter) -> Any:
    if value is UNREADABLE:
        raise ReportedError
    made = converter.structure(value, cls)
    broken = rule.broken_by(made)
    if broken:
        raise BrokenRuleError(f"{broken}, got {shown(value, made)}")
    return made.under(rule.broken_by) if isinstance(made, Secret) else made


def _expect(value: object, kind: type) -> Any:
    if value is UNREADABLE:
        raise ReportedError
    if not isinstance(value, kind):
        wanted = "section" if kind is dict else "list"
        raise BrokenRuleError(f"must be a {wanted}, got {kind_of(value)}")
    return value


def _problems_of(exc: BaseException, path: str) -> Iterator[Problem]:
    """Walk cattrs' groups of errors down to our own, building the key path from their notes."""
    if isinstance(exc, ClassValidationError):
        inside, about_itself = exc.group_exceptions()
        for error, note in inside:
            yield from _problems_of(error, join_path(path, file_key(note.name)))
        for error in about_itself:
            yield from _problems_of(error, path)
    elif isinstance(exc, IterableValidationError):
        items, _ = exc.group_exceptions()
        for error, item_note in items:
            place = item_note.index
            yield from _problems_of(error, f"{path}[{place}]" if isinstance(place, int) else join_path(path, place))
    elif isinstance(exc, ForbiddenExtraKeysError):
        for name in sorted(exc.extra_fields):
            yield Problem(path=join_path(path, name), message=f"unknown key{_suggestion(name, exc.cl)}")
    elif isinstance(exc, KeyError):
        yield Problem(path=path, message="is required")
    elif isinstance(exc, BrokenRuleError):
        yield Problem(path=path, message=str(exc))
    elif not isinstance(exc, ReportedError):
        raise exc


def _suggestion(name: str, cls: type) -> str:
    keys = {file_key(field.name).lower(): file_key(field.name) for field in attrs.fields(cls)}
    close = difflib.get_close_matches(name.lower().replace("_", ""), keys, n=1)
    return f"; did you mean {keys[close[0]]}?" if close else ""
