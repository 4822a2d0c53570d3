"""Cron expressions in real time: what zones do to them, against a count over all minutes."""

import datetime as dt
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaw.runs.triggers import cron_fires, normalise
from tests.support.runs.cron_by_minutes import fire_times

DAY = 86_400

CHANGES = {
    "Europe/Berlin": ("2027-03-28T01:00Z", "2027-10-31T01:00Z"),
    "America/New_York": ("2027-03-14T07:00Z", "2027-11-07T06:00Z"),
    "Australia/Lord_Howe": ("2027-10-02T15:30Z", "2027-04-03T15:00Z"),
    "America/Santiago": ("2027-09-05T04:00Z", "2027-04-04T03:00Z"),
    "Asia/Kolkata": ("2027-03-28T01:00Z", "2027-10-31T01:00Z"),
}
"""Zones with the moments at which their clocks go forward and back; the last has no such moments."""

EXPRESSIONS = [
    "30 2 * * *", "0 3 * * *", "0 2 * * *", "15 2,3 * * *", "0,30 2 * * *", "*/15 2 * * *", "*/15 * * * *", "0 * * * *",
    "30 * * * *", "7 */2 * * *", "0 */3 * * *", "*/10 1-3 * * *", "0 0 * * *", "30 0 * * *", "45 1 * * *",
    "59 23 * * *", "* * * * *", "20-40/5 0-4 * * *", "0 9 * * 1-5", "30 2 1,15 * 0",
]  # fmt: skip


def at(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp())


def until(expression: str, zone: str, after: float, end: int) -> list[int]:
    found = []
    for moment in cron_fires(expression, ZoneInfo(zone), after):
        if moment > end:
            return found
        found.append(moment)
    return found


def clock(expression: str, zone: str, start: str, count: int) -> list[str]:
    moments = islice(cron_fires(expression, ZoneInfo(zone), at(start)), count)
    return [dt.datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime("%d %H:%M%z") for moment in moments]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("zone", CHANGES)
def test_fire_times_equal_a_count_over_all_minutes(zone, expression):
    """Three days around both changes of the clock, in zones with an hour, half an hour, a midnight and no shift."""
    for change in map(at, CHANGES[zone]):
        start, end = change - DAY - 123, change + 2 * DAY
        assert until(expression, zone, start, end) == list(fire_times(expression, zone, start, end))


@given(
    zone=st.sampled_from(sorted(CHANGES)),
    forward=st.booleans(),
    expression=st.sampled_from(EXPRESSIONS),
    offset=st.integers(-2 * DAY, 2 * DAY),
)
@settings(max_examples=300, deadline=None)
def test_what_comes_after_a_moment_does_not_depend_on_where_one_began(zone, forward, expression, offset):
    """Asked from any moment, also inside the doubled hour, the same fire times follow."""
    change = at(CHANGES[zone][0 if forward else 1])
    whole = until(expression, zone, change - 2 * DAY, change + 3 * DAY)
    after = change + offset
    assert until(expression, zone, after, change + 3 * DAY) == [moment for moment in whole if moment > after]


_FIELDS = [
    st.one_of(
        st.just("*"),
        st.integers(low, high).map(str),
        st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.integers(2, max(2, high // 2)).map(lambda step: f"*/{step}"),
        st.lists(st.integers(low, high), min_size=2, max_size=4).map(lambda many: ",".join(map(str, many))),
    )
    for low, high in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 7))
]


@given(fields=st.tuples(*_FIELDS), zone=st.sampled_from(sorted(CHANGES)), forward=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_expression_equals_a_count_over_all_minutes(fields, zone, forward):
    """Made-up expressions, two days around a change."""
    expression = normalise(" ".join(fields))
    change = at(CHANGES[zone][0 if forward else 1])
    start, end = change - DAY, change + DAY
    assert until(expression, zone, start, end) == list(fire_times(expression, zone, start, end))


def test_a_skipped_time_fires_once_at_the_end_of_the_gap():
    """02:30 does not exist in Berlin on 28 March 2027."""
    shown = clock("30 2 * * *", "Europe/Berlin", "2027-03-26T12:00Z", 3)
    assert shown == ["27 02:30+0100", "28 03:00+0200", "29 02:30+0200"]
    assert clock("*/15 2 * * *", "Europe/Berlin", "2027-03-27T12:00Z", 2) == ["28 03:00+0200", "29 02:00+0200"]
    assert clock("0 2,3 * * *", "Europe/Berlin", "2027-03-27T12:00Z", 2) == ["28 03:00+0200", "29 02:00+0200"]


def test_a_doubled_time_fires_the_first_time_only():
    """02:30 comes twice in Berlin on 31 October 2027."""
    shown = clock("30 2 * * *", "Europe/Berlin", "2027-10-29T12:00Z", 3)
    assert shown == ["30 02:30+0200", "31 02:30+0200", "01 02:30+0100"]
    assert clock("0 */2 * * *", "Europe/Berlin", "2027-10-30T22:30Z", 2) == ["31 02:00+0200", "31 04:00+0100"]


def test_a_repeating_pattern_follows_real_time():
    """Every quarter of an hour really is one, through both changes."""
    for change in CHANGES["Europe/Berlin"]:
        moments = until("*/15 * * * *", "Europe/Berlin", at(change) - DAY, at(change) + DAY)
        assert {later - earlier for earlier, later in pairwise(moments)} == {900}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "five fields"),
        ("* * * *", "got 4"),
        ("0 * * * * *", "got 6"),
        ("0 0 * * * * 2027", "got 7"),
        ("61 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of the month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of the week"),
        ("*/0 * * * *", "minute"),
        ("*/90 * * * *", "every"),
        ("5-1 * * * *", "minute"),
        ("0 0 31 2 *", "never fires"),
        ("0 0 31 4,6 *", "never fires"),
        ("0 0 */30 2 1#5", "never fires"),
        ("@daily", "'0 0 * * *'"),
        ("@reboot", "five fields"),
        ("0 0 1 1 \u0663", "ASCII"),
        ("0 0 1 1\n*", "control"),
        ("0\x00 0 1 1 *", "control"),
        ("1," * 200 + "1 * * * *", "256"),
        ("9" * 200 + " * * * *", "minute"),
        ("rm -rf / ; *", "minute"),
    ],
)
def test_bad_expressions_are_refused_with_the_reason(text, says):
    with pytest.raises(ValueError, match="(?i)" + says.replace("*", r"\*").replace("'", ".")):
        normalise(text)


@pytest.mark.parametrize(
    "text", ["0 9 * * MON-FRI", "0 9 1 jan *", " 0\t9  * * * ", "0 0 29 2 *", "0 0 L * *", "0 0 * * 5L"]
)
def test_good_expressions_are_taken(text):
    expression = normalise(text)
    assert expression == " ".join(text.split())
    assert len(list(islice(cron_fires(expression, ZoneInfo("UTC"), at("2027-01-01T00:00Z")), 2))) == 2


@given(text=st.text(st.sampled_from("0123456789*/-,#LW @MONJAN\n\x00é"), max_size=40))
@settings(max_examples=500, deadline=None)
def test_any_text_is_read_or_refused(text):
    """No other error than ValueError, whatever comes."""
    try:
        expression = normalise(text)
    except ValueError:
        return
    assert next(cron_fires(expression, ZoneInfo("Europe/Berlin"), at("2027-01-01T00:00Z"))) > 0
