"""``forget`` of the admin socket.

Its answers hold numbers and names of files, and of a person its names and the facts that name it: they go to
the terminal of whoever asks, who is the server's own user, and never into a log.
"""

from typing import Any

import attrs

from klaw.admin.answers import check_user
from klaw.admin.forget_requests import Forget
from klaw.admin.requests import BadRequest
from klaw.domain.names import LOCAL_USER, UserId
from klaw.memory.forget.finding import NothingToForget
from klaw.memory.forget.forget import Forgetter, Preview
from klaw.store.forget.logs import Held


async def run_forget(forgetter: Forgetter, request: Forget) -> dict[str, Any]:
    """Forget, or (``dry_run``) say what would go and what holds it.

    Raises:
        BadRequest: ``nothing_to_forget``, ``bad_args``.
        StorageError: see ``Forgetter.forget``.
    """
    user = _user(request.user)
    try:
        wanted = await forgetter.find(request.what, user, with_messages=request.with_messages)
        if request.dry_run:
            before = await forgetter.preview(wanted, with_facts=request.with_facts, everywhere=True)
            return {"forgotten": False, **preview_json(before)}
        proof = await forgetter.forget(wanted, with_facts=request.with_facts, everywhere=True)
    except NothingToForget as error:
        raise BadRequest("nothing_to_forget", f"args.what: {error}") from None
    return {
        "forgotten": True,
        **preview_json(proof.before),
        "entry": proof.entry,
        "lines": proof.lines,
        "vacuumed": proof.vacuumed,
        "still_held": [_held_json(each) for each in proof.held],
        "still_named": dict(proof.still_named),
    }


def preview_json(before: Preview) -> dict[str, Any]:
    """What goes, and where it is."""
    scope = before.scope
    return {
        "user": scope.user,
        "messages": [
            {"chat": each.chat, "seq": each.seq, "id": each.id} for each in scope.own if each.rowid not in scope.shown
        ],
        "facts": list(scope.facts),
        "kept_facts": list(scope.kept_facts),
        "topics": list(scope.topics),
        "summaries": [f"{chat}#{number}" for chat, number in scope.summaries],
        "things": [attrs.asdict(each) for each in before.things],
        "people": list(scope.people),
        "kept_people": list(scope.kept_people),
        "named": _named_json(before),
        "rows": {name: len(rows) for name, rows in before.looked.rows.items() if rows}
        | {name: count for name, count in before.looked.kept.items() if count},
        "again": [{"chat": each.chat, "seq": each.seq, "id": each.id} for each in before.again],
        "searched": bool(before.looked.pieces),
        "held": [_held_json(each) for each in before.held],
        "aside": [{"path": each.path, "remedy": each.remedy} for each in before.aside],
    }


def _held_json(held: Held) -> dict[str, Any]:
    return {**attrs.asdict(held), "remedy": held.remedy}


def _named_json(before: Preview) -> dict[str, Any] | None:
    """Of a person: what names it."""
    named = before.named
    if named is None:
        return None
    return {
        "names": list(named.names),
        "namesakes": list(named.namesakes),
        "facts": [{"id": fact, "text": text} for fact, text in named.facts.items()],
        "messages": len(named.messages),
        "staying": [{"chat": each.chat, "seq": each.seq, "id": each.id} for each in before.naming],
        "topics": list(named.topics),
        "summaries": [f"{chat}#{number}" for chat, number in named.summaries],
        "others": dict(named.others),
    }


def _user(name: str | None) -> UserId:
    return check_user(name) if name is not None else UserId(LOCAL_USER)
