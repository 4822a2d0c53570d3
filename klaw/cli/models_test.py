"""``klaw models test``: ask models a few tiny questions and say what works. Needs no running server."""

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import attrs

from klaw.cli.admin_call import line, print_json
from klaw.config.paths import Paths

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.llm.router import Router
    from klaw.llm.trial import Check, Tried
    from klaw.setup.answers import Model

    Tell: TypeAlias = Callable[[str, str, list[Check]], None]


def test_command(args: argparse.Namespace) -> int:
    """Test the named models, all of ``routing`` if none is named. Returns 1 if one of them does not chat.

    Raises:
        ConfigError: a name is unknown, or the configuration is broken.
    """
    import trio

    from klaw.actor import log as logging
    from klaw.config.load import load

    paths = Paths.resolve(args.home)
    config, _ = load(paths.config_file)
    logging.configure("error", "auto")  # what fails stands in the report
    report: dict[str, list[Check]] = {}

    def tell(name: str, where: str, checks: "list[Check]") -> None:
        report[name] = checks
        if not args.json:
            print("\n".join(lines(name, where, checks)), flush=True)

    trio.run(_test, config, paths, _names(config, args.names), tell)
    if args.json:
        rows = [{"model": name, "checks": [attrs.asdict(check) for check in checks]} for name, checks in report.items()]
        print_json({"models": rows})
    return 0 if all(checks[0].state == "works" for checks in report.values()) else 1


def offer_test(home: str | None, model: "Model", ask: Callable[[str, str], str]) -> None:
    """Test the model of a new configuration, if it can be asked already and the person wants it.

    Args:
        home: as on the command line.
        model: what was chosen.
        ask: puts a question with a default to the person.
    """
    from klaw.config.schema import LOCAL_PROVIDER

    if model.provider == LOCAL_PROVIDER or (model.key_env and model.key_env not in os.environ):
        return
    with suppress(EOFError, KeyboardInterrupt):
        wanted = ask("Ask the model now whether it works? It costs a few tokens. yes or no", "yes")
        if wanted.lower() in ("y", "yes", "д", "да"):
            test_command(argparse.Namespace(home=home, json=False, names=[]))


def lines(name: str, where: str, checks: "Sequence[Check]") -> list[str]:
    """One model as text."""
    out = [line(f"{name} at {where}" if where else name)]
    for check in checks:
        took = "" if check.seconds is None else f", {check.seconds:.1f} s"
        said = check.state if check.name == "chat" and check.state == "works" else f"{check.state}: {check.text}"
        out.append(line(f"  {check.name:<8} {said}{took}"))
    return out


def _names(config: "EngineConfig", asked: Sequence[str]) -> list[str]:
    """Whole names of models; a provider's name stands for its models in ``routing`` and ``models``."""
    routed = [name for _, name in config.routing.places()]
    if not asked:
        return list(dict.fromkeys(routed))
    found: list[str] = []
    for name in asked:
        known = config.providers.get(name)
        listed = [f"{name}/{model}" for model in known.models] if known else []
        own = [each for each in routed if each.partition("/")[0] == name]
        found += [*own, *listed] or [name]
    return list(dict.fromkeys(found))


async def _test(config: "EngineConfig", paths: Paths, names: Sequence[str], tell: "Tell") -> None:
    import trio

    from klaw.actor.clock import SystemClock
    from klaw.actor.supervisor import Supervisor
    from klaw.config.schema import LOCAL_PROVIDER
    from klaw.llm.local.process import ACTOR_NAME, LocalProcess, local_settings
    from klaw.llm.local.provider import LocalProvider
    from klaw.llm.local.state import LocalModel
    from klaw.llm.router import Router

    local = LocalModel()
    router = Router(config, lambda: LocalProvider(local, ready_within_s=config.local_model.start_timeout_s))
    trials = [(name, _where(config, name), _trial(config, router, name)) for name in names]
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        if any(name.partition("/")[0] == LOCAL_PROVIDER for name in names):
            await supervisor.start(LocalProcess(local_settings(config.local_model, paths.models_dir), local).spec())
        for name, where, trial in trials:
            tell(name, where, await trial.run())
        await router.aclose()
        if supervisor.report():
            await supervisor.stop(ACTOR_NAME, "the test is over")
        nursery.cancel_scope.cancel(reason="the test is over")


def _trial(config: "EngineConfig", router: "Router", name: str) -> "Tried":
    from klaw.config.document import join_path
    from klaw.config.schema import LOCAL_PROVIDER
    from klaw.llm.trial import Tried

    route = router.route(name, key="NAME", alone=True)
    provider = name.partition("/")[0]
    key = "localModel" if provider == LOCAL_PROVIDER else join_path(f"providers.{provider}.models", route.model)
    return Tried(
        provider=route.provider,
        model=route.model,
        max_tokens=route.max_output_tokens,
        temperature=config.llm.temperature,
        tools="" if route.tools else f"{key}.tools is false",
        images="" if route.images else "it takes none" if provider == LOCAL_PROVIDER else f"{key}.images is false",
    )


def _where(config: "EngineConfig", name: str) -> str:
    provider = config.providers.get(name.partition("/")[0])
    return (provider.base_url or "") if provider is not None else ""
