"""``klaw models``: connect, fetch, list, test and calibrate models. None of it needs a running server."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from klaw.cli.admin_call import NoServer, RefusedByServer, call
from klaw.cli.connect_model import Connect
from klaw.cli.connect_model import connect as carry_out
from klaw.cli.operations import Here, ask_for, command
from klaw.cli.output import warn
from klaw.config.paths import Paths
from klaw.errors import ConfigError, ModelError
from klaw.operations.lines import ShownLines, minute, size
from klaw.operations.operation import Noun, OperationError, argument

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.llm.facts import ModelCheck
    from klaw.models.build import PullStep
    from klaw.models.manifest import ModelSpec
    from klaw.models.pull import ModelStatus

NOUN = Noun("models", "connect, fetch, list, test and calibrate models (docs/models.md)", local=True)
CALIBRATION_THREADS = 2
TEST_S = 125.0
"""More than the server's deadline for one model."""
_PHASES = {
    "wait": "waiting for another pull",
    "copy": "copying",
    "download": "downloading",
    "check": "checking the kept download",
    "extract": "extracting",
    "convert": "converting",
    "done": "installed",
    "present": "already here",
}
_CALIBRATED = {"catalogue": "by Klaw's makers", "built-in": "here, on the built-in texts", "own": "here, on your texts"}


@attrs.frozen(kw_only=True)
class ModelNames:
    names: tuple[str, ...] = argument("which models (default: all)", default=(), positional=True, metavar="NAME")
    verify: bool = argument("check the checksums of what is installed", default=False)

    def chosen(self) -> "list[ModelSpec]":
        from klaw.models.manifest import CATALOGUE

        known = {spec.id: spec for spec in CATALOGUE}
        if unknown := [name for name in self.names if name not in known]:
            text = f"unknown model {', '.join(unknown)}; known: {', '.join(known)}"
            raise OperationError("bad_args", text, field="names")
        return [known[name] for name in dict.fromkeys(self.names)] if self.names else list(known.values())


@attrs.frozen(kw_only=True)
class Pull(ModelNames):
    source: str | None = argument("copy them from this models folder, without network", metavar="DIR", option="--from")


@attrs.frozen(kw_only=True)
class ModelArguments:
    names: tuple[str, ...] = argument(
        "PROVIDER/MODEL or PROVIDER (default: all models of routing, embedding and autoRag.rerank)",
        default=(),
        positional=True,
        metavar="NAME",
    )


@attrs.frozen(kw_only=True)
class Calibrate:
    model: str | None = argument("a name or a folder (default: the configured model)", positional=True)
    texts: tuple[str, ...] = argument(
        "measure on these instead of the built-in texts: one text a line, or a conversation as JSON",
        default=(),
        metavar="FILE",
        words=True,
    )
    dry_run: bool = argument("measure and store nothing", default=False)


@command(NOUN, "connect", Connect, cli="connect", show=lambda answer: ShownLines((), found=answer["changed"]))
def connect(asked: Connect, here: Here) -> dict[str, Any]:
    """Connect a model: ask which one, let it answer once, and use it from now on. Nothing is changed if it does not
    answer; the exit code is 1 then."""
    return carry_out(asked, here)


def _pulled(answer: dict[str, Any]) -> ShownLines:
    return ShownLines((), found=all(each["state"] not in ("failed", "damaged") for each in answer["models"]))


@command(NOUN, "models_pull", Pull, cli="pull", show=_pulled)
def pull(asked: Pull, here: Here) -> dict[str, Any]:
    """Download models, or copy them, and install them. If one fails, the others are still fetched."""
    from klaw.models.pull import pull, status

    def tell(step: "PullStep", /) -> None:
        last = step.phase in ("done", "present")
        here.progress.show(f"{step.model}: {_PHASES[step.phase]}", step.done_bytes, step.total_bytes, size, last=last)

    rows = []
    source = Path(asked.source).expanduser() if asked.source is not None else None
    for spec in asked.chosen():
        failed = {}
        try:
            pull(spec, here.paths.models_dir, tell, verify=asked.verify, source=source)
        except ModelError as error:
            here.progress.finish()
            warn(str(error))
            failed = {"state": "failed", "bytes": 0, "problem": str(error)}
        rows.append({**_json(spec, status(spec, here.paths.models_dir)), **failed})
    return {"models": rows}


