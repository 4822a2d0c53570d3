"""``klaw receipt``: what an answer was made from. Asks the server; without one reads the database."""

import argparse
from typing import Any

from klaw.cli.admin_call import NoServer, Refused, call, fail, line, print_json, table
from klaw.config.paths import Paths
from klaw.domain.names import LOCAL_USER
from klaw.errors import KlawError

_CANDIDATE_HEAD = ["seq", "role", "vector", "distance", "text", "bm25", "score", "tokens", "decision"]
_CANDIDATE_NUMBERS = frozenset({0, 2, 3, 4, 5, 6, 7})


def receipt_command(args: argparse.Namespace) -> int:
    """Prints a turn's receipt: of the given turn, else the newest of ``--chat`` (of ``--user``), of ``--user``, of
    all. 1 when there is none."""
    paths = Paths.resolve(args.home)
    wanted = _wanted(args)
    try:
        try:
            answer = call(paths, "receipt", **wanted)
        except NoServer:
            if not paths.database.is_file():
                raise
            answer = _read(paths, wanted)
    except KlawError as error:
        return fail(error)
    if args.json:
        print_json(answer)
    else:
        print("\n".join(lines(answer)))
    return 0


def _wanted(args: argparse.Namespace) -> dict[str, str | None]:
    if args.turn is not None:
        return {"turn": args.turn}
    user = getattr(args, "user", None)
    if args.chat is not None:
        return {"chat": args.chat if ":" in args.chat else f"{user or LOCAL_USER}:{args.chat}"}
    return {"user": user}


def _read(paths: Paths, wanted: dict[str, str | None]) -> dict[str, Any]:
    """Read the database, which no server has open.

    Raises:
        Refused: there is no such turn.
        StorageError: it cannot be read.
    """
    from klaw.admin.answers import check_receipt, turn_json
    from klaw.admin.requests import BadRequest, Receipt
    from klaw.store.offline import read_offline
    from klaw.store.sql.overview import find_turn

    try:
        return turn_json(read_offline(paths.database, find_turn, *check_receipt(Receipt(**wanted))))
    except BadRequest as error:
        raise Refused(error.code, str(error)) from None


# -- the text ----------------------------------------------------------------------------------------------------------


def lines(answer: dict[str, Any]) -> list[str]:
    """The receipt as text."""
    receipt = answer["receipt"]
    out = _turn(answer)
    if not receipt:
        return [*out, "", "No context was put together for this turn."]
    out += ["", *_budget(receipt["budget"]), "", *_layers(receipt["layers"]), "", *_window(receipt["window"]), ""]
    out += _recall(receipt["recall"])
    out += [f"problem: {line(str(problem))}" for problem in receipt.get("problems", [])]
    return out


def _turn(answer: dict[str, Any]) -> list[str]:
    timings = ", ".join(f"{step} {spent:g} ms" for step, spent in answer["timings"].items())
    usage = ", ".join(f"{name} {value}" for name, value in answer["usage"].items() if value is not None)
    error = f" ({answer['error']})" if answer["error"] else ""
    rows = [
        ["turn", answer["id"]],
        ["chat", f"{answer['chat']}, segment {answer['segment']}"],
        ["answers", f"messages {answer['first_seq']} to {answer['last_seq']}"],
        ["model", answer["model"] or "none"],
        ["status", f"{answer['status']}{error}, {answer['started_at']} to {answer['ended_at']}"],
        ["timings", timings or "none"],
        ["usage", usage or "not reported"],
    ]
    return table([[name, line(text)] for name, text in rows])


def _budget(budget: dict[str, Any]) -> list[str]:
    spent = f"{budget['used_tokens']} of {budget['usable_tokens']} usable tokens"
    reserve = f"reserved for the reply {budget['reply_reserve_tokens']}"
    return [f"budget  {spent} (context {budget['context_tokens']}, {reserve}, correction {budget['correction']})"]


def _layers(layers: list[dict[str, Any]]) -> list[str]:
    rows = [["layer", "tokens", ""]]
    rows += [[line(each["name"]), str(each["tokens"]), "shortened" if each.get("shortened") else ""] for each in layers]
    return table(rows, right=frozenset({1}))


def _window(window: dict[str, Any]) -> list[str]:
    if not window["messages"]:
        return ["window  empty"]
    shown = f"window  {window['messages']} messages, {window['first_seq']} to {window['last_seq']}"
    older = ", older ones are in the segment" if window["older_in_segment"] else ""
    return [f"{shown}; left out {window['left_out']}{older}"]


def _recall(recall: dict[str, Any]) -> list[str]:
    kept = ", ".join(map(str, recall["kept"])) or "nothing"
    timings = ", ".join(f"{step} {spent:g} ms" for step, spent in recall["timings_ms"].items())
    out = [
        f"recall  {recall['guard']}; recalled: {kept}; {recall['query_words']} content words in the question"
        + (f"; {timings}" if timings else "")
    ]
    if recall["degraded"]:
        out.append(f"        degraded: {line(', '.join(recall['degraded']))}")
    if recall["candidates"]:
        rows = [_CANDIDATE_HEAD, *map(_candidate, recall["candidates"])]
        out += ["", *table(rows, right=_CANDIDATE_NUMBERS)]
    return out


def _candidate(each: dict[str, Any]) -> list[str]:
    decision = each["decision"] + (" (excerpt)" if each.get("excerpt") else "")
    cells = [each[name] for name in ("seq", "role", "vector_rank", "distance", "text_rank", "bm25", "score", "tokens")]
    return [line("-" if cell is None else str(cell)) for cell in cells] + [line(decision)]
