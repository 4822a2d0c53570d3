"""Who may hold a connection, and how much one user may send on all of them. No I/O: the time is an argument.

Those who have not said hello yet have a small budget of their own. A newcomer takes, when it is full, the place of the
one that has waited longest, at the address with the most of them, and of one without a good token first: so sockets
that say nothing lock nobody out. Who has said hello keeps the place.
"""

import enum
import ipaddress
from collections import Counter
from collections.abc import Callable

import attrs

from klaw.config.schema import GatewayConfig
from klaw.domain.names import UserId


class TokenBucket:
    """Holds up to ``burst`` tokens and gains ``rate`` a second.

    Args:
        rate: tokens a second.
        burst: tokens at the start and at most.
        now: seconds of any clock that only goes forward.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = now

    def take(self, now: float, count: float = 1.0) -> float:
        """Take so many tokens, of more than ``burst`` all that fit. Returns 0, or how many seconds to wait for them;
        then nothing was taken."""
        count = min(count, self._burst)
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= count:
            self._tokens -= count
            return 0.0
        return (count - self._tokens) / self._rate


AT_ONCE_S = 5.0
"""Seconds' worth of what is limited by the second that may come at once."""
MAX_ADDRESSES = 4096
"""Addresses whose arrivals are remembered; of more the oldest are forgotten."""


class Arrival(enum.Enum):
    """What becomes of a new connection."""

    LET_IN = enum.auto()
    TURN_AWAY = enum.auto()
    """Tell it that there is no place."""
    TOO_FAST = enum.auto()
    """Its address opens too many: close it without a word, which costs least."""


@attrs.define(eq=False)
class _Pending:
    address: str
    drop: Callable[[], None]
    trusted: bool = False


class UserAllowance:
    """What a user may send on all connections together."""

    def __init__(self, frames_per_second: float, bytes_per_second: float, now: float) -> None:
        self._frames = TokenBucket(frames_per_second, max(1, round(frames_per_second * AT_ONCE_S)), now)
        self._bytes = TokenBucket(bytes_per_second, max(1, round(bytes_per_second * AT_ONCE_S)), now)

    def take(self, size: int, now: float) -> float:
        """Take a frame of so many bytes. Returns 0, or how many seconds to wait for it."""
        return self._frames.take(now) or self._bytes.take(now, size)


class Admission:
    """The places of one gateway.

    Args:
        config: the limits.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._pending: dict[str, _Pending] = {}
        """By the connection's id, the oldest first."""
        self._known: dict[str, UserId] = {}
        self._addresses: dict[str, str] = {}
        """Of every connection."""
        self._arrivals: dict[str, TokenBucket] = {}
        self._allowances: dict[UserId, UserAllowance] = {}

    def arrive(self, connection: str, peer: str, drop: Callable[[], None], now: float) -> Arrival:
        """A new connection.

        Args:
            connection: its id.
            peer: the address that it came from.
            drop: ends it, when a newcomer needs its place before it has said hello.
            now: seconds of any clock that only goes forward.
        """
        config, address = self._config, _group(peer)
        if self._bucket(address, now).take(now) > 0:
            return Arrival.TOO_FAST
        if len(self._known) >= config.max_connections:
            return Arrival.TURN_AWAY
        if Counter(self._addresses.values())[address] >= config.max_per_address:
            # Of its own it may push aside the oldest that says nothing, but nobody else's.
            if not self._make_room({address}):
                return Arrival.TURN_AWAY
        elif len(self._pending) >= config.max_pending:
            self._make_room({each.address for each in self._pending.values()})
        self._pending[connection] = _Pending(address, drop)
        self._addresses[connection] = address
        return Arrival.LET_IN

    def trust(self, connection: str) -> None:
        """Its request had a good token: it is dropped after those without."""
        if connection in self._pending:
            self._pending[connection].trusted = True

    def log_in(self, connection: str, user: UserId, now: float) -> UserAllowance | None:
        """It has said a good hello: what its user may send. None: the user has, or all have, too many already."""
        config = self._config
        theirs = sum(other == user for other in self._known.values())
        if theirs >= config.max_per_user or len(self._known) >= config.max_connections:
            return None
        self._pending.pop(connection, None)
        self._known[connection] = user
        if user not in self._allowances:
            self._allowances[user] = UserAllowance(config.user_messages_per_second, config.user_bytes_per_second, now)
        return self._allowances[user]

    def leave(self, connection: str) -> None:
        """It is gone."""
        self._pending.pop(connection, None)
        self._known.pop(connection, None)
        self._addresses.pop(connection, None)

    def _make_room(self, addresses: set[str]) -> bool:
        """Drop one that has not said hello, of one of these addresses. False: there is none."""
        waiting = Counter(each.address for each in self._pending.values())
        there = [(name, each) for name, each in self._pending.items() if each.address in addresses]
        if not there:
            return False
        name, dropped = min(there, key=lambda each: (-waiting[each[1].address], each[1].trusted))
        self.leave(name)
        dropped.drop()
        return True

    def _bucket(self, address: str, now: float) -> TokenBucket:
        bucket = self._arrivals.pop(address, None)
        if bucket is None:
            rate = self._config.connects_per_second
            bucket = TokenBucket(rate, max(1, round(rate * AT_ONCE_S)), now)
        self._arrivals[address] = bucket  # the last used is the last to be forgotten
        if len(self._arrivals) > MAX_ADDRESSES:
            del self._arrivals[next(iter(self._arrivals))]
        return bucket


def _group(peer: str) -> str:
    """What counts as one address: of IPv6 the network that one customer has."""
    try:
        address = ipaddress.ip_address(peer.split("%", 1)[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))
