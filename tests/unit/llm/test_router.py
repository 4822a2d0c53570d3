"""Names of models lead to providers, or to an error that says what is wrong."""

import pytest

from klaw.config.schema import EngineConfig, LlmConfig, ProviderConfig, ProviderModelConfig, RoutingConfig
from klaw.config.secret import Secret
from klaw.errors import ConfigError
from klaw.llm.provider import OnDelta
from klaw.llm.router import Router
from klaw.llm.types import Completion, Request


class FakeLocal:
    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


def config(default: str = "glm/glm-4/air") -> EngineConfig:
    models = {"glm-4/air": ProviderModelConfig(context_tokens=100_000, max_output_tokens=50, tools=True)}
    glm = ProviderConfig(base_url="http://127.0.0.1:1/v1", api_key=Secret("k"), models=models)
    return EngineConfig(
        routing=RoutingConfig(default=default), providers={"glm": glm}, llm=LlmConfig(max_reply_tokens=99)
    )


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
    assert (route.model, route.context_tokens, route.tools) == ("smollm2-135m-instruct", 8192, False)
    await router.aclose()
    assert made[0].closed


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere/m", "known are glm, local"),
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
