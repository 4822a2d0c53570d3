"""Markdown of messages to harmless HTML: markdown-it-py reads it without raw HTML, nh3 (ammonia) cleans what came out,
Pygments colours code. Only ``child`` bounds how long that takes."""

from functools import cache
from html import escape

import nh3
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

MAX_CODE_CHARS = 50_000
"""Longer code is shown without colours: finding them takes a second for each megabyte."""
_TAGS = {
    "a", "b", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}} | {tag: {"class"} for tag in ("pre", "span", "div", "code")}
_SCHEMES = {"http", "https", "mailto"}
_REL = "noopener noreferrer nofollow"


def to_html(text: str, at_most: int, *, colours: bool = True) -> str:
    """The HTML of a Markdown text. Pictures become links: nothing is loaded from elsewhere. Raises ValueError: it is
    longer than ``at_most``."""
    html = _reader(colours).render(text)
    if len(html) > at_most:
        raise ValueError
    return nh3.clean(html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=_REL)


@cache
def _reader(colours: bool) -> MarkdownIt:
    highlight = _coloured if colours else None
    reader = MarkdownIt("commonmark", {"html": False, "linkify": False, "highlight": highlight, "breaks": True})
    return reader.enable(["table", "strikethrough"]).disable("image")


def _coloured(code: str, language: str, _attributes: str) -> str:
    if not language or len(code) > MAX_CODE_CHARS:
        return escape(code)
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return escape(code)
    return f'<pre class="code"><code>{highlight(code, lexer, HtmlFormatter(nowrap=True))}</code></pre>'
