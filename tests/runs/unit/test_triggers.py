"""Reading triggers, and their fire times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.actor.clock import from_iso, iso
from klaw.domain.names import zone
from klaw.domain.task import At, Cron, Every, read_duration
from klaw.domain.text import span
from klaw.runs.triggers import MAX_COUNTED, first_fire, missed, next_fires, normalise, read_at, read_every, shown

NOW = from_iso("2026-11-22T12:00:00.500Z")


def test_cron_keeps_the_expression_and_the_zone():
    trigger = Cron(expression=normalise("  0 9 * *  MON-FRI"), zone="Europe/Berlin")
    assert trigger.expression == "0 9 * * MON-FRI"
    assert [iso(moment) for moment in next_fires(trigger, anchor=NOW, after=NOW, count=2)] == [
        "2026-11-23T08:00:00.000Z",
        "2026-11-24T08:00:00.000Z",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("europe/berlin", "did you mean Europe/Berlin"),
        ("Moscow", "did you mean Europe/Moscow"),
        ("Mars/Phobos", "no time zone"),
        ("", "IANA"),
        ("../../etc/passwd", "IANA"),
        ("/etc/localtime", "IANA"),
        ("localtime", "IANA"),
        ("right/UTC", "IANA"),
        ("Europe", "no time zone"),
        ("A" * 200, "IANA"),
        ("Europe/Berlin\x00", "IANA"),
    ],
)
def test_bad_zones_are_refused(name, says):
    with pytest.raises(ValueError, match=says):
        zone(name)


@pytest.mark.parametrize("name", ["UTC", "Europe/Moscow", "America/Argentina/Buenos_Aires", "Etc/GMT+5"])
def test_zones(name):
    assert zone(name).key == name


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("30m", 1800), ("2h", 7200), ("1d", 86_400), ("90s", 90), ("1h30m", 5400), ("60", 60), (60, 60), (" 2H ", 7200)],
)
def test_intervals(value, seconds):
    assert read_every(value) == Every(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    ["", "0", "59", "59s", 0, -60, "-5m", "1.5h", "1w", "h", "30m2h", "٣m", "999999999d", 10**12, True, None, 3.5, [],
     "1" * 5000, "30\x00m", "367d"],
)  # fmt: skip
def test_bad_intervals_are_refused(value):
    with pytest.raises(ValueError, match="must be"):
        read_every(value)


@pytest.mark.parametrize(
    ("text", "zone", "instant"),
    [
        ("2026-12-24T18:00+01:00", None, "2026-12-24T17:00:00.000Z"),
        ("2026-12-24T18:00:00.750Z", None, "2026-12-24T18:00:00.000Z"),
        ("2026-12-24 18:00", "Europe/Moscow", "2026-12-24T15:00:00.000Z"),
        ("20261224T180000Z", None, "2026-12-24T18:00:00.000Z"),
        ("2027-03-28T02:30", "Europe/Berlin", "2027-03-28T01:00:00.000Z"),
        ("2027-10-31T02:30", "Europe/Berlin", "2027-10-31T00:30:00.000Z"),
    ],
)
def test_one_shots(text, zone, instant):
    """With an offset, or on a zone's clock; what it skips is moved to the end of the gap."""
    assert read_at(text, zone=zone, now=NOW) == At(instant=instant, zone=zone)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-12-24T18:00", "has no offset"),
        ("2026-12-24", "date and time"),
        ("tomorrow", "date and time"),
        ("", "date and time"),
        ("2026-13-24T18:00Z", "date and time"),
        ("2026-12-24T25:00Z", "date and time"),
        ("2026-11-22T12:00:00Z", "is over"),
        ("2026-11-22T11:00:00Z", "1 h"),
        ("0001-01-01T00:00+14:00", "is over"),
        ("9999-12-31T23:59Z", "50 years"),
        ("2026-12-24T18:00Z" + "0" * 5000, "date and time"),
        ("2026-12-24T18:00Z\x00", "date and time"),
    ],
)
def test_bad_one_shots_are_refused(text, says):
    with pytest.raises(ValueError, match=says):
        read_at(text, now=NOW)


def test_a_one_shot_in_the_past_may_be_asked_for_now():
    trigger = read_at("2020-01-01T00:00Z", now=NOW, allow_past=True)
    assert trigger == At(instant="2026-11-22T12:00:00.000Z")


def test_intervals_are_counted_from_the_anchor():
    trigger = Every(seconds=1800)
    assert next_fires(trigger, anchor=1000.9, after=0, count=2) == (2800, 4600)
    assert next_fires(trigger, anchor=1000.9, after=2800, count=2) == (4600, 6400)
    assert first_fire(trigger, 1000.9, 2799) == 2800


@given(seconds=st.integers(60, 10**6), anchor=st.floats(1e9, 2e9), after=st.floats(1e9, 2e9))
def test_the_next_interval_is_the_nearest(seconds, anchor, after):
    moment = first_fire(Every(seconds=seconds), anchor, after)
    floor = max(anchor, after)
    assert moment > floor
    assert moment - seconds <= floor
    assert (moment - int(anchor)) % seconds == 0
    assert from_iso(iso(moment)) == moment


def test_a_one_shot_fires_once():
    trigger = At(instant="2026-12-24T17:00:00.000Z")
    moment = from_iso(trigger.instant)
    assert next_fires(trigger, anchor=NOW, after=NOW, count=3) == (moment,)
    assert next_fires(trigger, anchor=NOW, after=moment, count=3) == ()
    assert missed(trigger, anchor=NOW, after=NOW, now=moment - 1) is None
    assert missed(trigger, anchor=NOW, after=NOW, now=moment + 10**7) == (moment, 1)


def test_missed_times_are_counted_up_to_a_limit():
    trigger = Cron(expression="* * * * *", zone="Europe/Berlin")
    assert missed(trigger, anchor=NOW, after=NOW, now=NOW + 600) == (int(NOW) + 600, 10)
    many = missed(trigger, anchor=NOW, after=NOW, now=NOW + 400 * 86_400)
    assert many == (int(NOW) + 400 * 86_400, MAX_COUNTED)
    assert missed(trigger, anchor=NOW, after=NOW, now=NOW + 10) is None


def test_the_latest_of_rare_dense_times_is_found():
    """Every minute of one day a year: the last one is months back."""
    trigger = Cron(expression="* * 1 1 *", zone="UTC")
    found = missed(trigger, anchor=NOW, after=NOW, now=from_iso("2027-11-22T12:00:00Z"))
    assert found is not None
    assert iso(found[0]) == "2027-01-01T23:59:00.000Z"


def test_triggers_are_shown_as_they_are_given():
    assert shown(Cron(expression="0 9 * * *", zone="UTC"), "Europe/Riga") == "cron 0 9 * * * UTC"
    assert shown(Every(seconds=5400), "UTC") == "every 1h30m"
    # 26.C4: on the clock of its own zone, or of the one that is usual here.
    moment = "2026-12-24T07:00:00.000Z"
    assert shown(At(instant=moment, zone="Europe/Riga"), "UTC") == "at 2026-12-24T09:00:00+02:00"
    assert shown(At(instant=moment), "Europe/Berlin") == "at 2026-12-24T08:00:00+01:00"


@given(seconds=st.integers(1, 10**8))
def test_a_shown_interval_can_be_read_again(seconds):
    assert read_duration(shown(Every(seconds=seconds), "UTC").removeprefix("every ")) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (12_000, "3 h 20 min"),
        (90_061, "1 d 1 h"),
        (86_460, "1 d"),
    ],
)
def test_spans(seconds, text):
    assert span(seconds) == text
