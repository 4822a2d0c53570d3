"""Who may hold a connection, and how much one user may send on all of them. No I/O: the time is an argument.

A connection in use keeps its place, and each user has a few that nobody can take. When a newcomer needs one, an idle
connection gives way: first those whose user is not known, then HTTP connections between two requests; those without a
good token first, at the address that has most. So idle sockets lock nobody out.
"""

import enum
import ipaddress
import math
from collections import Counter
from collections.abc import Callable
from typing import Self

import attrs

from klaw.config.schema import GatewayConfig
from klaw.domain.names import UserId
from klaw.gateway.origin_check import Endpoints


class TokenBucket:
    """Holds up to ``burst`` tokens and gains ``rate`` a second; ``now`` is in seconds of a monotonic clock."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = now

    @classmethod
    def per_second(cls, rate: float, now: float) -> Self:
        return cls(rate, max(1, round(rate * AT_ONCE_S)), now)

    def take(self, now: float, count: float = 1.0) -> float:
        """Take tokens (of more than ``burst``, all that fit). Returns 0, or how many seconds to wait for them; then
        nothing was taken."""
        count = min(count, self._burst)
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= count:
            self._tokens -= count
            return 0.0
        return (count - self._tokens) / self._rate

    def borrow(self, now: float, count: float = 1.0, at_most_s: float = math.inf) -> float:
        """Take tokens, if need be future ones, up to ``burst``. Returns in how many seconds the last one comes; if that
        is more than ``at_most_s``, none was taken."""
        wait_s = self.take(now, count)
        if 0 < wait_s <= at_most_s:
            self._tokens = max(-self._burst, self._tokens - count)
        return wait_s


AT_ONCE_S = 5.0
"""Seconds' worth of what is limited per second that may come at once."""
MAX_ADDRESSES = 4096
"""Addresses whose arrivals are remembered; the oldest are forgotten."""
MAX_WAIT_S = 1.0
"""A connection that comes too fast waits at most this long to be served; one that had to wait longer is closed."""
FRESH_S = 0.25
"""A connection whose request is still being read or judged is left alone for this long."""
BROKEN_COST = 4.0
"""Extra cost of a frame that cannot be read: answering it costs the server more than its sender."""
OWN_PLACES = 4
"""Connections that each user may have even if ``gateway.maxConnections`` is reached."""


class Arrival(enum.Enum):
    """Why a new connection is not let in."""

    TURN_AWAY = enum.auto()
    TOO_FAST = enum.auto()
    """Its address opens too many: it is closed without a word, which costs least."""


class UserAllowance:
    def __init__(self, frames_per_second: float, bytes_per_second: float, now: float) -> None:
        self._frames = TokenBucket.per_second(frames_per_second, now)
        self._bytes = TokenBucket.per_second(bytes_per_second, now)

    def take(self, size: int, now: float) -> float:
        """Pay for a frame of ``size`` bytes. Returns 0, or how many seconds to wait."""
        return self._frames.take(now) or self._bytes.take(now, size)

    def spend(self, now: float) -> float:
        """Pay extra for a frame that could not be read."""
        return self._frames.borrow(now, BROKEN_COST)


@attrs.define(eq=False, kw_only=True)
class Connection:
    id: str
    address: str
    place: Endpoints
    drop: Callable[[], None]
    has_unread: Callable[[], bool]
    log_in: Callable[[UserId], UserAllowance | None]
    """To be called at a good hello or the first good request; see ``Admission.log_in``."""
    pace: TokenBucket
    arrived_at: float
    wait_s: float = 0.0
    """Delay before it is served, since its address opens connections too fast."""
    busy: bool = False
    """It is a WebSocket whose user is known, or an HTTP request is being answered."""
    trusted: bool = False
    user: UserId | None = None
    allowance: UserAllowance | None = None
    encrypted: bool = False
    operator: bool = False
    """It is the admin socket's: the operator asks, without a token and without limits."""

    @classmethod
    def of_operator(cls, now: float) -> "Connection":
        much = 1 << 40
        return cls(
            id="admin",
            address="",
            place=Endpoints(loopback=True, own_hosts=frozenset()),
            drop=lambda: None,
            has_unread=lambda: False,
            log_in=lambda _user: None,
            pace=TokenBucket(much, much, now),
            arrived_at=now,
            allowance=UserAllowance(much, much, now),
            operator=True,
        )

    @property
    def idle(self) -> bool:
        return not self.busy and self.wait_s == 0 and not self.has_unread()


