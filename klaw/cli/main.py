"""The command line: parses arguments and calls the command's own module, which is imported only then."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from klaw import __version__
from klaw.cli.arguments import Parser, add_config, add_home, port

LOCAL = (
    "backup", "channels", "config", "connect", "doctor", "export", "imports", "init", "mcp", "models", "reindex",
    "service", "token", "update",
)  # fmt: skip
"""Modules of this package with commands that need no server."""
EPILOG = "`klaw COMMAND --help` describes a command. Start with: klaw init, klaw serve, klaw chat"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 failed, 2 wrong usage; 78: see ``serve``."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that does not know all letters
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
        from klaw.cli.output import EX_CONFIG, complain, is_permanent, warn

        if not complain(error):
            if not isinstance(error, OSError) or error.filename is None:
                raise
            warn(f"{error.filename}: {error.strerror}")  # a disk that is full or read-only, a folder for a file
        return EX_CONFIG if arguments.run_by_systemd and is_permanent(error) else 1


def parser(given: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The whole command line; for given words, at least what they need."""
    root = Parser(prog="klaw", description="A memory-first personal chat agent.", epilog=EPILOG)
    add_home(root, None)
    root.add_argument("--version", action="version", version=f"klaw {__version__}")
    commands = root.new_group()
    _server_commands(commands)
    _operation_commands(commands, given)
    return root


def _operation_commands(commands: Any, given: Sequence[str] | None) -> None:
    """Add the commands made of operations; their modules are imported only where they are needed."""
    words = list(given or ())
    while words and words[0].startswith("-"):
        words = words[2 if words[0] == "--home" else 1 :]
    if words and words[0] in commands.choices:
        return
    from klaw.cli import operations
    from klaw.operations.perform import IN_MODULE, modules, nouns_of

    known = [("operations", each) for each in modules()] + [("cli", each) for each in LOCAL]
    named = {IN_MODULE.get(each, each) for each in words[:1]}
    chosen = [each for each in known if each[1].rpartition(".")[2] in named] or known
    every = [noun for folder, name in chosen for noun in nouns_of(f"klaw.{folder}.{name}")]
    for noun in dict.fromkeys(every):  # once all modules are there: one may add to the noun of another
        group = operations.add(commands, noun)
        if noun.word == "mcp" and noun.local:
            _mcp_serve(group)


def _command(commands: Any, name: str, text: str, group: str = "") -> Parser:
    """Make a command: ``NAME_command`` of the module of its name, or ``GROUP_NAME_command`` of its group's, imported
    when it is called, so that `klaw --help` stays quick."""

    def run(arguments: argparse.Namespace) -> int:
        from klaw.config.paths import Paths
        from klaw.config.run_as import enter

        enter(Paths.resolve(arguments.home))
        function = f"{group}_{name}_command".lstrip("_")
        return int(getattr(import_module(f"klaw.cli.{group or name}"), function)(arguments))

    command: Parser = commands.add_parser(name, help=text, description=text)
    add_home(command)
    command.set_defaults(run=run, run_by_systemd=name == "serve" and not group)
    return command


def _mcp_serve(commands: Any) -> None:
    made = _command(commands, "serve", "offer Klaw's memory as MCP tools to a program of this machine, on stdio", "mcp")
    made.add_argument("--user", metavar="NAME", default="local", help="whose memory (default: local)")
    client = "how the program is called where a fact names what saved it (default: stdio)"
    made.add_argument("--client", metavar="NAME", default="stdio", help=client)


def _server_commands(commands: Any) -> None:
    serve = _command(commands, "serve", "run the server")
    serve.add_argument("--port", metavar="N", type=port, help="listen on this port (default: gateway.port)")
    chat = _command(commands, "chat", "chat in the terminal, ask one question, or chat from a pipe")
    chat.add_argument("--json", action="store_true", help="print JSON")
    question = "ask only this, with what is piped in below it"
    chat.add_argument("question", metavar="QUESTION", nargs="*", help=question)
    chat.add_argument("--chat", metavar="NAME", default="main", help="which chat (default: main)")
    chat.add_argument(
        "--temporary", action="store_true", help="a new chat that is deleted a day after its last message"
    )
    chat.add_argument("--url", help="address of the server (default: from the configuration, or $KLAW_URL)")
    chat.add_argument("--port", metavar="N", type=port, help="the server's port, if it is not gateway.port")
    for made in (serve, chat):
        add_config(made)
    chat.add_argument("--token", help="token of the user (better: $KLAW_TOKEN)")
    chat.add_argument("--history", metavar="N", type=int, default=10, help="messages shown at the start (default: 10)")
    chat.add_argument("--no-history", action="store_true", help="show no earlier messages")
    chat.add_argument("--thinking", action="store_true", help="show what the model thinks (not in a pipe)")
    chat.add_argument("--whole", action="store_true", help="in a pipe: all of the input is one message")


if __name__ == "__main__":
    sys.exit(main())
