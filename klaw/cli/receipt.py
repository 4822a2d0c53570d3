"""``klaw receipt``: what an answer was made from. Asks the server; without one reads the database."""

import argparse
from typing import TYPE_CHECKING, Any

import attrs

from klaw.cli.admin_call import Refused, ask, fail, line, print_json
from klaw.config.paths import Paths
from klaw.domain.names import LOCAL_USER
from klaw.errors import KlawError

if TYPE_CHECKING:
    from klaw.domain.message import Message
    from klaw.domain.turn import TurnRecord


def receipt_command(args: argparse.Namespace) -> int:
    """Prints a turn's receipt: of the given turn, else the newest of ``--chat`` (of ``--user``), of ``--user``, of
    all; with ``--why`` what it did with one message. 1 when there is none."""
    from klaw.cli.receipt_text import lines, why_lines

    paths = Paths.resolve(args.home)
    wanted = _wanted(args)
    try:
        answer = ask(paths, "receipt", wanted, lambda: _read(paths, wanted))
    except KlawError as error:
        return fail(error)
    if args.json:
        print_json(answer)
    else:
        print("\n".join(why_lines(answer) if "why" in answer else lines(answer)))
    return 0


def _wanted(args: argparse.Namespace) -> dict[str, str | None]:
    why = getattr(args, "why", None)
    if args.turn is not None:
        return {"turn": args.turn, "why": why}
    user = getattr(args, "user", None)
    if args.chat is not None:
        return {"chat": args.chat if ":" in args.chat else f"{user or LOCAL_USER}:{args.chat}", "why": why}
    return {"user": user, "why": why}


def _read(paths: Paths, wanted: dict[str, str | None]) -> dict[str, Any]:
    """Read the database, which no server has open.

    Raises:
        Refused: there is no such turn or message.
        StorageError: it cannot be read.
        ConfigError: the configuration is wrong.
    """
    from klaw.admin import recalled, why
    from klaw.admin.answers import check_receipt, turn_json
    from klaw.admin.requests import BadRequest, Receipt, parse_args
    from klaw.operations.short_ids import MOST_TOLD, only
    from klaw.store import message_location
    from klaw.store.overview import beginning_with, find_turn
    from klaw.store.store import read_offline

    try:
        request = parse_args(Receipt, {name: value for name, value in wanted.items() if value is not None})
        if request.turn is not None:
            found = read_offline(paths.database, beginning_with, "turn", LOCAL_USER, request.turn, MOST_TOLD + 1)
            request = attrs.evolve(request, turn=only(found, "turn") or request.turn)
        turn = read_offline(paths.database, find_turn, *check_receipt(request))
        answer = turn_json(turn)
        if turn is None or request.why is None:
            return answer
        target = recalled.check_message(request.why, turn)
        message = why.choose(read_offline(paths.database, message_location.find, target))
    except BadRequest as error:
        raise Refused(error.code, line(str(error))) from None
    told = recalled.explain_message(turn, message)
    return {**answer, "why": _searched(paths, told, turn, message) if recalled.needs_search(told) else told}


def _searched(paths: Paths, told: dict[str, Any], turn: "TurnRecord", message: "Message") -> dict[str, Any]:
    """Search again with the model, if it is there, loaded into this process."""
    import trio

    from klaw.actor import log
    from klaw.admin import recalled
    from klaw.config.load import load
    from klaw.memory.recall.offline_recall import open_recall
    from klaw.store import overview
    from klaw.store.store import read_offline

    log.configure("error", "auto")
    config, _ = load(paths.config_file)
    folder = config.embedding.path or paths.models_dir / config.embedding.model
    stored = read_offline(paths.database, overview.stored_recall, turn)

    async def search() -> dict[str, Any]:
        async with open_recall(paths.database, config, folder) as offline:
            found = await recalled.search_again(offline.readers, offline.embedder, config.auto_rag, stored, message)
            if found is not None and offline.missing is not None:
                found["degraded"].append(offline.missing)
            return recalled.with_search(told, found)

    return trio.run(search)
