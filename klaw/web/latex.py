"""LaTeX formulas as MathML, which browsers show without a script."""

import re
from functools import lru_cache
from xml.etree import ElementTree as ET

_UNREAD = re.compile(r"<m[a-z]+>\\")
"""A command that is not known is given as it was written."""
_CHARACTER = re.compile(r"&amp;(#\w+;)")
TAGS = {
    "math", "menclose", "mfrac", "mi", "mmultiscripts", "mn", "mo", "mover", "mpadded", "mphantom", "mprescripts",
    "mroot", "mrow", "ms", "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr",
    "munder", "munderover", "none",
}  # fmt: skip
_NAMES = {
    "accent", "accentunder", "columnalign", "columnlines", "columnspacing", "displaystyle", "fence", "form",
    "largeop", "linethickness", "lspace", "mathvariant", "maxsize", "minsize", "movablelimits", "notation", "rowlines",
    "rowspacing", "rspace", "scriptlevel", "separator", "stretchy", "symmetric",
}  # fmt: skip
ATTRIBUTES = dict.fromkeys(TAGS, _NAMES) | {"math": {"display"}, "mspace": {"width"}}
"""Neither links nor styles, nor what moves a part of a formula over something else."""


PARTS = {"mfrac": 2, "mover": 2, "mroot": 2, "msub": 2, "msubsup": 3, "msup": 2, "munder": 2, "munderover": 3}


@lru_cache(256)
def mathml(latex: str, *, shown: bool) -> str | None:
    """The MathML of a formula, still to be cleaned; None: it is not valid LaTeX.

    Args:
        shown: it stands by itself, not in a line of text.
    """
    from latex2mathml.converter import Converter

    try:
        tree = Converter(display="block" if shown else "inline").convert_to_element(latex)
    except Exception:  # noqa: BLE001 - it raises whatever comes of a wrong formula, IndexError too
        return None
    if any(len(each) != PARTS.get(each.tag, len(each)) for each in tree.iter()):
        return None
    found = _CHARACTER.sub(r"&\1", ET.tostring(tree, encoding="unicode"))  # it has characters as references
    return None if _UNREAD.search(found) else found
