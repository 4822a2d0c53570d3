"""``klaw recall-replay``: what stored turns would recall under other settings. Reads the database; a running server is
not asked and not disturbed."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from klaw.cli.admin_call import fail, line, print_json, table
from klaw.config.paths import Paths
from klaw.domain.names import LOCAL_USER
from klaw.domain.text import plural
from klaw.errors import ConfigError, KlawError, Problem

if TYPE_CHECKING:
    from klaw.config.schema import EngineConfig
    from klaw.domain.search import Candidate
    from klaw.memory.recall.replay import Replayed
    from klaw.store.overview import StoredRecall

SNIPPET_CHARACTERS = 90
_UNCHANGEABLE = {
    "minMessageTokens": "decides which messages get a vector, so trying it takes other vectors, not another search",
}
_NO_VECTORS = {
    "embedding_off": "embedding.enabled is false: by words only",
    "no_vectors": "there are no vectors yet: by words only",
    "no_model": "the embedding model is not here (klaw models pull): by words only",
    "other_model": "the stored vectors are of another embedding model: by words only",
}


class NoTurns(KlawError):
    """There is nothing to replay."""


def replay_command(args: argparse.Namespace) -> int:
    """Prints for each turn what would be recalled more or less, and the sums. 1 when there is no such turn, or a
    setting is wrong."""
    import trio

    from klaw.actor import log
    from klaw.config.load import load

    paths = Paths.resolve(args.home)
    log.configure("error", "auto")
    try:
        config, _ = load(paths.config_file)
        changed = read_settings(config, args.set)
        stored = _turns(paths, args)
        replayed, missing = trio.run(_replay, paths, config, changed, stored)
    except ConfigError as error:
        for problem in error.problems:
            print(f"klaw: {line(str(problem))}", file=sys.stderr)
        return 1
    except KlawError as error:
        return fail(error)
    report = as_json(replayed, len(stored), missing, args.set, text=not args.no_text)
    if args.json:
        print_json(report)
    else:
        print("\n".join(lines(report, every=bool(args.turn))))
    return 0


def read_settings(config: "EngineConfig", given: Sequence[str]) -> "EngineConfig":
    """The configuration with the settings that are to be tried.

    Raises:
        ConfigError: one is unknown, breaks its rule, or cannot be tried.
    """
    from klaw.config.load import override_section

    changed = override_section(config, "autoRag", given)
    keys = (each.partition("=")[0].strip().partition(".")[2] for each in given)
    refused = [Problem(path=f"autoRag.{key}", message=_UNCHANGEABLE[key]) for key in keys if key in _UNCHANGEABLE]
    if refused:
        raise ConfigError(refused)
    return changed


def _turns(paths: Paths, args: argparse.Namespace) -> "list[StoredRecall]":
    from klaw.admin.answers import check_chat, check_user
    from klaw.admin.requests import BadRequest
    from klaw.store import overview
    from klaw.store.store import read_offline

    if not paths.database.is_file():
        raise NoTurns(f"there is no database in {paths.data_dir}")
    try:
        user = check_user(args.user) if args.user is not None else None
        chat = None
        if args.chat is not None:
            chat = check_chat(args.chat if ":" in args.chat else f"{user or LOCAL_USER}:{args.chat}")
    except BadRequest as error:
        raise NoTurns(str(error).removeprefix("args.")) from None
    if args.turn:
        stored = read_offline(paths.database, overview.recalls_of, args.turn)
        unknown = sorted(set(args.turn) - {each.turn.id for each in stored})
        if unknown:
            raise NoTurns(f"there is no turn {', '.join(unknown)}")
    else:
        stored = read_offline(paths.database, overview.newest_recalls, chat, user, args.last)
    if not stored:
        raise NoTurns("there are no turns yet")
    return stored


async def _replay(
    paths: Paths, config: "EngineConfig", changed: "EngineConfig", stored: "Sequence[StoredRecall]"
) -> "tuple[list[Replayed], str | None]":
    from klaw.memory.recall.offline_recall import open_recall
    from klaw.memory.recall.replay import replay

    folder = config.embedding.path or paths.models_dir / config.embedding.model
    async with open_recall(paths.database, config, folder) as offline:
        done = [await replay(offline, each, config.auto_rag, changed.auto_rag) for each in stored]
    return [each for each in done if each is not None], offline.missing


# -- the answer --------------------------------------------------------------------------------------------------------


def as_json(
    replayed: "Sequence[Replayed]", turns: int, missing: str | None, changes: Sequence[str], *, text: bool
) -> dict[str, Any]:
    """The outcome as plain JSON values; with ``text`` it holds the questions and pieces of the messages."""
    from klaw.memory.recall.replay import totals

    return {
        "set": list(changes),
        "turns": turns,
        "not_searched": turns - len(replayed),
        "no_vectors": missing,
        "totals": totals(replayed),
        "changes": [_turn(each, text=text) for each in replayed],
    }


def _turn(each: "Replayed", *, text: bool) -> dict[str, Any]:
    turn = each.stored.turn
    before, after = each.tokens
    return {
        "turn": turn.id,
        "chat": turn.chat,
        "started_at": turn.started_at,
        "pending": turn.receipt["pending"],
        **({"question": _snippet(each.stored.question)} if text else {}),
        "changed": each.changed,
        "kept_then": each.kept_then,
        "before": {"kept": sorted(each.kept(each.before)), "tokens": before, "degraded": list(each.before.degraded)},
        "after": {"kept": sorted(each.kept(each.after)), "tokens": after, "degraded": list(each.after.degraded)},
        "more": [_message(one, text=text) for one in each.gained],
        "less": [_message(one, text=text) for one in each.lost],
    }


def _message(candidate: "Candidate", *, text: bool) -> dict[str, Any]:
    message = candidate.message
    return {
        "seq": message.seq,
        "role": message.role.value,
        "created_at": message.created_at,
        "tokens": candidate.tokens,
        **({"text": _snippet(candidate.text)} if text else {}),
    }


def _snippet(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= SNIPPET_CHARACTERS else shown[: SNIPPET_CHARACTERS - 1] + "…"


# -- the text ----------------------------------------------------------------------------------------------------------


def lines(report: dict[str, Any], *, every: bool = False) -> list[str]:
    """The outcome as text: the turns that change, or ``every`` one, and the sums."""
    out = []
    for each in report["changes"]:
        if each["changed"] or every:
            out += [*_turn_lines(each), ""]
    return [*out, *_totals(report)]


def _turn_lines(each: dict[str, Any]) -> list[str]:
    asked = ", ".join(map(str, each["pending"]))
    out = [f"turn {line(each['turn'])}, {line(each['chat'])}, {each['started_at']}, message {asked}"]
    if "question" in each:
        out.append(f"  ? {line(each['question'])}")
    for mark, key in (("+", "more"), ("-", "less")):
        for one in each[key]:
            text = f"  {line(one['text'])}" if "text" in one else ""
            out.append(f"  {mark} {one['seq']}  {one['role']}  {one['created_at'][:10]}{text}")
    before, after = each["before"], each["after"]
    out.append(
        f"  recalled {_seqs(before['kept'])} -> {_seqs(after['kept'])}, tokens {before['tokens']} -> {after['tokens']}"
    )
    for name, side in (("now", before), ("changed", after)):
        if side["degraded"]:
            out.append(f"  degraded ({name}): {line(', '.join(side['degraded']))}")
    return out


def _seqs(seqs: Sequence[int]) -> str:
    return ", ".join(map(str, seqs)) or "nothing"


def _totals(report: dict[str, Any]) -> list[str]:
    totals = report["totals"]
    before, after = totals["before"], totals["after"]
    names = {
        "recalled": "recalled messages",
        "tokens": "their tokens",
        "turns_with_nothing": "turns with nothing recalled",
        "turns_cut_short": "turns with something degraded",
    }
    settings = line(", ".join(report["set"]))
    out = [f"{plural(totals['turns'], 'turn')} searched again, {totals['changed']} changed by {settings}"]
    rows = [["", "now", "changed"]]
    rows += [[text, str(before[name]), str(after[name])] for name, text in names.items()]
    out += table(rows, right=frozenset({1, 2}))
    if report["not_searched"]:
        out.append(
            f"{plural(report['not_searched'], 'more turn')} had nothing to search: the window held all of the segment."
        )
    if totals["unlike_then"]:
        out.append(
            f"{plural(totals['unlike_then'], 'turn')} recalled something else at the time: messages got their vectors"
            " later, or the settings or the version were others."
        )
    if report["no_vectors"] is not None:
        out.append(f"note: {_NO_VECTORS[report['no_vectors']]}.")
    return out
