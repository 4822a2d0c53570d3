"""Times as people write them, in English and Russian."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from klaw.actor.clock import from_iso
from klaw.domain.task import At, Cron, Every
from klaw.runs.when import read_when, split
from klaw.runs.when_words import added, in_full, repeat_of

BERLIN = "Europe/Berlin"


def moment(text: str, zone: str = BERLIN) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


NOW = moment("2026-11-26T10:15:30")
"""A Thursday."""

ONCE = [
    ("tomorrow 9:00", "завтра в 9", "2026-11-27 09:00"),
    ("tomorrow 9", "завтра 9", "2026-11-27 09:00"),
    ("Tomorrow at 9:00.", "Завтра, в 9:00", "2026-11-27 09:00"),
    ("today at 18", "сегодня в 18", "2026-11-26 18:00"),
    ("today at 6:30 pm", "сегодня в 18:30", "2026-11-26 18:30"),
    ("at 11", "в 11", "2026-11-26 11:00"),
    ("at 9", "в 9", "2026-11-27 09:00"),
    ("in 20 minutes", "через 20 минут", "2026-11-26 10:35:30"),
    ("20 minutes", "20 минут", "2026-11-26 10:35:30"),
    ("20m", "20 мин", "2026-11-26 10:35:30"),
    ("in twenty-five minutes", None, None),
    ("in 1h30m", "через 1ч 30мин", "2026-11-26 11:45:30"),
    ("in an hour", "через час", "2026-11-26 11:15:30"),
    ("in an hour and a half", "через полтора часа", "2026-11-26 11:45:30"),
    ("in half an hour", "через полчаса", "2026-11-26 10:45:30"),
    ("in 2 hours and 15 minutes", "через 2 часа 15 минут", "2026-11-26 12:30:30"),
    ("in 1.5 hours", "через 1,5 часа", "2026-11-26 11:45:30"),
    ("in three days", "через 3 дня", "2026-11-29 10:15:30"),
    ("in 3 days at 8", "через три дня в 8", "2026-11-29 08:00"),
    ("in a week", "через неделю", "2026-12-03 10:15:30"),
    ("in a month", "через месяц", "2026-12-26 10:15:30"),
    ("on Friday at 7 pm", "в пятницу в 7 вечера", "2026-11-27 19:00"),
    ("Friday 7pm", "пятница 19:00", "2026-11-27 19:00"),
    ("on Thursday at 9", "в четверг в 9", "2026-12-03 09:00"),
    ("on Thursday at noon", "в четверг в полдень", "2026-11-26 12:00"),
    ("next Monday", "в следующий понедельник", "2026-11-30 09:00"),
    ("next Friday", "в следующую пятницу", "2026-12-04 09:00"),
    ("this Sunday", "в это воскресенье", "2026-11-29 09:00"),
    ("3 December 10:00", "3 декабря в 10", "2026-12-03 10:00"),
    ("on the 3rd of December at 10", "3-го декабря в 10:00", "2026-12-03 10:00"),
    ("December 3 at 10 am", "3 дек 10:00", "2026-12-03 10:00"),
    ("Thursday 3 December, 10:00", "четверг, 3 декабря, 10:00", "2026-12-03 10:00"),
    ("Tomorrow, Friday 27 November, 09:00", "Завтра, пятница, 27 ноября, 09:00", "2026-11-27 09:00"),
    ("5 May", "5 мая", "2027-05-05 09:00"),
    ("3 December 2027, 10:00", "3 декабря 2027 года в 10", "2027-12-03 10:00"),
    ("2026-12-03 10:00", "03.12.2026 10:00", "2026-12-03 10:00"),
    ("3.12 at 10", "3.12 в 10", "2026-12-03 10:00"),
    ("tonight", None, "2026-11-26 20:00"),
    ("tonight at 9", "сегодня вечером в 9", "2026-11-26 21:00"),
    ("tomorrow morning", "завтра утром", "2026-11-27 09:00"),
    ("tomorrow in the evening", "завтра вечером", "2026-11-27 19:00"),
    ("tomorrow at 7 in the evening", "завтра в 7 вечера", "2026-11-27 19:00"),
    ("tomorrow at 3 pm", "завтра в 3 дня", "2026-11-27 15:00"),
    ("tomorrow at 1 pm", "завтра в час дня", "2026-11-27 13:00"),
    ("tomorrow at 2 am", "завтра в 2 ночи", "2026-11-27 02:00"),
    ("tomorrow at 12 pm", "завтра в 12 дня", "2026-11-27 12:00"),
    ("noon", "в полдень", "2026-11-26 12:00"),
    ("midnight", "в полночь", "2026-11-27 00:00"),
    ("the day after tomorrow", "послезавтра", "2026-11-28 09:00"),
    ("day after tomorrow at 8:30", "послезавтра в 8.30", "2026-11-28 08:30"),
]
REPEATED = [
    ("every day at 8", "каждый день в 8", "0 8 * * *", "every day"),
    ("daily 8:05", "ежедневно в 8:05", "5 8 * * *", "every day"),
    ("at 8 every day", "в 8 каждый день", "0 8 * * *", "every day"),
    ("every morning", "каждое утро", "0 9 * * *", "every day"),
    ("every evening at 8", "каждый вечер в 8", "0 20 * * *", "every day"),
    ("every Monday", "по понедельникам", "0 9 * * 1", "every week"),
    ("Mondays at 7", "каждый понедельник в 7", "0 7 * * 1", "every week"),
    ("every Monday and Thursday at 9", "по понедельникам и четвергам в 9", "0 9 * * 1,4", None),
    ("every Sunday at noon", "по воскресеньям в полдень", "0 12 * * 0", "every week"),
    ("every week on Friday 9:00", "каждую неделю в пятницу в 9", "0 9 * * 5", "every week"),
    ("on weekdays at 7:30", "по будням в 7:30", "30 7 * * 1-5", "on weekdays"),
    ("every weekday", "каждый будний день", "0 9 * * 1-5", "on weekdays"),
    ("on weekends at 10", "по выходным в 10", "0 10 * * 0,6", "on weekends"),
    ("every month 2026-12-03 10:00", "каждый месяц 3 декабря в 10", "0 10 3 * *", "every month"),
    ("every year 3 December", "каждый год 3 декабря", "0 9 3 12 *", "every year"),
    ("every day tomorrow at 9", "каждый день завтра в 9", "0 9 * * *", "every day"),
    ("cron 0 9 * * MON-FRI Europe/Berlin", "0 9 * * MON-FRI", "0 9 * * MON-FRI", None),
]


@pytest.mark.parametrize(("english", "russian", "wanted"), ONCE)
def test_a_time_is_read_in_both_languages(english: str, russian: str | None, wanted: str | None) -> None:
    for text in filter(None, (english, russian, english.upper(), f"  {english} ")):
        if wanted is None:
            with pytest.raises(ValueError, match=r"is no time|no time was understood"):
                read_when(text, now=NOW, zone=BERLIN)
            continue
        made = read_when(text, now=NOW, zone=BERLIN)
        assert isinstance(made, At), text
        assert from_iso(made.instant) == moment(wanted), text


@pytest.mark.parametrize(("english", "russian", "cron", "repeat"), REPEATED)
def test_what_repeats_is_read_in_both_languages(english: str, russian: str, cron: str, repeat: str | None) -> None:
    for text in (english, russian):
        made = read_when(text, now=NOW, zone=BERLIN)
        assert made == Cron(expression=cron, zone=BERLIN), text
        assert repeat_of(made) == repeat


def test_intervals_are_read() -> None:
    for text, seconds in (
        ("every 2 hours", 7200),
        ("каждые 30 минут", 1800),
        ("every hour", 3600),
        ("every 1d", 86400),
    ):
        assert read_when(text, now=NOW, zone=BERLIN) == Every(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no time was understood; write it like"),
        ("whenever", "no time was understood"),
        ("когда-нибудь", "время не распознано; напишите его, например «завтра в 9»"),
        ("tomorrow at nine thirty", '"thirty" is no time'),
        ("today at 8", "Today, Thursday 26 November, 08:00 is over"),
        ("сегодня в 8", "Сегодня, четверг, 26 ноября, 08:00: это уже прошло"),
        ("2020-01-01 9:00", "Wednesday 1 January 2020, 09:00 is over"),
        ("tomorrow at midnight", "times clash"),
        ("every day on 5 May", "times clash"),
        ("in 5 minutes at 9", "times clash"),
        ("12/3 10:00", "no time was understood"),
        ("31 November", "no time|is no time"),
        ("tomorrow at 25:00", "is no time"),
        ("every 2 months", "times clash"),
        ("every 10 seconds", "must be from 60 seconds"),
        ("61 * * * *", "minute"),
    ],
)
def test_what_is_no_time_ahead_is_refused_with_an_example(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_when(text, now=NOW, zone=BERLIN)


@pytest.mark.parametrize(
    ("text", "when", "what"),
    [
        ("tomorrow 9:00 water the roses", "tomorrow 9:00", "water the roses"),
        ("завтра в 9 полить розы", "завтра в 9", "полить розы"),
        ("me in 20 minutes to turn off the oven", "in 20 minutes", "turn off the oven"),
        ("мне через полчаса, что пора звонить маме", "через полчаса", "пора звонить маме"),
        ("every day at 8: take 2 pills", "every day at 8", "take 2 pills"),
        ("in 5 minutes 3 eggs", "in 5 minutes", "3 eggs"),
        ("завтра утром 2 яйца", "завтра утром", "2 яйца"),
        ("me to water the roses tomorrow at 9", "tomorrow at 9", "water the roses"),
        ("полить розы в пятницу в 7 вечера", "в пятницу в 7 вечера", "полить розы"),
        ("tomorrow at 9 call Mon Repos", "tomorrow at 9", "call Mon Repos"),
        ("tomorrow", "tomorrow", ""),
        ("in 20 minutes\nfirst line\nsecond line", "in 20 minutes", "first line\nsecond line"),
    ],
)
def test_the_time_stands_before_or_behind_the_text(text: str, when: str, what: str) -> None:
    assert split(text, now=NOW, zone=BERLIN) == (when, what)


def test_a_number_that_may_be_the_hour_or_not_is_asked_about() -> None:
    with pytest.raises(ValueError, match="is 2 the hour"):
        split("tomorrow 2 eggs", now=NOW, zone=BERLIN)
    with pytest.raises(ValueError, match="2 — это час"):
        split("завтра 2 яйца", now=NOW, zone=BERLIN)


def test_the_clock_is_that_of_the_zone_and_follows_daylight_saving() -> None:
    before = moment("2026-03-28T12:00")
    assert read_when("tomorrow 9:00", now=before, zone=BERLIN) == At(instant="2026-03-29T07:00:00.000Z", zone=BERLIN)
    assert read_when("tomorrow 2:30", now=before, zone=BERLIN) == At(instant="2026-03-29T01:00:00.000Z", zone=BERLIN)
    assert read_when("in 24 hours", now=before, zone=BERLIN) == At(instant="2026-03-29T11:00:00.000Z", zone=BERLIN)
    assert read_when("in a day", now=before, zone=BERLIN) == At(instant="2026-03-29T10:00:00.000Z", zone=BERLIN)
    tokyo = read_when("tomorrow 9:00", now=moment("2026-11-26T20:00"), zone="Asia/Tokyo")
    assert tokyo == At(instant="2026-11-28T00:00:00.000Z", zone="Asia/Tokyo")


def test_the_answer_says_the_time_in_full() -> None:
    nine, far = moment("2026-11-27T09:00"), moment("2027-01-01T09:00")
    assert in_full(nine, BERLIN, now=NOW) == "Tomorrow, Friday 27 November, 09:00"
    assert in_full(nine, BERLIN, now=NOW, text="розы") == "Завтра, пятница, 27 ноября, 09:00"
    assert in_full(far, BERLIN, now=NOW) == "Friday 1 January 2027, 09:00"
    daily = Cron(expression="0 9 * * *", zone=BERLIN)
    told = added(daily, nine, BERLIN, now=NOW, text="x")
    assert told == "I'll remind you: Tomorrow, Friday 27 November, 09:00, then every day"
    assert added(Every(seconds=7200), nine, BERLIN, now=NOW, text="ы").endswith(", затем каждые 2h")
