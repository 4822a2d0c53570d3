"""The settings in Russian."""

import json

from klaw.config.describe import described
from tests.web.unit.test_words import STATIC

RUSSIAN = json.loads((STATIC / "ru_settings.json").read_text())


def test_what_every_setting_means_has_russian_words():
    wanted = {each.meaning for each in described() if each.type != "section"}
    assert wanted - RUSSIAN.keys() == set()
