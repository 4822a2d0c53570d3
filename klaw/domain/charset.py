"""In which charset a text from outside is written. Pure."""

import codecs
import re

_KNOWN = frozenset(
    {
        "utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255",
        "cp1256", "cp1257", "cp1258", "cp866", "cp874", "koi8-r", "koi8-u", "mac-cyrillic", "mac-roman", "iso8859-2",
        "iso8859-3", "iso8859-4", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-10", "iso8859-13",
        "iso8859-14", "iso8859-15", "iso8859-16", "gbk", "gb2312", "gb18030", "big5", "big5hkscs", "euc_jp",
        "iso2022_jp", "shift_jis", "cp932", "euc_kr", "cp949",
    }
)  # fmt: skip
"""Python's codecs that pages are written in; others, such as punycode or utf-7, are not charsets of text."""
_AS_WESTERN = frozenset({"ascii", "iso8859-1", "iso8859-9"})
"""Labels that on the web mean the Windows charsets."""
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_HIGH_RUN = re.compile(rb"[\x80-\xff]{3,}")
HEAD_BYTES = 2048
"""A page declares its charset within these."""


def decode(data: bytes, header: str | None) -> str:
    """The text of a page (or its beginning) by its declared charset, else by what its bytes look like. Bytes that do
    not fit become U+FFFD. ``header``: the charset of the content type."""
    for mark, marked in MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(marked, "replace")
    declared = _DECLARED.search(data[:HEAD_BYTES])
    name = python_name(header) or python_name(declared.group(1).decode("ascii") if declared else None)
    return data.decode(name or guess(data), "replace")


def python_name(label: str | None) -> str | None:
    """The codec that a label from outside means; None if it is unknown or not a charset of text."""
    if not label:
        return None
    try:
        name = codecs.lookup(label.strip("\"' ")).name
    except (LookupError, ValueError):
        return None
    if name in _AS_WESTERN:
        return "cp1254" if name == "iso8859-9" else "cp1252"
    return name if name in _KNOWN else None


def guess(data: bytes) -> str:
    """UTF-8 if it is valid; else Cyrillic where letters stand together, Latin where accented ones stand alone."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if error.start >= len(data) - 3:  # cut in the middle of a character
            return "utf-8"
    else:
        return "utf-8"
    runs = b"".join(_HIGH_RUN.findall(data))
    if not runs:
        return "cp1252"
    # Most letters are small: in windows-1251 they are from 0xE0 on, in KOI8-R they are below.
    small_1251 = sum(byte >= 0xE0 for byte in runs)
    small_koi8 = sum(0xC0 <= byte < 0xE0 for byte in runs)
    return "cp1251" if small_1251 >= small_koi8 else "koi8-r"
