"""Who keeps a place when there are too many, and what a user may send."""

import attrs
import pytest

from klaw.config.schema import GatewayConfig
from klaw.gateway.admission import MAX_ADDRESSES, Admission, Arrival, UserAllowance

CONFIG = attrs.evolve(
    GatewayConfig(), max_connections=4, max_pending=3, max_per_address=6, max_per_user=2, connects_per_second=1000.0
)


class Door:
    """An admission, and who was dropped."""

    def __init__(self, **changes):
        self.admission = Admission(attrs.evolve(CONFIG, **changes))
        self.dropped = []

    def arrive(self, name, peer="10.0.0.1", now=0.0):
        return self.admission.arrive(name, peer, lambda: self.dropped.append(name), now)

    def log_in(self, name, user="anna"):
        return self.admission.log_in(name, user, 0.0) is not None


def test_a_newcomer_takes_the_place_of_the_oldest_that_says_nothing():
    door = Door()
    for name in "abcd":
        assert door.arrive(name) is Arrival.LET_IN
    assert door.dropped == ["a"]
    assert door.log_in("b")
    door.arrive("e")
    assert door.dropped == ["a"], "who has said hello takes none of these places"
    door.arrive("f")
    assert door.dropped == ["a", "c"]


def test_the_address_with_the_most_gives_way_and_a_good_token_gives_way_last():
    door = Door()
    door.arrive("owner", "10.0.0.9")
    door.arrive("a")
    door.admission.trust("a")
    door.arrive("b")
    door.arrive("c")
    assert door.dropped == ["b"]
    door.arrive("d", "10.0.0.8")
    assert door.dropped == ["b", "c"]


def test_the_known_keep_their_places_and_are_limited_by_user_and_in_all():
    door = Door(max_pending=10)
    for name in "abcdef":
        door.arrive(name)
    assert door.log_in("a")
    assert door.log_in("b")
    assert not door.log_in("c"), "a third of one user"
    assert door.log_in("d", "boris")
    assert door.log_in("e", "boris")
    assert not door.log_in("f", "clara"), "a fifth in all"
    assert door.arrive("g", "10.0.0.2") is Arrival.TURN_AWAY
    door.admission.leave("a")
    assert door.arrive("g", "10.0.0.2") is Arrival.LET_IN
    assert door.log_in("g")
    assert door.dropped == []


def test_an_address_that_is_full_pushes_aside_its_own_only():
    door = Door(max_per_address=2, max_pending=3, max_connections=10, max_per_user=10)
    door.arrive("other", "10.0.0.2")
    door.arrive("a")
    door.arrive("b")
    assert door.arrive("c") is Arrival.LET_IN
    assert door.dropped == ["a"]
    assert door.log_in("b")
    assert door.log_in("c")
    assert door.arrive("d") is Arrival.TURN_AWAY
    assert door.dropped == ["a"]


def test_an_address_that_opens_too_many_a_second_is_not_heard_and_others_are():
    door = Door(connects_per_second=2.0, max_pending=100, max_per_address=100)
    verdicts = [door.arrive(str(number)) for number in range(12)]
    assert verdicts == [Arrival.LET_IN] * 10 + [Arrival.TOO_FAST] * 2
    assert door.arrive("other", "10.0.0.2") is Arrival.LET_IN
    assert door.arrive("later", now=0.6) is Arrival.LET_IN


def test_a_network_of_ipv6_is_one_address_and_a_mapped_one_is_its_own():
    door = Door(connects_per_second=0.2, max_per_address=100)
    assert door.arrive("a", "2001:db8::1") is Arrival.LET_IN
    assert door.arrive("b", "2001:db8::2%eth0") is Arrival.TOO_FAST
    assert door.arrive("c", "2001:db8:0:1::1") is Arrival.LET_IN
    assert door.arrive("d", "::ffff:10.0.0.1") is Arrival.LET_IN
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
