"""Codes that bind an account of a messenger, or a group, to a user of Klaw. They are kept in memory: a restart ends
them, and whoever writes again gets another one."""

import secrets
from collections.abc import Callable

import attrs

from klaw.channels.messenger import ChannelConversation, Sender
from klaw.domain.names import UserId

ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without letters and digits that look alike."""
LENGTH = 8
LASTS_S = 3_600.0
MOST_OPEN = 3
"""Codes of strangers of one account at the same time."""
MOST_LINKS = 20


@attrs.frozen(kw_only=True)
class Stranger:
    """Somebody, or a group, who asked for a code."""

    account: str
    conversation: ChannelConversation
    sender: Sender


@attrs.frozen(kw_only=True)
class Invitation:
    """Whoever says the code in a messenger becomes this user."""

    account: str
    user: UserId


class PairingCodes:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open: dict[str, tuple[Stranger | Invitation, float]] = {}

    def ask(self, stranger: Stranger) -> str | None:
        """A code for a stranger; None: they have one already, or too many of the account are open."""
        there = [each for each, _ in self._valid().values() if isinstance(each, Stranger)]
        there = [each for each in there if each.account == stranger.account]
        told = any(each.conversation.id == stranger.conversation.id for each in there)
        return None if told or len(there) >= MOST_OPEN else self._make(stranger)

    def invite(self, account: str, user: UserId) -> tuple[str, float]:
        """A code for a user's link, and until when it holds (Unix seconds)."""
        links = [code for code, (each, _) in self._valid().items() if isinstance(each, Invitation)]
        for code in links[: max(0, len(links) - MOST_LINKS + 1)]:
            del self._open[code]
        code = self._make(Invitation(account=account, user=user))
        return code, self._open[code][1]

    def stranger(self, code: str, *, groups: bool) -> Stranger | None:
        """Who asked for a code; only with ``groups`` a group is found. The code holds until ``close``: who writes
        meanwhile must not get another one."""
        found, _ = self._valid().get(_written(code), (None, 0.0))
        return found if isinstance(found, Stranger) and (groups or not found.conversation.group) else None

    def close(self, stranger: Stranger) -> None:
        """Use up the code of somebody who may write now."""
        self._open = {code: each for code, each in self._open.items() if each[0] != stranger}

    def invited(self, code: str, account: str) -> UserId | None:
        """The user whose link has a code, which is used up then."""
        found, _ = self._valid().get(_written(code), (None, 0.0))
        if not isinstance(found, Invitation) or found.account != account:
            return None
        del self._open[_written(code)]
        return found.user

    def waiting(self) -> list[tuple[str, Stranger]]:
        """Codes of strangers that hold."""
        return [(code, each) for code, (each, _) in self._valid().items() if isinstance(each, Stranger)]

    def _make(self, whom: Stranger | Invitation) -> str:
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        self._open[code] = whom, self._now() + LASTS_S
        return code

    def _valid(self) -> dict[str, tuple[Stranger | Invitation, float]]:
        now = self._now()
        self._open = {code: each for code, each in self._open.items() if each[1] > now}
        return self._open


def _written(code: str) -> str:
    return code.strip().upper()
