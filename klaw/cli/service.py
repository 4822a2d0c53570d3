"""``klaw service``: Klaw as a service of systemd: install, look at it, uninstall."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs

from klaw.cli.admin_call import NoServer, RefusedByServer, call
from klaw.cli.operations import Here, command
from klaw.config.paths import Paths
from klaw.convert import Bounds
from klaw.operations.lines import ShownLines, Table, size
from klaw.operations.operation import Nothing, Noun, OperationError, argument

if TYPE_CHECKING:
    from klaw.service.install import Machine, MachineStep

NOUN = Noun("service", "run Klaw as a service of systemd (docs/operations.md)", local=True, of_machine=True)


@attrs.frozen(kw_only=True)
class MachineArguments:
    dry_run: bool = argument("only show what would be done", default=False)
    root: str | None = argument("work on the machine below this folder, as DESTDIR does; starts nothing", metavar="DIR")


@attrs.frozen(kw_only=True)
class Install(MachineArguments):
    user: str | None = argument("the system user that it runs as (default: klaw); made if missing", metavar="NAME")
    start: bool = argument("also start it", default=False)
    extras: tuple[Literal["node-mcp", "bubblewrap"], ...] = argument(
        "loosen the sandbox for node-mcp (MCP servers on Node.js) or bubblewrap (the sandbox of host_exec)",
        default=(),
        metavar="WHAT",
        option="--with",
    )
    workspace: str | None = argument("keep the workspace here (default: in the home)", metavar="DIR")
    source: str | None = argument("copy models from this folder, for instance a stick", metavar="DIR", option="--from")
    models: bool = argument("leave the models alone", default=True, option="--no-models")
    program: str | None = argument("the klaw command that the service runs (default: this one)", metavar="PATH")


@attrs.frozen(kw_only=True)
class Logs:
    follow: bool = argument("follow the log", default=False, option="-f")
    lines: Annotated[int, Bounds(1, 1_000_000)] = argument("how many (default: 100)", default=100, metavar="N")


def _machine(asked: MachineArguments, here: Here) -> "Machine":
    from klaw.service.install import Machine, require_system

    root = Path(asked.root).absolute() if asked.root else Path("/")
    machine = Machine(root=root, dry_run=asked.dry_run, tell=lambda step: here.say(*_lines(step)))
    require_system(machine)
    if asked.dry_run:
        here.say("dry run: nothing is done")
    return machine


def _real(path: str | PurePosixPath, machine: "Machine") -> PurePosixPath:
    """A folder's path without links, which the sandbox does not open."""
    place = Path(path).expanduser()
    return PurePosixPath(place.resolve() if machine.real else place.absolute())


def _lines(step: "MachineStep") -> list[str]:
    return [f"{step.outcome:<8} {step.what}" + (f"  ({step.why})" if step.why else ""), *step.diff]


def _done(answer: dict[str, Any]) -> ShownLines:
    return ShownLines((), found=answer["well"])


@command(NOUN, "service_install", Install, cli="install", show=_done)
def install(asked: Install, here: Here) -> dict[str, Any]:
    """Make user, folders, units, environment file and models, and enable the service. What is there stays, so it can be
    repeated, for instance after an update. The exit code is 1 if something failed, or a file that somebody edited was
    kept."""
    from klaw.service.install import install, pull_models, this_program
    from klaw.service.units import ServiceInstallation, told, unit_in

    source = Path(asked.source).expanduser() if asked.source else None
    if source is not None and not source.is_dir():
        raise OperationError("bad_args", f"{source} is not a folder", field="source")
    machine = _machine(asked, here)
    unit = unit_in(machine.root)
    user, place = told(unit.read_text(encoding="utf-8") if unit else "")
    place = _real(here.home or place, machine)
    link = machine.at(place / "workspace")
    workspace = asked.workspace or (place / link.readlink() if link.is_symlink() else None)  # that of the first time
    wanted = ServiceInstallation(
        program=PurePosixPath(asked.program) if asked.program else this_program(),
        user=asked.user or user,
        home=place,
        extras=tuple(dict.fromkeys(asked.extras)),
        workspace=_real(workspace, machine) if workspace else None,
    )
    pull = asked.models and machine.real and not asked.dry_run
    models = (lambda each: pull_models(each, source, quiet=here.quiet)) if pull else None
    install(wanted, machine, start=asked.start, models=models)
    if not any(step.outcome in ("made", "changed", "done", "failed") or step.diff for step in machine.steps):
        here.say("All was there already.")
    if machine.real and not asked.dry_run and machine.well:
        here.say(f"Configuration: {wanted.home}/config/engine.yaml. How it is: klaw service status")
    return {"well": machine.well, "steps": machine.steps, "home": str(wanted.home), "user": wanted.user}


