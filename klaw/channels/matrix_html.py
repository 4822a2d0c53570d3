"""Markdown as messages of Matrix: HTML of the tags that clients show, and text for all others. Pure."""

import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from klaw.channels.markup import split, styled
from klaw.channels.messenger import Part
from klaw.domain.text import clean
from klaw.web.markdown_rules import environment, footnote, list_item, reader

PART_BYTES = 10_000
"""Of Markdown in one message."""
MAX_BYTES = 60_000
"""Of text and HTML together: an event has at most 65,536, with what the homeserver puts beside."""
TAGS = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "s", "span", "strong", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "*": set[str](),
    "a": {"href"},
    "code": {"class"},
    "div": {"data-mx-maths"},
    "ol": {"start"},
    "span": {"data-mx-maths"},
}
SCHEMES = {"http", "https", "mailto"}
_ADDRESS = re.compile(rf"(?:{'|'.join(SCHEMES)}):", re.IGNORECASE)


def render(markdown: str) -> list[Part]:
    """See ``Messenger.render``. What would become far longer, such as a table of empty cells, stays Markdown."""
    parts = []
    for piece in split(clean(markdown), lambda text: len(text.encode()) <= PART_BYTES):
        part = Part(text=styled(piece).plain, formatted=to_html(piece))
        parts.append(part if part.text and _fits(part) else Part(text=piece, formatted=""))
    return parts


def _fits(part: Part) -> bool:
    return len(json.dumps(part.text + part.formatted, ensure_ascii=False).encode()) <= MAX_BYTES


def to_html(markdown: str) -> str:
    html = _reader().render(markdown, environment(markdown)).strip()
    return nh3.clean(
        html, tags=TAGS, attributes=ATTRIBUTES, attribute_filter=_attribute, url_schemes=SCHEMES, link_rel=None
    )


def _attribute(_tag: str, name: str, value: str) -> str | None:
    is_allowed = {"class": value.startswith("language-"), "href": bool(_ADDRESS.match(value))}
    return value if is_allowed.get(name, True) else None


@cache
def _reader() -> MarkdownIt:
    made = reader()
    for name in ("formula", "formula_block"):
        made.add_render_rule(name, _formula)
    made.add_render_rule("footnote", footnote)
    made.add_render_rule("image", _image)
    made.add_render_rule("list_item_open", list_item)
    return made


def _formula(_renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    tag = "span" if token.type == "formula" else "div"
    return f'<{tag} data-mx-maths="{escape(token.info)}"><code>{escape(token.content)}</code></{tag}>'


def _image(_renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    """A link: a client would have to load it from elsewhere."""
    address = str(tokens[index].attrs["src"])
    return f'<a href="{escape(address)}">{escape(tokens[index].content or address)}</a>'
