"""Who keeps a place when there are too many, and what a user may send."""

import attrs
import pytest

from klaw.config.schema import GatewayConfig
from klaw.gateway.connection_limits import (
    FRESH_S,
    MAX_ADDRESSES,
    OWN_PLACES,
    Admission,
    Arrival,
    Connection,
    UserAllowance,
    address_of,
)

CONFIG = attrs.evolve(
    GatewayConfig(), max_connections=4, max_pending=3, max_per_address=6, max_per_user=2, connects_per_second=1000.0
)


class Door:
    """An admission, and who was dropped."""

    def __init__(self, **changes):
        self.admission = Admission(attrs.evolve(CONFIG, **changes))
        self.dropped = []
        self.unread = set()
        self.there = {}

    def arrive(self, name, peer="10.0.0.1", now=0.0):
        made = attrs.evolve(
            Connection.of_operator(now),
            id=name,
            address=address_of(peer),
            drop=lambda: self.dropped.append(name),
            has_unread=lambda: name in self.unread,
            allowance=None,
        )
        refused = self.admission.arrive(made, now)
        self.there[name] = made
        return refused or made

    def let_in(self, name, *where):
        return isinstance(self.arrive(name, *where), Connection)

    def log_in(self, name, user="anna"):
        return self.admission.log_in(name, user, 0.0) is not None


def test_a_newcomer_takes_the_place_of_the_oldest_that_says_nothing():
    door = Door()
    for name in "abcd":
        assert door.let_in(name)
    assert door.dropped == ["a"]
    assert door.log_in("b")
    door.arrive("e")
    assert door.dropped == ["a"], "who has said hello takes none of these places"
    door.arrive("f")
    assert door.dropped == ["a", "c"]


def test_what_has_not_been_read_yet_is_not_dropped_for_a_newcomer():
    """26.A5: 20 calls at once lost the first four of them."""
    door = Door()
    door.unread = {"a", "b"}
    for name in "abcd":
        assert door.let_in(name)
    assert door.dropped == ["c"]
    door.there["d"].busy = True
    assert door.arrive("e", now=FRESH_S / 2) is Arrival.TURN_AWAY, "all are being read or answered"
    assert door.let_in("f", "10.0.0.2", FRESH_S / 2), "another address has not crowded the place"
    assert door.dropped == ["c", "a"]
    door.there["f"].busy = True
    assert door.let_in("g", "10.0.0.1", FRESH_S * 2), "they have had their time"
    assert door.dropped == ["c", "a", "b"]


def test_a_newcomer_from_the_address_with_the_most_pushes_nobody_elses_aside():
    """While it floods, its own have all sent something; somebody else's is between its handshake and its hello."""
    door = Door()
    door.arrive("mine", "10.0.0.9")
    door.unread = {"a", "b", "c"}
    assert door.let_in("a")
    assert door.let_in("b")
    assert door.arrive("c", now=FRESH_S / 2) is Arrival.TURN_AWAY
    assert door.dropped == []


def test_the_address_with_the_most_gives_way_and_a_good_token_gives_way_last():
    door = Door()
    door.arrive("owner", "10.0.0.9")
    door.arrive("a")
    door.there["a"].trusted = True
    door.arrive("b")
    door.arrive("c")
    assert door.dropped == ["b"]
    door.arrive("d", "10.0.0.8")
    assert door.dropped == ["b", "c"]


def test_the_known_keep_their_places_and_are_limited_by_user_and_in_all():
    door = Door(max_pending=20, max_per_address=20, max_per_user=OWN_PLACES + 1)
    names = iter("abcdefghijklmnopq")
    for name in "abcdefghijklmnopq":
        door.arrive(name)
    assert [door.log_in(next(names)) for _ in range(OWN_PLACES + 2)] == [True] * OWN_PLACES + [False] * 2, "4 in all"
    assert [door.log_in(next(names), "boris") for _ in range(OWN_PLACES + 1)] == [True] * OWN_PLACES + [False]
    door.admission.leave("a")
    assert not door.log_in(next(names), "boris"), "his own are taken, and there are four others"
    assert door.log_in(next(names), "anna")
    assert door.dropped == []


def test_an_http_connection_between_two_requests_gives_way_and_a_busy_one_does_not():
    """26.A1: 32 kept-alive connections of one user, or 64 of two, locked everybody out."""
    door = Door(max_pending=20, max_per_address=20)
    for name in "abcd":
        door.arrive(name)
    assert door.log_in("a")
    assert door.log_in("b")
    assert not door.log_in("c"), "both are in use"
    door.there["b"].busy = False
    assert door.log_in("c")
    assert door.dropped == ["b"]
    door.there["a"].busy = door.there["c"].busy = False
    full = Door(max_per_address=2)
    for name in "ab":
        full.arrive(name)
        full.log_in(name)
    assert full.arrive("c") is Arrival.TURN_AWAY
    full.there["b"].busy = False
    assert full.let_in("c")
    assert full.dropped == ["b"]
    assert not full.log_in("b"), "it gave way"


def test_an_address_that_is_full_pushes_aside_its_own_only():
    door = Door(max_per_address=2, max_pending=3, max_connections=10, max_per_user=10)
    door.arrive("other", "10.0.0.2")
    door.arrive("a")
    door.arrive("b")
    assert door.let_in("c")
    assert door.dropped == ["a"]
    assert door.log_in("b")
    assert door.log_in("c")
    assert door.arrive("d") is Arrival.TURN_AWAY
    assert door.dropped == ["a"]


def test_an_address_that_opens_too_many_a_second_waits_and_others_do_not():
    door = Door(connects_per_second=2.0, max_pending=100, max_per_address=100)
    waits = [getattr(door.arrive(str(number)), "wait_s", None) for number in range(14)]
    assert waits == [0.0] * 10 + [0.5, 1.0, None, None]
    assert door.arrive("other", "10.0.0.2").wait_s == 0.0
    assert door.arrive("later", now=2.0).wait_s == 0.0


def test_a_network_of_ipv6_is_one_address_and_a_mapped_one_is_its_own():
    door = Door(connects_per_second=0.2, max_per_address=100)
    assert door.let_in("a", "2001:db8::1")
    assert door.arrive("b", "2001:db8::2%eth0") is Arrival.TOO_FAST
    assert door.let_in("c", "2001:db8:0:1::1")
    assert door.let_in("d", "::ffff:10.0.0.1")
    assert door.arrive("e", "10.0.0.1") is Arrival.TOO_FAST


def test_so_many_addresses_are_remembered():
    door = Door()
    for number in range(MAX_ADDRESSES + 10):
        name = f"c{number}"
        door.arrive(name, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        door.admission.leave(name)
    assert len(door.admission._arrivals) == MAX_ADDRESSES


def test_frames_and_bytes_of_a_user_are_counted_together():
    allowance = UserAllowance(frames_per_second=2, bytes_per_second=100, now=0.0)
    assert [allowance.take(10, 0.0) for _ in range(10)] == [0.0] * 10
    assert allowance.take(10, 0.0) == pytest.approx(0.5)
    allowance = UserAllowance(frames_per_second=1000, bytes_per_second=100, now=0.0)
    assert allowance.take(400, 0.0) == 0.0
    assert allowance.take(200, 0.0) == pytest.approx(1.0)
    assert allowance.take(10**9, 10.0) == 0.0, "what is longer than all that may come at once waits for a full measure"
