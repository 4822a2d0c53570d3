"""Texts that may cost more than they are long: what a frame can carry in every script and in none."""

from collections.abc import Iterator, Sequence

FRAME_BYTES = 65_536

_UNITS = {
    "latin": "ordinary words of a message that somebody wrote, with a comma. ",
    "russian": "обычные слова сообщения, которое кто-то написал, с запятой. ",
    "one long word": "a",
    "one long russian word": "ё",
    "combining marks": "\u0344",
    "combining marks, out of order": "\u0301\u0316\u0327\u0345",
    "marks that decompose though their class is 0": "\u0f73",
    "half-width voicing marks between others": "\uff9e\u0316\uff9f\u0301",
    "letters with marks": "a\u0323\u0302\u0301",
    "zalgo": "z" + "\u0300\u0316\u0334\u0489" * 20,
    "hangul jamo": "\u1112\u1161\u11ab",
    "hangul leading jamo": "\u1112",
    "hangul": "안녕하세요",
    "korean laughter": "ㅋㅋㅋㅎㅎ",
    "ligature of many letters": "\ufdfa",
    "chinese": "我们昨天在山上看见了一条很大的龙",
    "chinese small talk": "哈",
    "chinese small talk of several words": "好的好哈哈哈",
    "chinese with full stops": "龙。",
    "japanese": "それはとても大きな猫でした",
    "japanese small talk": "そうですね",
    "katakana": "カタカナノコトバ",
    "thai": "สวัสดีครับคุณอยู่ที่ไหน",
    "thai small talk": "ดีมากนะ",
    "thai marks": "\u0e33\u0e35\u0e48",
    "lao": "ສະບາຍດີ",
    "khmer": "សួស្តី",
    "myanmar": "မင်္ဂလာပါ",
    "tibetan": "བོད་སྐད",
    "devanagari": "नमस्ते",
    "arabic": "السلام عليكم ",
    "hebrew without spaces": "שלום",
    "right-to-left overrides": "\u202e\u202dx",
    "zero width": "\u200b\u200c\u200d\u2060\ufeff",
    "zero-width joiners": "\u200d",
    "variation selectors": "\ufe0f",
    "emoji": "😀",
    "emoji families": "👩\u200d👩\u200d👧\u200d👦",
    "flags": "🇩🇪",
    "one half of a flag": "🇩",
    "half surrogates": "\ud800",
    "digits": "1",
    "digits with spaces": "1 ",
    "sums": "1 + ",
    "dates": "5 january, of ",
    "numbers with points": "11.11.",
    "brackets": "[",
    "objects": '{"a":',
    "quotes": '"',
    "apostrophes": "a'",
    "backslashes": "\\",
    "newlines": "\n",
    "carriage returns": "\r\n",
    "spaces": " ",
    "tabs": "\t",
    "no-break spaces": "\xa0",
    "full stops": ".",
    "sentences of one letter": "a. ",
    "exclamation marks with quotes": '!"',
    "colons": "a: ",
    "fences": "```\n",
    "headings": "# a\n",
    "dashes": "- ",
    "underlines": "a\n===\n",
    "comments": "<!-- ",
    "tags": "<a ",
    "slashes": "/a ",
    "hashes": "#1 ",
    "escapes": "\x1b[",
    "escapes without end": "\x1b]",
    "controls": "\x01",
    "claims": "ok, done, I have just saved your ",
    "russian claims": "хорошо, это я теперь ",
    "urls": "http://a.b/",
    "base64": "QUJD+/",
}
_ENDS = ("", "龍", "z", ".", "\u0301")


def hostile_texts(size: int = FRAME_BYTES, ends: Sequence[str] = _ENDS) -> Iterator[tuple[str, str]]:
    """Name and text of each, at most ``size`` bytes of UTF-8: one thing again and again, and what spoils the last of
    it for a pattern."""
    for name, unit in _UNITS.items():
        for end in ends:
            room = size - len(end.encode())
            yield f"{name}{f', and then {end!r}' if end else ''}", unit * (room // _bytes(unit)) + end
    two = list(_UNITS.items())
    for (one, first), (other, second) in zip(two, (*two[7:], *two[:7]), strict=True):
        half = size // 2
        yield f"{one}, then {other}", first * (half // _bytes(first)) + second * (half // _bytes(second))


def _bytes(unit: str) -> int:
    return len(unit.encode("utf-8", "surrogatepass"))
