"""26.C4: what people call a time zone is understood, or they are told the name that it has."""

import pytest

from klaw.domain.names import local_time, zone
from klaw.errors import InvalidName


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("GMT+3", "Etc/GMT-3"), ("UTC+3", "Etc/GMT-3"), ("utc+03:00", "Etc/GMT-3"), ("+03:00", "Etc/GMT-3"),
        ("+0300", "Etc/GMT-3"), ("GMT-5", "Etc/GMT+5"), ("-05:00", "Etc/GMT+5"), ("UTC+0", "UTC"), ("+00:00", "UTC"),
        ("UTC", "UTC"), ("Europe/Riga", "Europe/Riga"), ("Etc/GMT+3", "Etc/GMT+3"), ("+14:00", "Etc/GMT-14"),
        ("UTC−3", "Etc/GMT+3"), ("GMT–5", "Etc/GMT+5"), ("utc + 3", "Etc/GMT-3"), (" UTC+3 ", "Etc/GMT-3"),
    ],
)  # fmt: skip
def test_understood(written, key):
    assert zone(written).key == key


def test_an_offset_is_what_people_mean_by_it():
    assert local_time(0, "GMT+3") == "1970-01-01T03:00:00+03:00"


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("MSK", "Europe/Moscow"), ("msk", "Europe/Moscow"), ("МСК", "Europe/Moscow"), ("+05:30", "Asia/Kolkata"),
        ("GMT+5:45", "Asia/Kathmandu"), ("PST", "America/Los_Angeles"), ("riga", "Europe/Riga"), ("UTC+99", "UTC"),
    ],
)  # fmt: skip
def test_explained(written, instead):
    with pytest.raises(InvalidName, match=instead):
        zone(written)