@command(NOUN, "models_list", ModelNames, cli="list", show=_pulled)
def listed(asked: ModelNames, here: Here) -> dict[str, Any]:
    """List the models that can be pulled and whether they are installed, and those of the configuration with what is
    known of each and who says so. The exit code is 1 if one is damaged."""
    from klaw.models.pull import status

    rows, chosen = [], asked.chosen()
    here.say(f"models in {here.paths.models_dir}")
    for spec in chosen:
        found = status(spec, here.paths.models_dir, verify=asked.verify)
        here.say(f"  {spec.id:<24} {found.state:<9} {size(found.bytes or spec.member_bytes):>10}  {spec.summary}")
        if (made := found.calibration) is not None:
            about = f"calibrated {_CALIBRATED[made.texts]}: mean cosine of unrelated texts {made.random_cosine:.4f}"
            here.say(f"  {'':<24} {about}")
        if found.problem:
            here.say(f"  {'':<24} {found.problem}")
        rows.append(_json(spec, found))
    known = None if asked.names else _configured(here.paths)
    if known is not None:
        here.say("", "models of the configuration, and what is known of them", *_known_lines(known))
    return {"models": rows, "configured": known}


def _configured(paths: Paths) -> dict[str, Any] | None:
    """What the server knows, or its database; None without both."""
    try:
        return ask_for(paths, "models_list")
    except (NoServer, RefusedByServer, OperationError, ConfigError):
        return None


_FIELDS = {"context_tokens": "context", "longest_context": "longest", "output_tokens": "answer"}
_FIELDS |= {"json_schema": "JSON schema", "embedding": "embeddings"}
_SOURCES = {"config": "configuration", "service": "the service", "prices": "price list", "default": "assumed"}


def _known_lines(known: dict[str, Any]) -> Iterator[str]:
    for model in known["known"]:
        yield f"  {model['name']}" + (" (default)" if model["name"] == known["default"] else "")
        for field, told in model["values"].items():
            value, at, source = told["value"], told["at"], _SOURCES.get(told["source"], told["source"])
            shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            shown = f"{shown:,} tokens" if isinstance(shown, int) else shown
            yield f"    {_FIELDS.get(field, field):<12} {shown:<24} {source}{f', {minute(at)}' if at else ''}"
        if model["left_out"]:
            yield f"    {'left out':<12} {', '.join(model['left_out'])}, which it refuses"
    for service in known["services"]:
        if why := service["error"] or service["note"]:
            yield f"  {service['provider']}: {why}"


def _json(spec: "ModelSpec", found: "ModelStatus") -> dict[str, Any]:
    told = {name: getattr(found, name) for name in ("state", "bytes", "problem", "calibration")}
    return {"id": spec.id, "kind": spec.kind, "path": str(found.folder), **told}


def _tested(answer: dict[str, Any]) -> ShownLines:
    return ShownLines((), found=all(each["checks"][0]["state"] == "works" for each in answer["models"]))


@command(NOUN, "models_test", ModelArguments, cli="test", show=_tested)
def test(asked: ModelArguments, here: Here) -> dict[str, Any]:
    """Ask models a few tiny questions and say what works: the running server does, with its keys; without one, or with
    a configuration that it has not read yet, this command with those of the shell. The exit code is 1 if one of them
    does not answer."""
    import trio

    from klaw.actor import log as logging
    from klaw.config.load import load

    paths, say = here.paths, here.say
    config, _ = load(paths.config_file)
    logging.configure("error", "auto")  # what fails stands in the report
    rows: list[dict[str, Any]] = []

    def tell(name: str, checks: "list[ModelCheck]") -> None:
        provider = config.providers.get(name.partition("/")[0])
        where = provider.base_url if provider is not None else None
        rows.append({"model": name, "checks": checks})
        say(f"{name} at {where}" if where else name, *map(_check, checks))

    names = _names(config, asked.names)
    if why := _not_by_server(paths):
        trio.run(_test, config, paths, names, tell)
        say(f"Asked with the keys of this shell: {why}.")
    else:
        for name in names:
            tell(name, _test_by_server(paths, name))
        say("Asked by the running server, with its keys.")
    return {"models": rows}


def _not_by_server(paths: Paths) -> str:
    """Why the running server cannot be asked; empty when it can."""
    changed = "the configuration file was changed, and the running server has not read it yet (`klaw config reload`)"
    try:
        return changed if call(paths, "mcp")["config_changed"] else ""
    except NoServer:
        return "no server is running"
    except RefusedByServer as error:
        return f"the running server says: {error}"


def _test_by_server(paths: Paths, name: str) -> "list[ModelCheck]":
    from klaw.llm.facts import ModelCheck

    try:
        return [ModelCheck(**check) for check in call(paths, "models_test", timeout_s=TEST_S, model=name)["checks"]]
    except (NoServer, RefusedByServer) as error:
        return [ModelCheck("chat", "fails", str(error))]


def _check(check: "ModelCheck") -> str:
    took = "" if check.seconds is None else f", {check.seconds:.1f} s"
    said = check.state if check.name == "chat" and check.state == "works" else f"{check.state}: {check.text}"
    return f"  {check.name:<8} {said}{took}"


