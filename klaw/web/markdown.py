"""Markdown of messages to harmless HTML: markdown-it-py reads it without raw HTML, nh3 (ammonia) cleans what came out,
Pygments colours code, formulas become MathML. Only ``child`` bounds how long that takes."""

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from klaw.web import latex
from klaw.web.markdown_rules import environment, footnote, list_item, reader, whole_blocks

MAX_CODE_CHARS = 50_000
"""Longer code is shown without colours: finding them takes a second for each megabyte."""
MAX_LANGUAGE = 30
_TAGS = latex.TAGS | {
    "a", "b", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "s", "span", "strong", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_WITH_CLASS = ("pre", "span", "div", "code", "li", "p", "td", "th")
_ATTRIBUTES: dict[str, set[str]] = {
    **latex.ATTRIBUTES,
    **{tag: {"class", "dir"} for tag in _WITH_CLASS},
    **{tag: {"dir"} for tag in ("blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul")},
    "a": {"href", "title"},
    "div": {"class", "data-language"},
    "ol": {"start", "dir"},
}
_SCHEMES = {"http", "https", "mailto"}
_REL = "noopener noreferrer nofollow"


def to_html(text: str, at_most: int, *, colours: bool = True) -> str:
    """The HTML of a Markdown text. Pictures become links: nothing is loaded from elsewhere. Raises ValueError: it is
    longer than ``at_most``."""
    html = _reader().render(text, environment(text, colours=colours))
    if len(html) > at_most:
        raise ValueError
    return nh3.clean(html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=_REL)


def growing(text: str, at_most: int, *, ended: bool) -> tuple[int, str, str]:
    """Of an answer that grows: how many characters no further text can change, their HTML, and that of the rest,
    without colours. Once it has ``ended`` there is no rest. Raises like ``to_html``."""
    whole = len(text) if ended else whole_blocks(text)
    return whole, to_html(text[:whole], at_most), to_html(text[whole:], at_most, colours=False)


@cache
def _reader() -> MarkdownIt:
    made = reader().disable("image")
    for name in ("formula", "formula_block"):
        made.add_render_rule(name, _formula)
    made.add_render_rule("footnote", footnote)
    made.add_render_rule("fence", _fence)
    made.add_render_rule("code_block", _fence)
    made.add_render_rule("list_item_open", list_item)
    made.add_render_rule("table_open", _table)
    made.add_render_rule("table_close", _table)
    return made


def _formula(_renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    html = latex.mathml(token.info, shown=token.meta["shown"])
    html = html or f'<code class="latex">{escape(token.content)}</code>'
    return html if token.type == "formula" else f'<div class="formula">{html}</div>\n'


def _table(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    html = renderer.renderToken(tokens, index, options, env)
    return f'<div class="block">{html}' if tokens[index].nesting == 1 else f"{html}</div>\n"


def _fence(_renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, env: Any) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0][:MAX_LANGUAGE] if token.info.strip() else ""
    label = f' data-language="{escape(language)}"' if language else ""
    html = _coloured(token.content, language) if env["colours"] else None
    css = ' class="code"' if html is not None else ""
    return f'<div class="block"{label}><pre{css}><code>{html or escape(token.content)}</code></pre></div>\n'


def _coloured(code: str, language: str) -> str | None:
    """None: it has no language that is known, or is too long."""
    if not language or len(code) > MAX_CODE_CHARS:
        return None
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))
