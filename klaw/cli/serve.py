"""``klaw serve``."""

import argparse
import errno
import os
import shlex
import sys
from functools import partial
from pathlib import Path

import attrs
import structlog
import trio

from klaw.actor import log as logging
from klaw.actor.failure import error_class, leaves, where
from klaw.cli.output import EX_CONFIG, complain, is_permanent, program
from klaw.config.load import load, unresolved_secrets
from klaw.config.paths import Paths
from klaw.config.run_as import not_usable


def serve_command(arguments: argparse.Namespace) -> int:
    """Run the server until a signal stops it. Returns 0 then; 1 when it cannot start or had to stop; ``EX_CONFIG`` when
    starting it again does not help."""
    try:
        _serve(arguments)
    except Exception as error:  # noqa: BLE001 - nothing above this can do better than name it
        causes = leaves(error)
        if not sum(complain(leaf) for leaf in causes):
            # Class and place only: the error's text may quote what users wrote, and stderr is the service's log.
            structlog.get_logger("klaw.serve").error("server_failed", error=error_class(error), where=where(error))
        if any(is_permanent(leaf) for leaf in causes) or _names_foreign(arguments):
            return EX_CONFIG
        return 1
    return 0


def _names_foreign(arguments: argparse.Namespace) -> bool:
    """Print the owner of a file that stands in the way, whatever the error was: SQLite does not say which it was."""
    found = next(not_usable(Paths.resolve(arguments.home)), None)
    return found is not None and complain(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(found)))


def _serve(arguments: argparse.Namespace) -> None:
    from klaw.app.serve import serve  # a package that it misses is an error like others

    paths = Paths.resolve(arguments.home)
    if arguments.config:
        paths = attrs.evolve(paths, named_config=Path(arguments.config).absolute())
    config_file = paths.config_file
    config, warnings = load(config_file)
    fixed = frozenset({"gateway.port"} if arguments.port is not None else ())
    if arguments.port is not None:
        config = attrs.evolve(config, gateway=attrs.evolve(config.gateway, port=arguments.port))
    for warning in (*warnings, *unresolved_secrets(config)):
        print(f"{logging.priority('warning')}klaw: {config_file}: {warning}", file=sys.stderr)
    logging.configure(config.logging.level, config.logging.format)
    logging.log_what_nobody_caught()

    def ready(url: str) -> None:
        hint = ""
        if config.gateway.http.enabled:
            url, hint = url.replace("ws", "http", 1).removesuffix("ws"), "  (open it in a browser)"
        options = {name: getattr(arguments, name) for name in ("home", "config", "port")}
        given = "".join(f" --{name} {shlex.quote(str(each))}" for name, each in options.items() if each is not None)
        print(f"Klaw listens on {url}{hint}\nChat in another terminal:  {program()} chat{given}", flush=True)

    trio.run(partial(serve, config, paths, on_ready=ready, fixed=fixed))
