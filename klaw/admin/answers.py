"""Parts of answers that ``klaw receipt`` also makes without a server. Pure."""

from typing import Any

import attrs

from klaw.admin.requests import BadRequest, Receipt
from klaw.domain.names import ChatId, InvalidName, UserId, chat_id, user_id
from klaw.domain.turn import TurnRecord


def turn_summary(turn: TurnRecord) -> dict[str, Any]:
    """A turn without its receipt."""
    return attrs.asdict(turn, filter=lambda field, _value: field.name != "receipt")


def turn_json(turn: TurnRecord | None) -> dict[str, Any]:
    """A turn with its receipt: what ``receipt`` answers. Raises BadRequest (``unknown_turn``) for None."""
    if turn is None:
        raise BadRequest("unknown_turn", "there is no such turn")
    return attrs.asdict(turn)


def check_receipt(request: Receipt) -> tuple[str | None, ChatId | None, UserId | None]:
    """Which turn is meant: by its id, the newest of a chat, of a user, or (three times None) of all.

    Raises:
        BadRequest: more than one is given, or a name breaks its rule.
    """
    given = [name for name in ("turn", "chat", "user") if getattr(request, name) is not None]
    if len(given) > 1:
        raise BadRequest("bad_args", f"args: give one of turn, chat and user, not {' and '.join(given)}")
    chat = check_chat(request.chat) if request.chat is not None else None
    user = check_user(request.user) if request.user is not None else None
    return request.turn, chat, user


def check_chat(text: str) -> ChatId:
    """A chat's id, ``user:name``. Raises BadRequest."""
    user, colon, name = text.partition(":")
    if not colon:
        raise BadRequest("bad_args", "args.chat: a chat id has the form user:name")
    try:
        return chat_id(user_id(user), name)
    except InvalidName as error:
        raise BadRequest("bad_args", f"args.chat: {error}") from None


def check_user(text: str) -> UserId:
    """A user's name. Raises BadRequest."""
    try:
        return user_id(text)
    except InvalidName as error:
        raise BadRequest("bad_args", f"args.user: {error}") from None
