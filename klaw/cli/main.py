"""The command line: parses arguments and hands over to the command's own module, which is imported only then."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from klaw import __version__
from klaw.cli.arguments import Parser, add_config, add_home, port

EPILOG = "`klaw COMMAND --help` describes a command. Start with: klaw models pull, klaw serve, klaw chat"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 failed, 2 wrong usage; of the server 78: see there."""
    given = sys.argv[1:] if argv is None else argv
    arguments = parser(given).parse_args(given)
    if not hasattr(arguments, "run"):
        parser().print_help()
        return 2
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from klaw.cli.complain import EX_CONFIG, complain, is_permanent

        if not complain(error):
            raise
        return EX_CONFIG if arguments.run_by_systemd and is_permanent(error) else 1


def parser(given: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The whole command line; for words that are given, at least what they need."""
    root = Parser(prog="klaw", description="A memory-first personal chat agent.", epilog=EPILOG)
    add_home(root, None)
    root.add_argument("--version", action="version", version=f"klaw {__version__}")
    commands = root.new_group()
    _init_command(commands)
    _server_commands(commands)
    _looking_commands(commands)
    _repair_commands(commands)
    _config_commands(commands)
    _models_commands(commands)
    _token_commands(commands)
    _operation_commands(commands, given)
    return root


def _operation_commands(commands: Any, given: Sequence[str] | None) -> None:
    """Add the commands made of operations; their modules are imported only where they are needed."""
    words = [each for each in given or () if not each.startswith("-")]
    if any(each in commands.choices for each in words[:2]):  # the second, where the first is the value of --home
        return
    from klaw.cli import operations
    from klaw.operations import table

    named = (each.replace("-", "_") for each in words[:2])
    own = [each for each in named if each in table.modules()]
    for module in own or table.modules():
        for noun in table.nouns_of(module):
            operations.add(commands, noun)


def _lazy(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A command that imports its module when it is called: `klaw --help` stays quick."""

    def run(arguments: argparse.Namespace) -> int:
        from klaw.config.owner import enter
        from klaw.config.paths import Paths

        enter(Paths.resolve(arguments.home))
        return int(getattr(import_module(f"klaw.cli.{module}"), function)(arguments))

    return run


def _command(
    commands: Any, name: str, text: str, module: str, function: str, *, json: bool = True, inherits: bool = False
) -> Parser:
    """Make a command. ``inherits``: options that stand before its name, with the command above it, count too."""
    command: Parser = commands.add_parser(
        name, help=text, description=text, argument_default=argparse.SUPPRESS if inherits else None
    )
    add_home(command)
    if json:
        default = argparse.SUPPRESS if inherits else False
        command.add_argument("--json", action="store_true", default=default, help="print JSON")
    command.set_defaults(run=_lazy(module, function), run_by_systemd=False)
    return command


def _server_commands(commands: Any) -> None:
    serve = _command(commands, "serve", "run the server", "serve", "serve_command", json=False)
    serve.set_defaults(run_by_systemd=True)
    serve.add_argument("--port", metavar="N", type=port, help="listen on this port (default: gateway.port)")
    chat = _command(commands, "chat", "chat in the terminal, or from a pipe", "chat", "chat_command")
    chat.add_argument("--chat", metavar="NAME", default="main", help="which chat (default: main)")
    chat.add_argument("--url", help="address of the server (default: from the configuration, or $KLAW_URL)")
    chat.add_argument("--port", metavar="N", type=port, help="the server's port, if it is not gateway.port")
    for made in (serve, chat):
        add_config(made)
    chat.add_argument("--token", help="token of the user (better: $KLAW_TOKEN)")
    chat.add_argument("--history", metavar="N", type=int, default=10, help="messages shown at the start (default: 10)")
    chat.add_argument("--no-history", action="store_true", help="show no earlier messages")
    chat.add_argument("--whole", action="store_true", help="in a pipe: all of the input is one message")


def _init_command(commands: Any) -> None:
    init = _command(commands, "init", "make a workspace and a configuration", "init", "init_command")
    init.add_argument("--yes", action="store_true", help="ask nothing: defaults for what no option says")
    init.add_argument(
        "--from", metavar="DIR", dest="source", help="take over the workspace of OpenClaw or a similar agent"
    )
    init.add_argument("--dry-run", action="store_true", help="only say what would be done")
    init.add_argument("--language", metavar="LANG", help="of the prompt files: en or ru (default: the terminal's)")
    init.add_argument("--name", metavar="NAME", help="of the assistant (default: Klaw)")
    init.add_argument("--user", metavar="NAME", help="your name")
    init.add_argument("--provider", metavar="NAME", help="of the model (default: local, the built-in one)")
    init.add_argument("--model", metavar="NAME", help="as the provider calls it")
    init.add_argument("--base-url", metavar="URL", help="address of the provider's API")
    init.add_argument("--key-env", metavar="VARIABLE", help="environment variable that holds the provider's key")


def _looking_commands(commands: Any) -> None:
    doctor = _command(commands, "doctor", "check an installation, running or stopped", "doctor", "doctor_command")
    doctor.add_argument("--full", action="store_true", help="read every log line, index and model file in full")


def _repair_commands(commands: Any) -> None:
    text = "rebuild the database from the logs, compare the two, and swap them"
    reindex = _command(commands, "reindex", text, "reindex", "reindex_command")
    reindex.add_argument("--accept-differences", action="store_true", help="swap although the new one differs")
    reindex.add_argument("--embed-again", action="store_true", help="make all vectors again (default: take them over)")
    reindex.add_argument("--drop-old", action="store_true", help="only remove the old database of the last reindex")


def _group(commands: Any, name: str, text: str) -> Any:
    group: Parser = commands.add_parser(name, help=text, description=text)
    add_home(group)

    def run(_arguments: argparse.Namespace) -> int:
        group.print_help()
        return 2

    group.set_defaults(run=run)
    return group.new_group()


def _config_commands(commands: Any) -> None:
    group = _group(commands, "config", "check, show or describe the configuration")
    check = _command(group, "check", "check the configuration and name every problem", "config", "check_command")
    show = _command(group, "show", "show the configuration as it takes effect", "config", "show_command")
    for made in (check, show):
        add_config(made)
    describe = _command(
        group, "describe", "tell of each key its type, default and meaning", "config", "describe_command"
    )
    describe.add_argument("key", metavar="KEY", nargs="?", help="this one, or a section with all in it (default: all)")
    _command(group, "schema", "print the JSON schema of the configuration", "config", "schema_command")


def _models_commands(commands: Any) -> None:
    group = _group(commands, "models", "fetch, list, test and calibrate models")
    pull = _command(group, "pull", "fetch models and make them usable", "models", "pull_command")
    pull.add_argument("names", nargs="*", metavar="NAME", help="which models (default: all)")
    pull.add_argument("--verify", action="store_true", help="check the checksums of what is there already")
    listing = _command(group, "list", "list known models and whether they are here", "models", "list_command")
    listing.add_argument("--verify", action="store_true", help="check the checksums")
    listing.add_argument("names", nargs="*", metavar="NAME", help="which models (default: all)")
    test = _command(group, "test", "ask models a few tiny questions, and say what works", "models_test", "test_command")
    test.add_argument(
        "names", nargs="*", metavar="NAME", help="PROVIDER/MODEL or PROVIDER (default: all models of routing)"
    )
    calibrate = _command(
        group,
        "calibrate",
        "measure how alike unrelated texts are to an embedding model",
        "calibrate",
        "calibrate_command",
    )
    calibrate.add_argument(
        "model", nargs="?", metavar="NAME_OR_FOLDER", help="which model (default: the one that the configuration names)"
    )
    calibrate.add_argument(
        "--texts",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="measure on these instead of the built-in ones: one text a line, or a conversation as JSON",
    )
    calibrate.add_argument("--dry-run", action="store_true", help="measure and store nothing")


def _token_commands(commands: Any) -> None:
    group = _group(commands, "token", "make, list and revoke access tokens")
    add = _command(group, "add", "make a token for a user and print it once", "token", "add_command")
    add.add_argument("name", metavar="NAME", help="the user: a-z, 0-9, _ and -")
    _command(group, "list", "list the tokens", "token", "list_command")
    revoke = _command(group, "revoke", "revoke a user's tokens", "token", "revoke_command")
    revoke.add_argument("name", metavar="NAME_OR_ID", help="all tokens of a user, or one token by its id")
    allow = "let connections from this machine in without a token, as user local"
    _command(group, "allow-local", allow, "token", "allow_local_command")
    deny = "ask connections from this machine for a token too (so it is after the first token add)"
    _command(group, "deny-local", deny, "token", "deny_local_command")


if __name__ == "__main__":
    sys.exit(main())