@command(NOUN, "service_uninstall", MachineArguments, cli="uninstall", show=_done)
def uninstall(asked: MachineArguments, here: Here) -> dict[str, Any]:
    """Stop the service and remove its units. Data, configuration and user stay."""
    from klaw.service.install import uninstall
    from klaw.service.units import ENVIRONMENT, owner_and_home

    machine = _machine(asked, here)
    user, home = owner_and_home(machine.root)
    uninstall(machine)
    here.say(f"Everything that Klaw knows stays in {home} (user {user}), keys in {ENVIRONMENT}.")
    return {"well": machine.well, "steps": machine.steps, "home": str(home), "user": user}


def _status(answer: dict[str, Any]) -> ShownLines:
    from klaw.operations.status import STATUS

    unit, timer = answer["service"], answer["backups"]
    memory = unit["MemoryCurrent"]
    since = f" since {unit['ActiveEnterTimestamp']}" if unit["ActiveEnterTimestamp"] else ""
    ended = "" if unit["Result"] == "success" else f", last result: {unit['Result']}"
    enabled = unit["UnitFileState"] or "not enabled"
    rows = [
        ["service", f"{unit['ActiveState']} ({unit['SubState']}){since}, {enabled}{ended}"],
        ["restarts", f"{unit['NRestarts']} by systemd"],
        *([["memory", f"{size(int(memory))} with its child processes"]] if memory.isdecimal() else []),
        ["backups", f"timer {timer['ActiveState']}, the last one: {timer['LastTriggerUSec'] or 'none yet'}"],
    ]
    if answer["server"] is None:
        return ShownLines([Table(rows), answer["error"]], found=False)
    shown = STATUS.operations[0].show(answer["server"])
    lines = shown.lines if isinstance(shown, ShownLines) else shown
    return ShownLines([Table(rows), *lines], found=unit["ActiveState"] == "active")


@command(NOUN, "service_status", Nothing, cli="status", show=_status)
def status(_asked: Nothing, here: Here) -> dict[str, Any]:
    """Show what systemd says of the service, and the server itself. The exit code is 1 unless it runs and answers."""
    from klaw.service.units import SERVICE, TIMER, owner_and_home, state

    paths = Paths.resolve(here.home or str(owner_and_home()[1]))
    found: dict[str, Any] = {"service": state(SERVICE), "backups": state(TIMER, "ActiveState", "LastTriggerUSec")}
    try:
        return {**found, "server": call(paths, "status"), "error": None}
    except (NoServer, RefusedByServer, PermissionError) as error:
        return {**found, "server": None, "error": f"the server does not answer ({error}): klaw service logs"}


@command(NOUN, "service_logs", Logs, cli="logs", show=lambda answer: ShownLines((), found=not answer["code"]))
def logs(asked: Logs, _here: Here) -> dict[str, Any]:
    """Show the service's log. Ctrl-C ends it."""
    from klaw.service.units import logs

    return {"code": logs(follow=asked.follow, lines=asked.lines)}
