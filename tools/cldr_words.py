"""Words of dates and times in Unicode's CLDR, by babel: writes ``klaw/imports/cldr.toml``. It also tells the tests how
telephones write a time, in every language of WhatsApp's apps.

    python tools/cldr_words.py
"""

import datetime as dt
import itertools
import sys
import textwrap
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from babel import Locale, localedata
from babel.dates import parse_pattern

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.imports.whatsapp_format import letters

TABLE = Path(__file__).parents[1] / "klaw" / "imports" / "cldr.toml"
APPS = """
af am ar ar_EG ar_MA ar_SA az be bg bn bs ca cs da de de_AT de_CH el en en_AU en_CA en_GB en_IE en_IN en_NZ en_ZA es
es_AR es_CL es_MX es_US et eu fa fi fil fr fr_BE fr_CA fr_CH ga gl gu ha he hi hr hu hy id is it it_CH ja ka kk km kn
ko ky lo lt lv mk ml mn mr ms my nb ne nl nl_BE or pa pl ps pt pt_PT ro ru rw si sk sl sq sr sr_Latn sv sw ta te th tr
uk ur uz vi zh zh_Hant zh_Hant_HK zu
""".split()  # noqa: SIM905 - one line each would be a hundred
"""The languages of WhatsApp on Android and on the iPhone, with the countries that write dates in ways of their own."""
HALVES = ("before_noon", "after_noon", "night", "midday")
"""A night has hours of both halves, and so has a midday, such as ten to three."""
_WEIGHT = 1_000
"""How much more the languages of the apps count than others that have the same word for another half of the day."""


def _half(locale: Locale, name: str) -> str | None:
    if name in ("am", "midnight", "pm", "noon"):
        return HALVES[name in ("pm", "noon")]
    hours = set()
    for rule in locale.day_period_rules.get(None, {}).get(name, ()):
        second = rule.get("from", rule.get("at", 0))
        while second % 86_400 != rule.get("before", second + 3_600) % 86_400:
            hours.add(second // 3_600 % 24)
            second += 3_600
    if not hours:
        return None
    if min(hours) < 12 <= max(hours):
        return "night" if 0 in hours else "midday"
    return "night" if min(hours) >= 18 else HALVES[min(hours) >= 12]


def _named(locale: Locale) -> Iterator[tuple[str, str]]:
    """Words of a language, each with the half of the day, or the number of the month, that it means."""
    for width, words in locale.day_periods.get("format", {}).items():
        for name, word in words.items():
            if (width != "narrow" or name in ("am", "pm")) and (half := _half(locale, name)):
                yield letters(word), half
    for words in locale.months["format"]["abbreviated"], locale.months["format"]["wide"]:
        for number, word in words.items():
            yield letters(word), str(number)


def table() -> Mapping[str, list[str]]:
    """The words of each half of the day in all languages, and of each month in those of the apps, where they mean one
    month only. Words of earlier versions of CLDR stay: telephones are not new."""
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for identifier in localedata.locale_identifiers():
        is_app = identifier in APPS
        for word, means in _named(Locale.parse(identifier)):
            if not word or (len(word) == 1 and (not is_app or (word.isascii() and word not in "ap"))):
                continue  # an s may be a second
            if is_app or not means.isdecimal():
                votes[word][means] += _WEIGHT if is_app else 1
    found: dict[str, set[str]] = {name: set() for name in (*HALVES, *(f"month_{n}" for n in range(1, 13)))}
    for word, means in votes.items():
        half = next((each for each, _ in means.most_common() if not each.isdecimal()), None)
        months = [each for each in means if each.isdecimal()]
        if half is not None:
            found[half].add(word)
        if len(months) == 1 and len(word) > 1:
            found[f"month_{months[0]}"].add(word)
    for name, words in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        kind = [each for each in found if each.startswith("month_") == name.startswith("month_")]
        found[name] |= {each for each in words.split() if not any(each in found[other] for other in kind)}
    return {name: sorted(words) for name, words in found.items()}


def written(words: Mapping[str, list[str]]) -> str:
    head = "# Words for halves of the day and for months, in letters alone: made from CLDR by tools/cldr_words.py.\n"
    lists = (f"{name} = '''\n{textwrap.fill(' '.join(each), 118)}\n'''\n" for name, each in words.items())
    return head + "".join(lists)


# -- how telephones write a time, for the tests ------------------------------------------------------------------------

_DIGITS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "mymr": "၀", "thai": "๐", "gujr": "૦", "telu": "౦"}
"""The first digit of the numbering systems that telephones use for themselves or when they are asked to."""


def stamps(identifier: str, moment: dt.datetime) -> Iterator[tuple[str, str]]:
    """What stands before a message of a moment, each with the name of its form: on an iPhone and on Android, with the
    clock of 12 and of 24 hours, short and full years, the language's own digits and Latin ones."""
    locale = Locale.parse(identifier)
    own = next((first for name, first in _DIGITS.items() if name in _systems(locale)), "0")
    glue, known = str(locale.datetime_formats["short"]), locale.datetime_skeletons
    dates = {"short": locale.date_formats["short"].pattern, "full": known["yMd"].pattern}
    for clock, skeleton in (("24 hours", "Hm"), ("12 hours", "hm"), ("parts of the day", "Bhm")):
        for (length, date), first in itertools.product(dates.items(), dict.fromkeys(("0", own))):
            for kind, shown in (("Android", "{} - "), ("iPhone", "[{}] ")):
                time = known[f"{skeleton}s" if kind == "iPhone" else skeleton].pattern
                if "h" in time and not {*"abB"} & {*time}:
                    continue  # of Argentina: nobody could tell the halves of the day apart
                text = parse_pattern(glue.replace("{0}", time).replace("{1}", date)).apply(moment, locale)
                digits = str.maketrans({f"{n}": chr(ord(first) + n) for n in range(10)})
                yield f"{kind}, {clock}, {length} date, {first}", shown.format(text.translate(digits))


def _systems(locale: Locale) -> frozenset[str]:
    return frozenset((locale.default_numbering_system, *locale.other_numbering_systems.values()))


if __name__ == "__main__":
    TABLE.write_text(written(table()), encoding="utf-8")
