"""Names of models lead to providers, or to an error that says what is wrong."""

import pytest

from klaw.config.environment import Secret
from klaw.config.llm import LlmConfig, ProviderConfig, ProviderModelConfig, RoutingConfig, TaskRoutingConfig
from klaw.config.schema import EngineConfig
from klaw.errors import ConfigError
from klaw.llm.router import Router
from klaw.llm.types import Completion, OnDelta, Request, Route


class FakeLocal:
    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


LOCAL = "local/smollm2-135m-instruct"


def config(default: str = "glm/glm-4/air", fallback: tuple[str, ...] = (), **tasks: tuple[str, ...]) -> EngineConfig:
    models = {
        "glm-4/air": ProviderModelConfig(context_tokens=100_000, max_output_tokens=50, tools=True, images=True),
        "plain": ProviderModelConfig(json_schema=False),
    }
    glm = ProviderConfig(base_url="http://127.0.0.1:1/v1", api_key=Secret("k"), models=models)
    return EngineConfig(
        routing=RoutingConfig(default=default, fallback=fallback, tasks=TaskRoutingConfig(**tasks)),
        providers={"glm": glm, "claude": ProviderConfig(type="anthropic")},
        llm=LlmConfig(max_reply_tokens=99),
    )


def names(route: Route) -> tuple[str, tuple[str, ...]]:
    """The model that is asked first, and those that stand in."""
    return route.name, tuple(model.name for model in route.stand_ins)


async def test_a_known_model_brings_its_limits() -> None:
    """Slashes in a model's name belong to the name."""
    router = Router(config(), FakeLocal)
    route = router.route()
    assert (route.model, route.context_tokens, route.max_output_tokens, route.tools) == ("glm-4/air", 100_000, 50, True)
    assert not router.uses_local
    await router.aclose()


async def test_an_unlisted_model_gets_the_defaults_and_shares_the_provider() -> None:
    router = Router(config(), FakeLocal)
    route = router.route("glm/other")
    assert (route.context_tokens, route.max_output_tokens, route.tools) == (8192, 99, False)
    assert route.provider is router.route().provider
    await router.aclose()


async def test_the_local_model() -> None:
    made: list[FakeLocal] = []

    def make() -> FakeLocal:
        made.append(FakeLocal())
        return made[-1]

    router = Router(config("local/smollm2-135m-instruct"), make)
    assert router.uses_local
    assert not made
    route = router.route()
    assert router.route().provider is route.provider is made[0]
    assert not router.report()
    assert (route.model, route.context_tokens, route.tools) == ("smollm2-135m-instruct", 8192, False)
    await router.aclose()
    assert made[0].closed


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere/m", "known are claude, glm, local"),
        ("glm", "provider/model"),
        ("/m", "provider/model"),
        ("glm/", "provider/model"),
        ("", "provider/model"),
        ("local/other", "smollm2-135m-instruct"),
    ],
)
def test_unknown_names_are_config_errors(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Router(config(), FakeLocal).route(name, key="routing.tasks.x")
    assert caught.value.problems[0].path == "routing.tasks.x"


async def test_a_chain_has_the_default_and_its_fallbacks_once() -> None:
    router = Router(config(fallback=("claude/opus", "glm/glm-4/air", LOCAL)), FakeLocal)
    route = router.route()
    assert names(route) == ("glm/glm-4/air", ("claude/opus", LOCAL))
    assert (route.context_tokens, route.tools, route.images) == (100_000, True, True)
    assert router.uses_local
    chosen = router.route("claude/opus")
    assert names(chosen) == ("claude/opus", ("glm/glm-4/air", LOCAL))
    assert [report["name"] for report in router.report()] == ["glm", "claude"]
    await router.aclose()


async def test_tasks_have_routes_of_their_own_or_that_of_chats() -> None:
    router = Router(config(fallback=("claude/opus",), topics=("glm/small", LOCAL), reranker=(LOCAL,)), FakeLocal)
    assert names(router.route(task="topics")) == ("glm/small", (LOCAL,))
    assert names(router.route(task="reranker")) == (LOCAL, ())
    for task in ("chat", "summarization", "subagent"):
        route = router.route(task=task)  # type: ignore[arg-type]
        assert names(route) == ("glm/glm-4/air", ("claude/opus",))
    named = router.route("claude/opus", task="topics")
    assert names(named) == ("claude/opus", (LOCAL,))
    await router.aclose()


async def test_providers_are_shared_by_all_routes() -> None:
    router = Router(config(topics=("glm/other",)), FakeLocal)
    assert router.route(task="topics").provider is router.route().provider
    await router.aclose()


def test_a_model_without_schemas_says_so() -> None:
    router = Router(config(), FakeLocal)
    assert (router.route("glm/plain").json_schema, router.route().json_schema) == (False, True)


def test_a_broken_fallback_is_named() -> None:
    with pytest.raises(ConfigError, match="known are") as caught:
        Router(config(fallback=("nowhere/m",)), FakeLocal).route()
    assert caught.value.problems[0].path == "routing"