def _names(config: "EngineConfig", asked: Sequence[str]) -> list[str]:
    """Whole names of models, without ``asked`` those in use; a provider's name stands for its configured models."""
    from klaw.llm.router import configured_models

    names = [name for _, name in config.routing.places()] + ["/".join(named) for named in config.endpoints.values()]
    if asked:
        known = configured_models(config)
        names = [each for name in asked for each in [k for k in known if k.partition("/")[0] == name] or [name]]
    return list(dict.fromkeys(names))


async def _test(
    config: "EngineConfig", paths: Paths, names: Sequence[str], tell: "Callable[[str, list[ModelCheck]], None]"
) -> None:
    import trio

    from klaw.actor.clock import SystemClock
    from klaw.actor.supervisor import Supervisor
    from klaw.config.llm import LOCAL_PROVIDER
    from klaw.llm.client import without_server
    from klaw.llm.local_model import ACTOR_NAME, LocalModel, LocalProcess
    from klaw.llm.trial import trials_of

    local, clock = LocalModel(), SystemClock()
    llm = without_server(config, clock, local=local)
    trials = [(name, trial) for name in names for trial in trials_of(config, llm, name)]
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, clock)
        if any(name.partition("/")[0] == LOCAL_PROVIDER for name in names):
            await supervisor.start(LocalProcess(config.local_model, paths.models_dir, local).spec())
        for name, trial in trials:
            tell(name, await trial())
        await llm.router.aclose()
        await supervisor.stop(ACTOR_NAME, "the test is over")
        nursery.cancel_scope.cancel(reason="the test is over")


def _calibrated(answer: dict[str, Any]) -> list[str]:
    new, before = answer["calibration"], answer["before"]
    spread = f"standard deviation {new['deviation']:.4f}, {new['pairs']} pairs"
    if before is None:
        change = f"none was stored; now {new['random_cosine']:.4f}"
    else:
        moved = new["random_cosine"] - before["random_cosine"]
        change = f"{before['random_cosine']:.4f} ({before['texts']}) -> {new['random_cosine']:.4f} ({moved:+.4f})"
    path = answer["stored"]
    stored = f"{path}; takes effect when the server is started again" if path else "nothing (--dry-run)"
    texts = f"{answer['conversations']} conversations, {answer['queries']} queries, {answer['messages']} messages"
    return [
        f"model     {answer['model']}",
        f"texts     {new['texts']}: {texts}",
        f"measured  mean cosine {new['random_cosine']:.4f} of unrelated texts, {spread}",
        f"change    {change}",
        f"stored    {stored}",
        "No vector changes: no message has to be embedded again.",
    ]


@command(NOUN, "models_calibrate", Calibrate, cli="calibrate", show=_calibrated)
def calibrate(asked: Calibrate, here: Here) -> dict[str, Any]:
    """Measure how similar unrelated texts look to an embedding model, and store it."""
    # Imported here: they load ONNX Runtime, which no other command needs.
    from klaw.memory.embed.calibration import TOO_ALIKE, built_in, measure, read_talk
    from klaw.memory.embed.model import EmbeddingModel
    from klaw.memory.embed.passage import RECIPE
    from klaw.models.manifest import Calibration, describe, store

    folder = _folder(asked.model, here.paths)
    talks = [read_talk(Path(path)) for path in asked.texts] if asked.texts else built_in()
    stored = describe(folder).calibration
    model = EmbeddingModel.load(folder, threads=CALIBRATION_THREADS)
    try:
        found = measure(model.embed, talks)
    finally:
        model.close()
    if found.mean >= TOO_ALIKE:
        raise ModelError(f"{folder}: all texts are alike to this model (mean cosine {found.mean:.4f}): it is of no use")
    new = Calibration(
        random_cosine=round(found.mean, 4),
        deviation=round(found.deviation, 4),
        pairs=found.pairs,
        recipe=RECIPE,
        texts="own" if asked.texts else "built-in",
    )
    path = None if asked.dry_run else store(folder, model.model_id, new)
    counts = {"conversations": len(talks), "queries": found.queries, "messages": found.messages}
    about = {"calibration": new, "before": stored, "stored": str(path) if path is not None else None}
    return {"model": model.model_id, "folder": str(folder), **counts, **about}


def _folder(wanted: str | None, paths: Paths) -> Path:
    """The folder of a name or path; by default that of the configured model."""
    if wanted is None:
        from klaw.config.load import load

        config = load(paths.config_file)[0].embedding
        if config.provider is not None:
            raise ModelError("embedding.provider is set: such a model is measured when it is first used")
        return config.path or paths.models_dir / config.model
    path = Path(wanted)
    folder = path if path.is_dir() or len(path.parts) > 1 else paths.models_dir / wanted
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such model folder; `klaw models list` names the known models")
    return folder
