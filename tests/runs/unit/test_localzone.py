"""The time zone of the machine."""

import pytest

from klaw.runs.parts import default_zone


def test_a_configured_zone_is_taken_as_it_is(tmp_path):
    assert default_zone("Europe/Oslo", {"TZ": "Asia/Tokyo"}, tmp_path) == "Europe/Oslo"


@pytest.mark.parametrize("written", ["Asia/Tokyo", ":Asia/Tokyo", ":/usr/share/zoneinfo/Asia/Tokyo"])
def test_the_environment_goes_first(tmp_path, written):
    (tmp_path / "timezone").write_text("Europe/Oslo\n")
    assert default_zone("system", {"TZ": written}, tmp_path) == "Asia/Tokyo"


def test_the_link_goes_before_the_file(tmp_path):
    (tmp_path / "timezone").write_text("Europe/Oslo\n")
    assert default_zone("system", {"TZ": "EST5EDT4,M3"}, tmp_path) == "Europe/Oslo"
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert default_zone("system", {}, tmp_path) == "Europe/Berlin"


def test_without_any_it_is_utc(tmp_path):
    (tmp_path / "localtime").symlink_to(tmp_path / "localtime")
    (tmp_path / "timezone").write_bytes(b"\xff\x00nowhere")
    assert default_zone("system", {"TZ": "/no/where"}, tmp_path) == "UTC"