class Admission:
    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._connections: dict[str, Connection] = {}
        self._arrivals: dict[str, TokenBucket] = {}
        self._allowances: dict[UserId, UserAllowance] = {}

    def arrive(self, connection: Connection, now: float) -> Arrival | None:
        """Give a new connection a place. Returns why it gets none."""
        config, address = self._config, connection.address
        connection.wait_s = self._bucket(address, now).borrow(now, at_most_s=MAX_WAIT_S)
        if connection.wait_s > MAX_WAIT_S:
            return Arrival.TOO_FAST
        there = [each for each in self._connections.values() if each.address == address]
        pending = [each for each in self._connections.values() if each.user is None]
        if len(there) >= config.max_per_address:
            if not self._make_room(there, address, now):  # of its own address only
                return Arrival.TURN_AWAY
        elif len(pending) >= config.max_pending and not self._make_room(pending, address, now):
            return Arrival.TURN_AWAY
        self._connections[connection.id] = connection
        return None

    def log_in(self, connection: str, user: UserId, now: float) -> UserAllowance | None:
        """Note the user of a connection. Returns what the user may send on all; None: the user has, or all have, too
        many connections."""
        found = self._connections.get(connection)
        if found is None:
            return None  # it gave way in this moment
        others = [each for each in self._connections.values() if each.user is not None and each is not found]
        theirs = [each for each in others if each.user == user]
        full = theirs if len(theirs) >= self._config.max_per_user else None
        if full is None and len(others) >= self._config.max_connections:
            full = others
        if full and not self._drop_first(full) and (full is theirs or len(theirs) >= OWN_PLACES):
            return None
        found.user, found.busy = user, True
        if user not in self._allowances:
            config = self._config
            self._allowances[user] = UserAllowance(config.user_messages_per_second, config.user_bytes_per_second, now)
        return self._allowances[user]

    def leave(self, connection: str) -> None:
        self._connections.pop(connection, None)

    def _make_room(self, among: list[Connection], newcomer: str, now: float) -> bool:
        """Drop a connection for one from the address ``newcomer``. False: all of them are in use."""
        waiting = Counter(each.address for each in among if each.user is None)
        most = max(waiting.values(), default=0)
        crowded = [each for each in among if each.user is None and waiting[each.address] == most]
        known = [each for each in among if each.user is not None]  # of the newcomer's own address
        if self._drop_first(crowded) or self._drop_first(known):
            return True
        # None is idle: one goes that has had its time, or whose address crowds out a newcomer from elsewhere.
        stale = [each for each in crowded if now - each.arrived_at >= FRESH_S or each.address != newcomer]
        return self._drop_first(stale, idle=False)

    def _drop_first(self, among: list[Connection], *, idle: bool = True) -> bool:
        """Drop the oldest, those without a good token first; with ``idle`` only one that is not in use."""
        found = min(
            (each for each in among if not idle or each.idle),
            key=lambda each: (each.user is not None, each.trusted),
            default=None,
        )
        if found is None:
            return False
        self._connections = {name: each for name, each in self._connections.items() if each is not found}
        found.drop()
        return True

    def _bucket(self, address: str, now: float) -> TokenBucket:
        bucket = self._arrivals.pop(address, None)
        if bucket is None:
            bucket = TokenBucket.per_second(self._config.connects_per_second, now)
        self._arrivals[address] = bucket  # the last used is the last to be forgotten
        if len(self._arrivals) > MAX_ADDRESSES:
            del self._arrivals[next(iter(self._arrivals))]
        return bucket


def address_of(peer: str) -> str:
    """What counts as one address: for IPv6, the network that one customer has."""
    try:
        address = ipaddress.ip_address(peer.split("%", 1)[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))
