"""In which charset a text is that does not say so. Pure.

Of the charsets that its bytes can be, the one is taken whose letters are those of a language that is written in it,
and stand where they may. Short texts, such as notes and tables, are told better so than by libraries, which want pages.
"""

import codecs
import re
from itertools import pairwise

SAMPLE_BYTES = 4096
LINE_BYTES = 1000
"""How far before the first letter beyond ASCII a sample may begin."""
ODD = 0.5
"""From here on a text is nonsense."""
CLOSE = 0.03
"""Two charsets that differ by less are equally likely."""
ENOUGH_LETTERS = 10
CUT_BYTES = 64
"""A shorter text is whole."""
BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SHIFTS = re.compile(rb"\x1b\$[@B]|(\x1b\$\)C)")
"""ISO-2022-JP, or -KR, which are ASCII otherwise."""
_ALPHABETS = {
    "cp1252 iso8859-15": "äöüß éèêëàâçîïôûùüœæ áéíóúñüªº¿¡ áàâãçéêíóôõúªº àèéìòù åäöæøé áðéíóúýþæö",
    "cp1251 iso8859-5": "а-яё а-щьюяіїєґ а-шыьэюяёіў а-шђјљњћџ а-шѓѕјљњќџ",
    "koi8-r cp866": "а-яё",
    "koi8-u cp1125": "а-щьюяіїєґ",
    "mac-cyrillic": "а-яё а-щьюяіїєґ",
    "cp1250 iso8859-2": "áčďéěíňóřšťúůýž áäčďéíľňóôšťúýž ąćęłńóśźż áéíóöőúüű ăâîşţ čćđšž",
    "cp1254": "çğıöşüâî",
    "cp1257": "āčēģīķļņšūž ąčęėįšųūž äöõüšž",
    "cp1253": "α-ωάέήίόύώϊϋ",
    "cp1255": "א-ת\u05b0-\u05c4",
    "cp1256": "\u0621-\u0652پچژگکی",
    "iso8859-6": "\u0621-\u0652",
    "cp874": "\u0e01-\u0e3a\u0e3f-\u0e4d",
    "cp1258": "àáâãèéêìíòóôõùúăđơưý\u0300-\u0323",
    "cp949": "가-힣",
    "euc_jp cp932": "\u3041-\u30ff\u4e00-\u9fff",
    "gb18030 big5": "\u4e00-\u9fff",
}
"""Charsets with the letters beyond ASCII of each language that is written in them; the likelier ones first."""
_LETTERS = {codec: text.split() for names, text in _ALPHABETS.items() for codec in names.split()}
_RARE = ("mac-cyrillic", "iso8859-6", "cp1125", "gb18030")
"""Of two that are as likely, the other is taken."""
_SIGNS = "«»„“”‘’‚–—…€§°·•№×©®\xa0\xad²³½¼¾±†\u3000-\u3002！-～"
_MISPLACED = re.compile(
    r"(?<![ก-ฮ\u0e32\u0e48-\u0e4c])[\u0e30\u0e32\u0e33]|(?<![ก-ฮ])[\u0e31\u0e34-\u0e3a\u0e47]"
    r"|(?<![ก-ฮ\u0e31\u0e34-\u0e3a])[\u0e48-\u0e4d]|[เ-ไ](?![ก-ฮ])|ς(?=\w)"
    r"|[^\W\d_][«»„“”€§°·•№×©®±]+(?=[^\W\d_])|(?:(?<=[^\W\d_])|(?<!.))\xa0(?=[^\W\d_])"
)
_CASED = re.compile("[а-яёіїєґў]", re.IGNORECASE)
_VOWEL = re.compile("[аеёиоуыэюяіїє]", re.IGNORECASE)
_VOWELS = 0.30, 0.56
"""Their share in Slavic languages."""
_CONTROL = re.compile("[\0-\x08\x0e-\x1f]")
_KANA = re.compile("[\u3041-\u30ff]")


def unicode_codec(data: bytes) -> str | None:
    """UTF-8 or another form of Unicode, if a text (or its beginning) is that, and ISO-2022, which looks like ASCII."""
    for mark, marked in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return marked
    sample = data[:SAMPLE_BYTES]
    if b"\0" in sample:
        for at, codec in ((1, "utf-16-le"), (0, "utf-16-be")):
            high = sample[at::2]
            letters = _CONTROL.sub("", sample.decode(codec, "replace"))
            if sum(byte <= 6 for byte in high) > 0.9 * len(high) and len(letters) > 0.45 * len(sample):  # up to Arabic
                return codec
    try:
        data.decode()
    except UnicodeDecodeError as error:
        is_cut = error.reason == "unexpected end of data"  # in the middle of a character
        is_cut = (is_cut and len(data) > CUT_BYTES) or not data[: error.start].isascii()
        return "utf-8" if is_cut and error.start >= len(data) - 3 else None
    shift = _SHIFTS.search(sample)
    return "utf-8" if shift is None else "iso2022_kr" if shift[1] else "iso2022_jp"


def guess(data: bytes) -> tuple[str, bool]:
    """The codec of a text (or its beginning), and whether that is sure; ``ascii`` if it is in no known language."""
    if certain := unicode_codec(data):
        return certain, True
    first = next(at for at, byte in enumerate(data) if byte > 0x7F)
    begin = max(0, first - LINE_BYTES)
    sample = data[max(begin, data.rfind(b"\n", begin, first) + 1) :][:SAMPLE_BYTES]
    if len(sample) == SAMPLE_BYTES:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    found = []
    for rank, codec in enumerate(_LETTERS):
        try:
            text = sample.decode(codec)
        except UnicodeDecodeError as error:
            if error.start < len(sample) - 3:  # not the last character, which may be cut
                continue
            text = sample[: error.start].decode(codec)
        found.append((oddness(text, codec), rank, codec, text))
    found.sort()
    if not found or found[0][0] > ODD:
        return "ascii", False
    score, _, name, text = found[0]
    return name, not any(other < score + CLOSE * 0.9 and differs != text for other, _, _, differs in found)


def oddness(text: str, codec: str) -> float:
    """How little of what is not ASCII in a text is written in a language of its charset: 0, to some more than 1."""
    beyond = [each for each in text if each > "\x7f"]
    alphabets = _LETTERS.get(codec)
    if not beyond or not alphabets:
        return 0.0
    strange = min(
        sum(not known(each) for each in beyond)
        for known in (re.compile(f"[{letters}{_SIGNS}]", re.IGNORECASE).match for letters in alphabets)
    )
    odd = float(2 * strange + len(_MISPLACED.findall(text)))
    for one, other in pairwise(text):
        mixed = one.isalpha() and other.isalpha() and one.isascii() != other.isascii() and max(one, other) >= "Ͱ"
        odd += mixed or (one.islower() and other.isupper())
    if codec in _RARE or all(map(str.isupper, beyond)):
        odd += CLOSE * len(beyond)
    if codec == "cp949":
        odd += sum(len(each.encode("euc_kr", "ignore")) != 2 for each in beyond)
    elif codec == "gb18030":
        odd += sum(not each.encode("gb2312", "ignore") for each in beyond)
    elif codec == "big5":
        odd += sum(each.encode("big5", "ignore") >= b"\xc9" for each in beyond)  # rare ones
    elif codec in ("euc_jp", "cp932") and not _KANA.search(text):
        odd += len(beyond) / 3
    cased = len(_CASED.findall(text))
    if cased > ENOUGH_LETTERS:
        share = len(_VOWEL.findall(text)) / cased
        odd += 3 * cased * max(_VOWELS[0] - share, share - _VOWELS[1], 0)
    return odd / len(beyond)
